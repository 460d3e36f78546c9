// Whether operations are recorded for backward, per thread.
// Main entry: NoGradGuard, EnableGradGuard.
#pragma once

namespace anello {

bool is_grad_enabled();
void set_grad_enabled(bool enabled);

/// Sets recording for a scope and restores what was there.
class GradModeGuard {
 public:
  explicit GradModeGuard(bool enabled) : before_(is_grad_enabled()) { set_grad_enabled(enabled); }
  ~GradModeGuard() { set_grad_enabled(before_); }
  GradModeGuard(const GradModeGuard&) = delete;
  GradModeGuard& operator=(const GradModeGuard&) = delete;

 private:
  bool before_;
};
/// Nothing is recorded in this scope.
class NoGradGuard : public GradModeGuard {
 public:
  NoGradGuard() : GradModeGuard(false) {}
};
/// Recorded again in this scope, inside a NoGradGuard.
class EnableGradGuard : public GradModeGuard {
 public:
  EnableGradGuard() : GradModeGuard(true) {}
};

}  // namespace anello
