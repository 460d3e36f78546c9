// The life of a communicator: how operations are named, started, moved and ended, and what an error does to all.
// Main entry: Group::make(), Group::step(), Group::break_up(). The collectives themselves are in group_operations.cpp.
#include <anello/dist/collectives.h>
#include <anello/dist/group.h>

#include <algorithm>
#include <cstdlib>

namespace anello::dist {
namespace {

constexpr uint32_t kNamedTags = 1u << 10;    // below: unnamed operations by their number
constexpr uint32_t kMessageTags = 1u << 29;  // from here: send and recv

/// FNV-1a: the same on every machine, unlike std::hash.
uint64_t hash_of(const std::string& text) {
  uint64_t hash = 14695981039346656037ull;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ull;
  return hash ^ hash >> 32;
}

double default_stall_timeout() {
  const char* const text = std::getenv("ANELLO_STALL_TIMEOUT");
  if (text == nullptr) return 60;
  char* end = nullptr;
  const double seconds = std::strtod(text, &end);
  check<ValueError>(end != text && *end == 0 && seconds >= 0, "stall_timeout", "ANELLO_STALL_TIMEOUT is '", text,
                    "', not a number of seconds.");
  return seconds;
}

}  // namespace

Group::Group(std::shared_ptr<Transport> transport, std::shared_ptr<Engine> engine)
    : transport_(std::move(transport)),
      engine_(std::move(engine)),
      rank_(transport_->rank()),
      size_(transport_->size()),
      stall_timeout_(default_stall_timeout()) {
  peers_.resize(static_cast<size_t>(size_));
  host_ = transport_->host_of(rank_);
  for (int r = 0; r < size_; ++r) {
    const int host = transport_->host_of(r);
    hosts_ = std::max(hosts_, host + 1);
    local_size_ += host == host_;
    local_rank_ += host == host_ && r < rank_;
  }
}

Group::~Group() {
  // An abort that has not been told yet: the others must not wait for a rank that is gone.
  const auto tell = [this] {
    for (int r = 0; tells_ && r < size_; ++r)
      if (r != rank_) transport_->send_control(r, "abort " + broken_);
    return 0;
  };
  try {
    if (tells_) Engine::drives_here() ? tell() : engine_->exclusively(tell);
  } catch (...) {
    // they will find out by their own means
  }
  engine_->leave();
}

std::shared_ptr<Communicator> Communicator::create(std::shared_ptr<Transport> transport) {
  const auto engine = std::make_shared<Engine>();
  const auto group = std::make_shared<Group>(std::move(transport), engine);
  engine->add(group);
  if (group->size() > 1) engine->start();
  return group;
}

void Group::check_root(std::string_view where, int root) const {
  check<ValueError>(root >= 0 && root < size_, where, "root is ", root, ", the group has ranks 0 to ", size_ - 1, '.');
}

StatePtr Group::make(Kind kind, const std::string& name, const Tensor* like) {
  const std::lock_guard lock(mutex_);
  if (!broken_.empty()) throw DistError(broken_);
  const auto state = std::make_shared<Work::State>();
  state->group = std::static_pointer_cast<Group>(shared_from_this());
  state->mine.kind = kind;
  state->mine.set_name(name);
  if (like != nullptr) {
    check<DeviceError>(like->device() == cpu, dist::name(kind), "the tensor is on ", like->device(),
                       ". Hint: collectives work on the CPU.");
    state->mine.dtype = like->dtype();
    state->mine.set_shape(like->shape());
  }
  if (name.empty()) {
    state->mine.count = unnamed_++;
    state->tag = static_cast<uint32_t>(state->mine.count % kNamedTags);
  } else {
    state->mine.count = counts_[name]++;
    state->tag = kNamedTags + static_cast<uint32_t>(hash_of(name) % (kMessageTags - kNamedTags));
  }
  state->queue = hash_of(concat(reinterpret_cast<uintptr_t>(this), ' ', state->tag));
  called_[state->tag] = state->mine.count + 1;
  ++calls_;
  return state;
}

StatePtr Group::make_message(Kind kind, const Tensor& tensor, int peer, int tag) {
  check<ValueError>(tag >= 0 && static_cast<uint32_t>(tag) < kMessageTags, dist::name(kind), "tag is ", tag,
                    ", it must be from 0 to ", kMessageTags - 1, '.');
  const StatePtr state = make(kind, concat("message ", tag), &tensor);
  state->mine.set_name("");
  state->mine.count = static_cast<uint64_t>(tag);
  state->tag = kMessageTags + static_cast<uint32_t>(tag);
  // Messages to a rank wait for one another, but not for those from it.
  state->queue = hash_of(concat(reinterpret_cast<uintptr_t>(this), ' ', static_cast<int>(kind), ' ', peer, ' ', tag));
  return state;
}

Work Group::start(const StatePtr& state, bool async) {
  const Work work(state);
  engine_->submit(state);
  if (!async || size_ == 1) work.wait();
  if (async && size_ > 1 && !Blocking::here()) engine_->wake();
  return work;
}

bool Group::step(Work::State& state, bool first) {
  if (state.finished) return true;
  std::string broken;
  {
    const std::lock_guard lock(mutex_);
    broken = broken_;
  }
  if (!broken.empty()) {
    state.end(std::make_exception_ptr(DistError(broken)));
    return true;
  }
  if (!first) return false;
  try {
    if (!state.channel) {
      state.channel.emplace(*transport_, state.tag, state.mine);
      state.moved = Clock::now();
      state.task = state.program(state);
    }
    if (!state.ran) state.ran = state.task.step();
    if (state.ran && state.channel->flush()) {
      if (state.finish) state.finish();
      last_ = concat(dist::name(state.mine.kind), label(state.mine));
      last_time_ = Clock::now();
      state.end(nullptr);
      return true;
    }
    const bool moved = state.channel->take_progress();
    if (moved) state.moved = Clock::now();
    return moved;
  } catch (const std::exception& e) {
    const std::string prefix = concat('[', dist::name(state.mine.kind), "] "), text = e.what();
    const size_t end = text.find("] ");
    std::string reason = text;
    if (!text.starts_with(prefix))
      reason = concat(prefix, "rank ", rank_, " in", label(state.mine), ": ",
                      text.starts_with("[") && end != std::string::npos ? text.substr(end + 2) : text);
    // A rank that went away because of an error has said so before: that is the cause, its absence only follows.
    Transport::Control control;
    while (transport_->receive_control(control))
      if (control.message.starts_with("abort ")) break_up(control.message.substr(6), false);
    break_up(reason, true);
    {
      const std::lock_guard lock(mutex_);
      reason = broken_;
    }
    state.end(std::make_exception_ptr(DistError(reason)));
    return true;
  }
}

void Group::break_up(const std::string& reason, bool tell) {
  std::vector<std::weak_ptr<Group>> children;
  {
    const std::lock_guard lock(mutex_);
    if (!broken_.empty()) return;
    broken_ = reason;
    children = children_;
  }
  if (tell)
    for (int r = 0; r < size_; ++r)
      if (r != rank_) transport_->send_control(r, "abort " + reason);
  for (const auto& weak : children)
    if (const auto child = weak.lock()) child->break_up(reason, false);
}

void Group::abort(const std::string& reason) {
  {
    const std::lock_guard lock(mutex_);
    if (!broken_.empty()) return;
    broken_ = concat("[abort] rank ", rank_, ": ", reason);
    tells_ = size_ > 1;
  }
  if (size_ > 1) engine_->wake();
}

bool& Blocking::here() {
  static thread_local bool blocking = false;
  return blocking;
}

void Group::look(const std::vector<StatePtr>& active, bool blocked) {
  std::string reason;
  std::vector<std::weak_ptr<Group>> children;
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(tells_, false)) {
      reason = broken_;
      children = children_;
    }
  }
  if (!reason.empty()) {
    for (int r = 0; r < size_; ++r)
      if (r != rank_) transport_->send_control(r, "abort " + reason);
    for (const auto& weak : children)
      if (const auto child = weak.lock()) child->break_up(reason, false);
  }
  Transport::Control control;
  while (transport_->receive_control(control)) handle_control(control, active, blocked);
  check_stalls(active, blocked);
}

std::shared_ptr<Communicator> Group::split(int color, int key) {
  const StatePtr state = make(Kind::split, "", nullptr);
  state->program = [](Work::State& s) { return dist::barrier(*s.channel); };
  start(state, false);
  // Nothing else of this rank moves meanwhile; that every rank is here is known, so it is short.
  const std::shared_ptr<Transport> transport = engine_->exclusively([&] { return transport_->split(color, key); });
  if (transport == nullptr) return nullptr;
  const auto group = std::make_shared<Group>(transport, engine_);
  group->stall_timeout_ = stall_timeout_.load();
  engine_->add(group);
  if (group->size() > 1) engine_->start();
  const std::lock_guard lock(mutex_);
  std::erase_if(children_, [](const std::weak_ptr<Group>& child) { return child.expired(); });
  children_.push_back(group);
  return group;
}

}  // namespace anello::dist
