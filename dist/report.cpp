// What ranks tell one another outside of operations: aborts, and what they wait for when nothing moves.
// Main entry: Group::handle_control(), Group::check_stalls().
//
// A rank whose operation does not move asks all others ("ask", then a line for each operation under way: tag, count).
// Each answers ("tell") whether somebody waits there, how much was called, what ended last, whether it has called what
// was asked about, and what is under way there. Two ranks that both wait, each for something that the other has not
// called, will wait for ever: that is raised at once; everything else after the stall timeout.
#include <anello/dist/group.h>

#include <algorithm>
#include <iomanip>
#include <sstream>

namespace anello::dist {
namespace {

constexpr size_t kAskedOperations = 32;
constexpr double kAskEvery = 0.5;

std::string seconds_text(double seconds) {
  std::ostringstream out;
  out << std::fixed << std::setprecision(1) << seconds << " s";
  return out.str();
}
std::string list_of(const std::vector<std::string>& items) {
  std::string text;
  for (const std::string& item : items) text += (text.empty() ? "" : ", ") + item;
  return text;
}

}  // namespace

std::vector<const Work::State*> Group::under_way(const std::vector<StatePtr>& active) const {
  std::vector<const Work::State*> mine;
  for (const StatePtr& state : active)
    if (state->group.get() == this && !state->finished && state->channel) mine.push_back(state.get());
  return mine;
}

bool Group::was_called(uint32_t tag, uint64_t count) const {
  const std::lock_guard lock(mutex_);
  const auto found = called_.find(tag);
  return found != called_.end() && found->second > count;
}

void Group::ask(const std::vector<const Work::State*>& mine, bool blocked) {
  std::string question = "ask\n";
  for (size_t i = 0; i < mine.size() && i < kAskedOperations; ++i)
    question += concat(mine[i]->tag, ' ', mine[i]->mine.count, '\n');
  for (int r = 0; r < size_; ++r)
    if (r != rank_) transport_->send_control(r, question);
  asked_ = Clock::now();
  const std::lock_guard lock(mutex_);
  steady_ = blocked && calls_ == calls_when_asked_ ? steady_ + 1 : 0;
  calls_when_asked_ = calls_;
}

std::string Group::answer(const std::string& question, const std::vector<StatePtr>& active, bool blocked) const {
  std::ostringstream out;
  {
    const std::lock_guard lock(mutex_);
    out << "tell\n" << blocked << ' ' << calls_ << '\n';
  }
  if (last_.empty())
    out << "nothing yet\n";
  else
    out << last_ << ", " << seconds_text(seconds_since(last_time_)) << " ago\n";
  std::istringstream in(question.substr(4));
  uint32_t tag = 0;
  uint64_t count = 0;
  while (in >> tag >> count) out << "came " << tag << ' ' << count << ' ' << was_called(tag, count) << '\n';
  const auto mine = under_way(active);
  for (size_t i = 0; i < mine.size() && i < kAskedOperations; ++i)
    out << "waits " << mine[i]->tag << ' ' << mine[i]->mine.count << '\n';
  return out.str();
}

void Group::take_answer(int from, const std::string& text) {
  Peer& peer = peers_[static_cast<size_t>(from)];
  std::istringstream in(text.substr(5));
  bool blocked = false;
  uint64_t calls = 0;
  in >> blocked >> calls;
  in.ignore();
  std::getline(in, peer.last);
  peer.steady = blocked && peer.blocked && calls == peer.calls ? peer.steady + 1 : 0;
  peer.blocked = blocked;
  peer.calls = calls;
  peer.told = Clock::now();
  peer.came.clear();
  peer.waits.clear();
  std::string word;
  uint32_t tag = 0;
  uint64_t count = 0;
  while (in >> word >> tag >> count) {
    bool came = false;
    if (word == "came" && in >> came) peer.came[{tag, count}] = came;
    if (word == "waits") peer.waits.emplace_back(tag, count);
  }
}

void Group::handle_control(const Transport::Control& control, const std::vector<StatePtr>& active, bool blocked) {
  const std::string& text = control.message;
  if (text.starts_with("abort ")) break_up(text.substr(6), false);
  if (text.starts_with("ask\n")) transport_->send_control(control.from, answer(text, active, blocked));
  if (text.starts_with("tell\n")) take_answer(control.from, text);
}

/// Whether `rank` waits for what this rank has not called, and this one for what it has not: neither can go on.
bool Group::never_comes(const Work::State& state, int rank) const {
  const Peer& peer = peers_[static_cast<size_t>(rank)];
  const bool pair = state.mine.kind == Kind::send || state.mine.kind == Kind::recv;
  const auto came = peer.came.find({state.tag, state.mine.count});
  if (pair || steady_ < 3 || peer.steady < 2 || came == peer.came.end() || came->second || peer.waits.empty())
    return false;
  return std::none_of(peer.waits.begin(), peer.waits.end(),
                      [&](const auto& w) { return w.first >> 29 != 0 || was_called(w.first, w.second); });
}

std::string Group::stall_text(const Work::State& state) const {
  std::vector<std::string> waiting, absent, absent_ranks, silent;
  for (int r = 0; r < size_; ++r) {
    const Peer& peer = peers_[static_cast<size_t>(r)];
    const auto came = peer.came.find({state.tag, state.mine.count});
    if (r != rank_ && (peer.told == Clock::time_point{} || peer.told < asked_ - std::chrono::seconds(1))) {
      silent.push_back(std::to_string(r));
    } else if (r == rank_ || came == peer.came.end() || came->second) {
      waiting.push_back(std::to_string(r));
    } else {
      absent_ranks.push_back(std::to_string(r));
      absent.push_back(concat(r, " (last: ", peer.last, ')'));
    }
  }
  std::vector<std::string> blamed = absent_ranks;
  blamed.insert(blamed.end(), silent.begin(), silent.end());
  if (blamed.empty())
    for (int r : state.channel->waits_for()) blamed.push_back(std::to_string(r));
  std::string text =
      concat('[', dist::name(state.mine.kind), ']', label(state.mine), " waits for rank ", list_of(blamed), " since ",
             seconds_text(seconds_since(state.moved)), ". Waiting: ", list_of(waiting), '.');
  if (!absent.empty()) text += concat(" Absent: ", list_of(absent), '.');
  if (!silent.empty()) text += concat(" Silent: ", list_of(silent), " (stopped, or cut off).");
  return text + " Hint: every rank makes the same calls; set_stall_timeout() or ANELLO_STALL_TIMEOUT allows more time.";
}

void Group::check_stalls(const std::vector<StatePtr>& active, bool blocked) {
  if (size_ == 1) return;
  const std::vector<const Work::State*> mine = under_way(active);
  const double allowed = stall_timeout_, ask_after = allowed > 0 ? std::min(kAskEvery, allowed / 4) : kAskEvery;
  const Work::State* oldest = nullptr;
  for (const Work::State* state : mine)
    if (oldest == nullptr || state->moved < oldest->moved) oldest = state;
  if (oldest == nullptr || seconds_since(oldest->moved) < ask_after) {
    steady_ = 0;
    return;
  }
  if (seconds_since(asked_) >= ask_after) ask(mine, blocked);
  if (allowed > 0 && seconds_since(oldest->moved) >= allowed) {
    break_up(stall_text(*oldest), true);
    return;
  }
  if (!blocked) return;
  for (const Work::State* state : mine) {
    for (int r = 0; r < size_; ++r)
      if (r != rank_ && never_comes(*state, r)) {
        break_up(stall_text(*state), true);
        return;
      }
  }
}

}  // namespace anello::dist
