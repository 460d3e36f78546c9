// Asks the host program now and then whether the user wants to stop.
// Main entry: check_interrupt().
#include <anello/core/interrupt.h>

#include <atomic>
#include <chrono>

namespace anello {
namespace {
std::atomic<void (*)()> interrupt_check{nullptr};
}

void set_interrupt_check(void (*check)()) { interrupt_check.store(check); }

void check_interrupt() {
  using Clock = std::chrono::steady_clock;
  static thread_local Clock::time_point next{};
  void (*const check)() = interrupt_check.load(std::memory_order_relaxed);
  if (check == nullptr) return;
  const auto now = Clock::now();
  if (now < next) return;
  next = now + std::chrono::milliseconds(50);
  check();
}

}  // namespace anello
