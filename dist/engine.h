// What moves the operations of a process: one communication thread, or whoever waits, one at a time.
// Main entry: Engine::submit(), Engine::wait(); Work::State is an operation under way.
#pragma once

#include <anello/dist/channel.h>
#include <anello/dist/task.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

namespace anello::dist {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point then);

class Group;
class Engine;

/// An operation from its call to its end. Fields above the line belong to whoever drives the engine, those below are
/// guarded by `mutex`.
struct Work::State {
  std::shared_ptr<Group> group;
  Descriptor mine;
  uint32_t tag = 0;
  uint64_t queue = 0;                         ///< operations of one queue run one after the other
  std::function<Task(Work::State&)> program;  ///< makes the task when it is its turn
  std::optional<Channel> channel;
  Task task;
  bool ran = false;  ///< the task has ended, its last messages may still be leaving
  std::function<void()> finish;
  std::vector<Tensor> keep;     ///< memory that the task uses
  std::vector<Tensor> results;  ///< what it made
  Clock::time_point called = Clock::now(), moved = Clock::now();
  Clock::time_point asked{};  ///< when the others were last asked what they do

  // ----
  std::mutex mutex;
  std::condition_variable ended;
  std::atomic<bool> finished{false};
  std::exception_ptr error;
  Tensor* output = nullptr;  ///< where wait() puts results[0]
  std::vector<std::function<void()>> then;

  ~State() { release(); }
  /// Gives up its messages, then the memory of its task.
  void release();
  void end(std::exception_ptr failure);
};
using StatePtr = std::shared_ptr<Work::State>;

/// One for all groups that come from one create(). Any thread may submit and wait. The thread that holds `driving_`
/// moves every operation; the communication thread does while nobody who waits does.
class Engine : public std::enable_shared_from_this<Engine> {
 public:
  /// A group joins; the last one to leave ends the communication thread.
  void add(const std::shared_ptr<Group>& group);
  void leave();
  void submit(const StatePtr& state);
  void wait(Work::State& state);
  /// Runs f while nothing else uses the transports.
  template <class F>
  auto exclusively(const F& f) {
    const std::lock_guard lock(driving_);
    return f();
  }
  /// True inside a round: this thread has the transports already.
  static bool& drives_here();
  /// Starts the communication thread unless it runs.
  void start();
  void wake();
  /// Threads that wait for an operation now.
  int waiting() const { return waiting_.load(); }

 private:
  void stop();
  bool round();
  void admit();
  void run();

  std::mutex driving_;  // the transports, active_ and groups_
  std::vector<StatePtr> active_;
  std::vector<std::weak_ptr<Group>> groups_;
  Clock::time_point looked_{};

  std::mutex mutex_;  // what follows
  std::condition_variable wake_;
  std::vector<StatePtr> submitted_;
  std::vector<std::weak_ptr<Group>> new_groups_;
  std::thread thread_;
  bool stops_ = false, woken_ = false;
  std::atomic<bool> busy_{false};  // active_ is not empty
  std::atomic<int> waiting_{0}, members_{0};
};

}  // namespace anello::dist
