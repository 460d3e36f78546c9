// Ranks that are threads of one process: mailboxes of messages, copied once, from the sender's memory to the
// receiver's. Main entry: local_transports().
#include <anello/core/error.h>
#include <anello/dist/transport.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <thread>
#include <unordered_map>

namespace anello::dist {
namespace {

/// Messages up to this size are copied when they are sent, so that the sender need not wait.
constexpr size_t kEagerBytes = 16 << 10;

struct Message {
  enum State { queued, taken, done };
  std::atomic<State> state{queued};
  const void* data;
  size_t bytes;
  std::vector<char> copy;
};
using MessagePtr = std::shared_ptr<Message>;

/// What has been sent to one rank and not yet been taken.
struct Mailbox {
  std::mutex mutex;
  std::unordered_map<uint64_t, std::deque<MessagePtr>> messages;  // by sender and tag
  std::deque<Transport::Control> controls;
  std::atomic<bool> gone{false};
};
uint64_t key_of(int from, uint32_t tag) { return static_cast<uint64_t>(from) << 32 | tag; }

/// What the ranks of a group share.
struct Hub {
  explicit Hub(std::vector<int> host) : hosts(std::move(host)), boxes(hosts.size()) {}
  std::vector<int> hosts;
  std::vector<Mailbox> boxes;
  // split: who has come, and the groups once all have
  std::mutex mutex;
  std::condition_variable all_came;
  std::map<int, std::pair<int, int>> came;  // rank: color, key
  uint64_t round = 0;
  std::map<int, std::pair<std::shared_ptr<Hub>, int>> groups;  // rank: its group and its rank there
};

class LocalTransport final : public Transport {
 public:
  LocalTransport(std::shared_ptr<Hub> hub, int rank) : hub_(std::move(hub)), rank_(rank) {}
  ~LocalTransport() override { mine().gone = true; }

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(hub_->boxes.size()); }
  int host_of(int rank) const override { return hub_->hosts[static_cast<size_t>(rank)]; }
  std::string_view name() const override { return "local"; }

  Request send(int to, uint32_t tag, const void* data, size_t bytes) override;
  Request receive(int from, uint32_t tag, void* data, size_t bytes) override;
  bool test(Request& request) override;
  void cancel(Request& request) override;
  void send_control(int to, const std::string& message) override;
  bool receive_control(Control& control) override;
  std::shared_ptr<Transport> split(int color, int key) override;
  void abort(const std::string& reason) override;

 private:
  struct Pending {
    int peer;
    uint32_t tag = 0;
    void* data = nullptr;
    size_t bytes = 0;
    bool receives = false;
    MessagePtr message = nullptr;  // of a send that is not copied
  };
  Mailbox& box(int rank) const { return hub_->boxes[static_cast<size_t>(rank)]; }
  Mailbox& mine() const { return box(rank_); }
  bool test_send(const Pending& p) const;
  bool test_receive(Request request, const Pending& p);

  std::shared_ptr<Hub> hub_;
  int rank_;
  Request next_ = 1;
  std::unordered_map<Request, Pending> pending_;
  std::unordered_map<uint64_t, std::deque<Request>> receives_;  // in the order asked, by sender and tag
};

Transport::Request LocalTransport::send(int to, uint32_t tag, const void* data, size_t bytes) {
  const auto message = std::make_shared<Message>();
  message->bytes = bytes;
  message->data = data;
  const bool eager = bytes <= kEagerBytes;
  if (eager) {
    message->copy.assign(static_cast<const char*>(data), static_cast<const char*>(data) + bytes);
    message->data = message->copy.data();
  }
  {
    const std::lock_guard lock(box(to).mutex);
    box(to).messages[key_of(rank_, tag)].push_back(message);
  }
  const Request request = next_++;
  pending_.emplace(request, Pending{to, tag, nullptr, bytes, false, eager ? nullptr : message});
  return request;
}

Transport::Request LocalTransport::receive(int from, uint32_t tag, void* data, size_t bytes) {
  const Request request = next_++;
  pending_.emplace(request, Pending{from, tag, data, bytes, true});
  receives_[key_of(from, tag)].push_back(request);
  return request;
}

bool LocalTransport::test_send(const Pending& p) const {
  if (p.message == nullptr || p.message->state.load(std::memory_order_acquire) == Message::done) return true;
  check<DistError>(!box(p.peer).gone, "send", "rank ", p.peer, " is gone.");
  return false;
}

bool LocalTransport::test_receive(Request request, const Pending& p) {
  const auto waiting = receives_.find(key_of(p.peer, p.tag));
  if (waiting->second.front() != request) return false;
  const bool gone = box(p.peer).gone;  // before the look into the box: what it sent last is there then
  MessagePtr message;
  {
    const std::lock_guard lock(mine().mutex);
    const auto found = mine().messages.find(waiting->first);
    if (found != mine().messages.end()) {
      message = found->second.front();
      message->state.store(Message::taken, std::memory_order_relaxed);
      found->second.pop_front();
      if (found->second.empty()) mine().messages.erase(found);
    }
  }
  if (!message) {
    check<DistError>(!gone, "receive", "rank ", p.peer, " is gone.");
    return false;
  }
  const bool fits = message->bytes == p.bytes;
  if (fits && p.bytes > 0) std::memcpy(p.data, message->data, p.bytes);
  message->state.store(Message::done, std::memory_order_release);
  waiting->second.pop_front();
  if (waiting->second.empty()) receives_.erase(waiting);
  check<DistError>(fits, "receive", "a message of ", message->bytes, " bytes arrived from rank ", p.peer, ", expected ",
                   p.bytes, '.');
  return true;
}

bool LocalTransport::test(Request& request) {
  if (request == 0) return true;
  const auto found = pending_.find(request);
  if (!(found->second.receives ? test_receive(request, found->second) : test_send(found->second))) return false;
  pending_.erase(found);
  request = 0;
  return true;
}

void LocalTransport::cancel(Request& request) {
  const auto found = pending_.find(request);
  if (found == pending_.end()) return;
  const Pending& p = found->second;
  if (p.receives) {
    const auto waiting = receives_.find(key_of(p.peer, p.tag));
    if (waiting != receives_.end()) std::erase(waiting->second, request);
    if (waiting != receives_.end() && waiting->second.empty()) receives_.erase(waiting);
  } else if (p.message != nullptr) {
    bool queued = false;
    {
      const std::lock_guard lock(box(p.peer).mutex);
      const auto messages = box(p.peer).messages.find(key_of(rank_, p.tag));
      if (messages != box(p.peer).messages.end()) {
        queued = std::erase(messages->second, p.message) > 0;
        if (messages->second.empty()) box(p.peer).messages.erase(messages);
      }
    }
    // The receiver has it in its hands: a copy of memory, then it lets go.
    while (!queued && p.message->state.load(std::memory_order_acquire) != Message::done) std::this_thread::yield();
  }
  pending_.erase(found);
  request = 0;
}

void LocalTransport::send_control(int to, const std::string& message) {
  const std::lock_guard lock(box(to).mutex);
  box(to).controls.push_back({rank_, message.substr(0, kControlBytes)});
}

bool LocalTransport::receive_control(Control& control) {
  const std::lock_guard lock(mine().mutex);
  if (mine().controls.empty()) return false;
  control = std::move(mine().controls.front());
  mine().controls.pop_front();
  return true;
}

std::shared_ptr<Transport> LocalTransport::split(int color, int key) {
  std::unique_lock lock(hub_->mutex);
  const uint64_t round = hub_->round;
  hub_->came[rank_] = {color, key};
  if (static_cast<int>(hub_->came.size()) == size()) {
    std::map<int, std::vector<std::pair<int, int>>> colors;  // color: (key, rank)
    for (const auto& [rank, choice] : hub_->came) colors[choice.first].emplace_back(choice.second, rank);
    hub_->groups.clear();
    for (auto& [group_color, members] : colors) {
      if (group_color < 0) continue;
      std::sort(members.begin(), members.end());
      std::vector<int> hosts;
      for (const auto& member : members) hosts.push_back(host_of(member.second));
      const auto group = std::make_shared<Hub>(hosts);
      for (size_t i = 0; i < members.size(); ++i) hub_->groups[members[i].second] = {group, static_cast<int>(i)};
    }
    hub_->came.clear();
    ++hub_->round;
    hub_->all_came.notify_all();
  } else {
    const bool all = hub_->all_came.wait_for(lock, std::chrono::seconds(60), [&] { return hub_->round != round; });
    check<DistError>(all, "split", "not all of the ", size(), " ranks came within 60 s.");
  }
  const auto found = hub_->groups.find(rank_);
  if (found == hub_->groups.end()) return nullptr;
  return std::make_shared<LocalTransport>(found->second.first, found->second.second);
}

void LocalTransport::abort(const std::string& reason) {
  for (int r = 0; r < size(); ++r)
    if (r != rank_) send_control(r, "abort " + reason);
}

}  // namespace

std::vector<std::shared_ptr<Transport>> local_transports(int size, const std::vector<int>& hosts) {
  check<ValueError>(size >= 1, "local_transports", "size is ", size, ", it must be at least 1.");
  check<ValueError>(hosts.empty() || static_cast<int>(hosts.size()) == size, "local_transports", "there are ",
                    hosts.size(), " hosts for ", size, " ranks.");
  const auto hub = std::make_shared<Hub>(hosts.empty() ? std::vector<int>(static_cast<size_t>(size), 0) : hosts);
  std::vector<std::shared_ptr<Transport>> all;
  for (int r = 0; r < size; ++r) all.push_back(std::make_shared<LocalTransport>(hub, r));
  return all;
}

}  // namespace anello::dist
