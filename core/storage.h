// Memory of tensors: an intrusively counted block with a version counter, and the caching allocator behind it.
// Main entry: Storage::allocate(), memory_stats().
#pragma once

#include <anello/core/device.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>

namespace anello {

/// Base of everything held by Ref<T>.
class RefCounted {
 public:
  RefCounted() = default;
  RefCounted(const RefCounted&) = delete;
  RefCounted& operator=(const RefCounted&) = delete;
  virtual ~RefCounted() = default;
  void retain() const { count_.fetch_add(1, std::memory_order_relaxed); }
  void release() const {
    if (count_.fetch_sub(1, std::memory_order_acq_rel) == 1) const_cast<RefCounted*>(this)->dispose();
  }
  int64_t use_count() const { return count_.load(std::memory_order_relaxed); }
  /// Retains unless the count is already zero (the object is about to go); for weak pointers under a lock.
  bool try_retain() const {
    int64_t n = count_.load(std::memory_order_relaxed);
    while (n != 0)
      if (count_.compare_exchange_weak(n, n + 1, std::memory_order_relaxed)) return true;
    return false;
  }

 protected:
  /// Called when the last reference goes; a graph node overrides it so that long chains are taken apart without
  /// recursion.
  virtual void dispose() { delete this; }

 private:
  mutable std::atomic<int64_t> count_{0};
};

/// An intrusive pointer: one word, no control block.
template <class T>
class Ref {
 public:
  Ref() = default;
  Ref(std::nullptr_t) {}
  explicit Ref(T* p) : p_(p) {
    if (p_ != nullptr) p_->retain();
  }
  Ref(const Ref& other) : Ref(other.p_) {}
  Ref(Ref&& other) noexcept : p_(std::exchange(other.p_, nullptr)) {}
  template <class U>
  requires std::is_convertible_v<U*, T*> Ref(const Ref<U>& other) : Ref(other.get()) {}
  template <class U>
  requires std::is_convertible_v<U*, T*> Ref(Ref<U>&& other)
  noexcept : p_(other.detach()) {}
  ~Ref() {
    if (p_ != nullptr) p_->release();
  }
  Ref& operator=(Ref other) noexcept {
    std::swap(p_, other.p_);
    return *this;
  }
  T* get() const { return p_; }
  T* operator->() const { return p_; }
  T& operator*() const { return *p_; }
  explicit operator bool() const { return p_ != nullptr; }
  /// Gives the pointer away with its count.
  T* detach() { return std::exchange(p_, nullptr); }
  /// Takes a pointer whose count is already ours.
  static Ref adopt(T* p) {
    Ref r;
    r.p_ = p;
    return r;
  }
  friend bool operator==(const Ref& a, const Ref& b) { return a.p_ == b.p_; }

 private:
  T* p_ = nullptr;
};

template <class T, class... Args>
Ref<T> make_ref(Args&&... args) {
  return Ref<T>(new T(std::forward<Args>(args)...));
}

/// A block of memory on a device, shared by all views of it.
class Storage final : public RefCounted {
 public:
  /// `bytes` of uninitialised memory, 64-byte aligned, from the device's caching allocator. Raises OutOfMemoryError.
  static Ref<Storage> allocate(size_t bytes, Device device);
  /// Memory owned by somebody else; `release` is called once when the last tensor on it goes (from any thread).
  static Ref<Storage> external(void* data, size_t bytes, Device device, std::function<void()> release,
                               bool writable = true);
  ~Storage() override;

  void* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  Device device() const { return device_; }
  bool writable() const { return writable_; }

  /// Number of in-place changes so far, shared by all views. Autograd compares it with the one it saved.
  uint64_t version() const { return version_.load(std::memory_order_relaxed); }
  void bump_version() { version_.fetch_add(1, std::memory_order_relaxed); }
  /// Number of in-place changes that autograd recorded: tensors from before the last one have an outdated history.
  uint64_t history() const { return history_.load(std::memory_order_relaxed); }
  void bump_history() { history_.fetch_add(1, std::memory_order_relaxed); }

 private:
  Storage(void* data, size_t bytes, Device device, std::function<void()> release, bool writable);
  void* data_;
  size_t bytes_;
  std::atomic<uint64_t> version_{0}, history_{0};
  std::function<void()> release_;  // empty: the allocator's
  Device device_;
  bool writable_;
};

struct MemoryStats {
  int64_t current = 0;   ///< bytes in tensors and workspaces now
  int64_t peak = 0;      ///< largest `current` since the start or the last reset_peak_memory()
  int64_t reserved = 0;  ///< bytes taken from the system, in use or cached
};
MemoryStats memory_stats(Device device = cpu);
void reset_peak_memory(Device device = cpu);
/// Gives cached blocks back to the system.
void empty_cache(Device device = cpu);

namespace detail {
/// Raw blocks of the CPU's caching allocator; allocate gives null when there is no memory.
void* cpu_allocate(size_t bytes);
void cpu_release(void* memory, size_t bytes);
}  // namespace detail

}  // namespace anello
