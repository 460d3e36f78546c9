// The two hooks that others subscribe to; autograd knows nothing of who does.
// Main entry: Tensor::on_grad_ready(), on_backward_end().
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace anello {

/// Keeps a hook's registration; remove() ends it. Letting the handle go does not. Copies name the same registration.
class HookHandle {
 public:
  HookHandle() = default;
  explicit HookHandle(std::function<void()> remove)
      : remove_(std::make_shared<std::function<void()>>(std::move(remove))) {}
  /// Idempotent; may be called from inside the hook.
  void remove() const {
    if (remove_ && *remove_) {
      const auto run = std::move(*remove_);
      *remove_ = nullptr;
      run();
    }
  }

 private:
  std::shared_ptr<std::function<void()>> remove_;
};

/// How an outermost backward() ended.
struct BackwardStatus {
  bool ok = true;
  std::string error;  ///< the message when it failed
};
/// Calls hook at the end of every outermost backward() of any thread, also of one that fails (then with ok == false and
/// before the error is raised); not for grad(outputs, inputs). An exception of a hook is raised by backward().
HookHandle on_backward_end(std::function<void(const BackwardStatus&)> hook);

}  // namespace anello
