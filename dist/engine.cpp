// The rounds in which operations move, and the naps between fruitless ones.
// Main entry: Engine::round().
#include <anello/core/interrupt.h>
#include <anello/dist/engine.h>
#include <anello/dist/group.h>

#include <algorithm>
#include <unordered_set>

namespace anello::dist {
namespace {

/// After a fruitless round: give the core away, then sleep for longer and longer.
class Patience {
 public:
  void reset() { rounds_ = 0; }
  void rest() {
    ++rounds_;
    if (rounds_ < 50)
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(std::chrono::microseconds(std::min(20 + (rounds_ - 50) / 4, 500)));
  }

 private:
  int rounds_ = 0;
};

/// How often an idle process looks for reports and aborts.
constexpr auto kIdleLook = std::chrono::milliseconds(100);
/// How often a busy one does.
constexpr auto kBusyLook = std::chrono::milliseconds(2);

}  // namespace

double seconds_since(Clock::time_point then) { return std::chrono::duration<double>(Clock::now() - then).count(); }

void Work::State::release() {
  channel.reset();
  task = Task();
  program = nullptr;
  finish = nullptr;
  keep.clear();
}

void Work::State::end(std::exception_ptr failure) {
  release();
  std::vector<std::function<void()>> calls;
  {
    const std::lock_guard lock(mutex);
    if (finished.load(std::memory_order_relaxed)) return;
    error = std::move(failure);
    calls.swap(then);
    finished.store(true, std::memory_order_release);
    ended.notify_all();
  }
  for (const auto& call : calls) call();
}

void Engine::add(const std::shared_ptr<Group>& group) {
  const std::lock_guard lock(mutex_);
  new_groups_.push_back(group);
  ++members_;
}

void Engine::leave() {
  if (--members_ == 0) stop();
}

void Engine::submit(const StatePtr& state) {
  const std::lock_guard lock(mutex_);
  submitted_.push_back(state);
  busy_ = true;
}

void Engine::wake() {
  const std::lock_guard lock(mutex_);
  woken_ = true;
  wake_.notify_one();
}

void Engine::start() {
  const std::lock_guard lock(mutex_);
  if (!thread_.joinable()) thread_ = std::thread([self = shared_from_this()] { self->run(); });
}

void Engine::stop() {
  {
    const std::lock_guard lock(mutex_);
    stops_ = true;
    wake_.notify_one();
  }
  if (!thread_.joinable()) return;
  if (thread_.get_id() == std::this_thread::get_id())
    thread_.detach();  // the last to let go was an operation that this thread has just ended
  else
    thread_.join();
}

void Engine::admit() {
  const std::lock_guard lock(mutex_);
  active_.insert(active_.end(), submitted_.begin(), submitted_.end());
  submitted_.clear();
  groups_.insert(groups_.end(), new_groups_.begin(), new_groups_.end());
  new_groups_.clear();
}

bool& Engine::drives_here() {
  static thread_local bool drives = false;
  return drives;
}

bool Engine::round() {
  struct Driving {
    Driving() { drives_here() = true; }
    ~Driving() { drives_here() = false; }
  };
  const Driving driving;
  admit();
  bool moved = false;
  const auto now = Clock::now();
  if (now - looked_ > kBusyLook) {
    looked_ = now;
    std::erase_if(groups_, [](const std::weak_ptr<Group>& group) { return group.expired(); });
    for (const auto& weak : groups_)
      if (const auto group = weak.lock()) group->look(active_, waiting_ > 0);
  }
  std::unordered_set<uint64_t> queues;  // those with an earlier operation
  for (const StatePtr& state : active_) {
    const bool first = queues.insert(state->queue).second;
    moved |= state->group->step(*state, first);
  }
  std::vector<StatePtr> gone;
  std::erase_if(active_, [&](const StatePtr& state) {
    if (state->finished) gone.push_back(state);
    return state->finished.load();
  });
  if (active_.empty()) {
    const std::lock_guard lock(mutex_);
    busy_ = !submitted_.empty();
  }
  return moved;
}

void Engine::wait(Work::State& state) {
  struct Count {
    std::atomic<int>& n;
    explicit Count(std::atomic<int>& count) : n(count) { ++n; }
    ~Count() { --n; }
  };
  {
    const Count count(waiting_);
    Patience patience;
    while (!state.finished.load(std::memory_order_acquire)) {
      if (driving_.try_lock()) {
        bool moved = false;
        {
          const std::lock_guard lock(driving_, std::adopt_lock);
          moved = round();
        }
        if (moved)
          patience.reset();
        else
          patience.rest();
      } else {
        std::unique_lock lock(state.mutex);
        state.ended.wait_for(lock, std::chrono::microseconds(500), [&] { return state.finished.load(); });
      }
      check_interrupt();
    }
  }
  if (busy_ && waiting_ == 0) wake();
}

void Engine::run() {
  Patience patience;
  while (true) {
    {
      std::unique_lock lock(mutex_);
      if (!busy_ || waiting_ > 0) {
        wake_.wait_for(lock, kIdleLook, [&] { return stops_ || std::exchange(woken_, false); });
        patience.reset();
      }
      if (stops_) return;
    }
    std::unique_lock lock(driving_, std::try_to_lock);
    bool moved = false;
    if (lock) {
      moved = round();
      lock.unlock();
    }
    if (moved)
      patience.reset();
    else if (busy_)
      patience.rest();
  }
}

}  // namespace anello::dist
