// A collective operation as straight code that never blocks: a C++20 coroutine that pauses where it would wait.
// Main entry: Task, pause().
#pragma once

#include <coroutine>
#include <exception>
#include <utility>

namespace anello::dist {

/// A coroutine that starts with the first step(). Another Task awaited inside it runs as part of it; an exception
/// arrives where it is awaited, or in step(). Destroying it frees what lives in its frames.
class [[nodiscard]] Task {
 public:
  struct promise_type;
  using Handle = std::coroutine_handle<promise_type>;

  /// At the end, the task that awaited this one goes on.
  struct Final {
    bool await_ready() noexcept { return false; }
    std::coroutine_handle<> await_suspend(Handle self) noexcept;
    void await_resume() noexcept {}
  };
  struct promise_type {
    promise_type* root = this;           ///< of the outermost task
    std::coroutine_handle<> innermost;   ///< the root's: what step() resumes
    std::coroutine_handle<> awaited_by;  ///< none for the root
    std::exception_ptr error;

    Task get_return_object() {
      innermost = Handle::from_promise(*this);
      return Task(Handle::from_promise(*this));
    }
    std::suspend_always initial_suspend() noexcept { return {}; }
    Final final_suspend() noexcept { return {}; }
    void return_void() {}
    void unhandled_exception() { error = std::current_exception(); }
  };

  Task() = default;
  explicit Task(Handle handle) : handle_(handle) {}
  Task(Task&& other) noexcept : handle_(std::exchange(other.handle_, {})) {}
  Task& operator=(Task&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Task() {
    if (handle_) handle_.destroy();
  }

  /// Runs to the next pause; true when it has ended. Raises what the operation raised.
  bool step() {
    handle_.promise().innermost.resume();
    if (!handle_.done()) return false;
    if (handle_.promise().error) std::rethrow_exception(handle_.promise().error);
    return true;
  }
  explicit operator bool() const { return static_cast<bool>(handle_); }

  // --- co_await task ---
  bool await_ready() const { return false; }
  std::coroutine_handle<> await_suspend(Handle caller) {
    handle_.promise().awaited_by = caller;
    handle_.promise().root = caller.promise().root;
    return handle_;
  }
  void await_resume() {
    if (handle_.promise().error) std::rethrow_exception(handle_.promise().error);
  }

 private:
  Handle handle_;
};

inline std::coroutine_handle<> Task::Final::await_suspend(Handle self) noexcept {
  const std::coroutine_handle<> next = self.promise().awaited_by;
  return next ? next : std::noop_coroutine();
}

/// `co_await pause()`: nothing to do for now; the next step() goes on from here.
struct pause {
  bool await_ready() const { return false; }
  void await_suspend(Task::Handle self) { self.promise().root->innermost = self; }
  void await_resume() const {}
};

}  // namespace anello::dist
