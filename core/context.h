// What a kernel receives besides its parameters: threads, scratch memory, a stream, and a place for an error text.
// Main entry: Context::parallel_for. Plain function pointers, so that a plug-in needs no symbol of libanello.
#pragma once

#include <atomic>
#include <cstdarg>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <mutex>
#include <new>

namespace anello {

/// The result of a kernel; anything but ok has written a text into Context::message.
enum class Status : int32_t { ok, failed, value_error, shape_error, index_error, dtype_error, out_of_memory };

struct Context {
  void* stream = nullptr;  ///< the device's stream; null on the CPU
  void* pool = nullptr;    ///< handed back to `run`
  /// Runs task(arg, chunk) for every chunk in [0, chunks), on any threads, and returns when all are done.
  void (*run)(void* pool, int64_t chunks, void (*task)(void* arg, int64_t chunk), void* arg) = nullptr;
  void* (*allocate)(size_t bytes) =
      nullptr;  ///< scratch memory of this device, 64-byte aligned, null when there is none left
  void (*release)(void* memory, size_t bytes) = nullptr;
  char* message = nullptr;  ///< room for message_size characters
  size_t message_size = 0;

  /// Calls f(begin, end) over [0, n) in pieces of `grain` (the last may be shorter), in parallel. The partition depends
  /// on n and grain alone, never on the number of threads. An exception of f is raised here after all pieces ended.
  template <class F>
  void parallel_for(int64_t n, int64_t grain, const F& f) const {
    if (n <= 0) return;
    if (grain < 1) grain = 1;
    const int64_t chunks = (n + grain - 1) / grain;
    if (chunks == 1 || run == nullptr) {
      for (int64_t c = 0; c < chunks; ++c) f(c * grain, c * grain + grain < n ? c * grain + grain : n);
      return;
    }
    struct Job {
      const F& f;
      int64_t n, grain;
      std::atomic<bool> failed{false};
      std::exception_ptr error{};
      std::mutex mutex{};
    } job{f, n, grain};
    run(
        pool, chunks,
        [](void* arg, int64_t chunk) {
          Job& j = *static_cast<Job*>(arg);
          if (j.failed.load(std::memory_order_relaxed)) return;
          const int64_t begin = chunk * j.grain, end = begin + j.grain < j.n ? begin + j.grain : j.n;
          try {
            j.f(begin, end);
          } catch (...) {
            const std::lock_guard lock(j.mutex);
            if (!j.failed.exchange(true)) j.error = std::current_exception();
          }
        },
        &job);
    if (job.error) std::rethrow_exception(job.error);
  }

  /// Writes the error text (printf form) and returns the status, for `return ctx.error(Status::value_error, ...)`.
  __attribute__((format(printf, 3, 4))) Status error(Status status, const char* format, ...) const {
    if (message != nullptr && message_size > 0) {
      va_list args;
      va_start(args, format);
      std::vsnprintf(message, message_size, format, args);
      va_end(args);
    }
    return status;
  }
};

/// Scratch memory of a kernel for the length of a scope. Raises std::bad_alloc, which the kernel's wrapper turns into
/// Status::out_of_memory.
template <class T>
class Scratch {
 public:
  Scratch(const Context& ctx, int64_t count) : ctx_(ctx), bytes_(static_cast<size_t>(count) * sizeof(T)) {
    if (count > 0) data_ = static_cast<T*>(ctx.allocate(bytes_));
    if (count > 0 && data_ == nullptr) throw std::bad_alloc();
  }
  ~Scratch() {
    if (data_ != nullptr) ctx_.release(data_, bytes_);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  T* data() const { return data_; }
  T& operator[](int64_t i) const { return data_[i]; }

 private:
  const Context& ctx_;
  size_t bytes_;
  T* data_ = nullptr;
};

}  // namespace anello
