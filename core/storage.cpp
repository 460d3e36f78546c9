// Storage, and the CPU's caching allocator: size classes of at most 12.5% waste, a free list each, one lock.
// Main entry: Storage::allocate(), detail::cpu_allocate().
#include <anello/core/error.h>
#include <anello/core/storage.h>

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <map>
#include <mutex>
#include <vector>

namespace anello {
namespace {

constexpr size_t kAlignment = 64;
constexpr size_t kHugePage = size_t{2} << 20;

/// Rounds up to one of eight classes an octave (and to 64 bytes), so that a freed block fits the next request of about
/// its size.
size_t size_class(size_t bytes) {
  const size_t at_least = std::max(bytes, kAlignment);
  const size_t step = std::max(std::bit_floor(at_least) / 8, kAlignment);
  return (at_least + step - 1) / step * step;
}

class CachingAllocator {
 public:
  void* allocate(size_t bytes) {
    if (bytes > (size_t{1} << 62)) return nullptr;
    const size_t size = size_class(bytes);
    {
      const std::lock_guard lock(mutex_);
      auto& list = free_[size];
      if (!list.empty()) {
        void* block = list.back();
        list.pop_back();
        count_in(size);
        return block;
      }
    }
    void* block = from_system(size);
    if (block == nullptr) {
      empty_cache();
      block = from_system(size);
      if (block == nullptr) return nullptr;
    }
    const std::lock_guard lock(mutex_);
    stats_.reserved += static_cast<int64_t>(size);
    count_in(size);
    return block;
  }

  void release(void* block, size_t bytes) {
    const size_t size = size_class(bytes);
    const std::lock_guard lock(mutex_);
    stats_.current -= static_cast<int64_t>(size);
    free_[size].push_back(block);
  }

  void empty_cache() {
    const std::lock_guard lock(mutex_);
    for (auto& [size, list] : free_) {
      stats_.reserved -= static_cast<int64_t>(size * list.size());
      for (void* block : list) std::free(block);
      list.clear();
    }
  }

  MemoryStats stats() {
    const std::lock_guard lock(mutex_);
    return stats_;
  }
  void reset_peak() {
    const std::lock_guard lock(mutex_);
    stats_.peak = stats_.current;
  }
  /// Held around fork(), so that the child never inherits it locked by a thread it does not have.
  std::mutex& mutex() { return mutex_; }

 private:
  static void* from_system(size_t size) {
    void* block = nullptr;
    if (posix_memalign(&block, size >= kHugePage ? kHugePage : kAlignment, size) != 0) return nullptr;
    if (size >= kHugePage) madvise(block, size, MADV_HUGEPAGE);  // a hint: failure changes nothing
    return block;
  }
  void count_in(size_t size) {
    stats_.current += static_cast<int64_t>(size);
    stats_.peak = std::max(stats_.peak, stats_.current);
  }

  std::mutex mutex_;
  std::map<size_t, std::vector<void*>> free_;
  MemoryStats stats_;
};

/// Never destroyed: tensors in static objects may be released after everything else.
CachingAllocator& allocator() {
  static auto* const instance = new CachingAllocator;
  return *instance;
}

void require_cpu(std::string_view op, Device device) {
  if (device.type != DeviceType::cpu) require_available(op, device);
}

}  // namespace

namespace detail {
void* cpu_allocate(size_t bytes) { return allocator().allocate(bytes); }
void cpu_release(void* memory, size_t bytes) { allocator().release(memory, bytes); }
std::mutex& cpu_allocator_mutex() { return allocator().mutex(); }
}  // namespace detail

Storage::Storage(void* data, size_t bytes, Device device, std::function<void()> release, bool writable)
    : data_(data), bytes_(bytes), release_(std::move(release)), device_(device), writable_(writable) {}

Ref<Storage> Storage::allocate(size_t bytes, Device device) {
  require_cpu("memory", device);
  void* data = detail::cpu_allocate(bytes);
  if (data == nullptr) {
    const MemoryStats stats = memory_stats(device);
    fail<OutOfMemoryError>("memory", "could not get ", bytes, " bytes on ", device, "; ", stats.current,
                           " bytes are in use, peak ", stats.peak, ". Hint: use a smaller batch.");
  }
  return Ref<Storage>(new Storage(data, bytes, device, {}, true));
}

Ref<Storage> Storage::external(void* data, size_t bytes, Device device, std::function<void()> release, bool writable) {
  // An empty function would mean "ours": give the caller's memory at least one that does nothing.
  if (!release) release = [] {};
  return Ref<Storage>(new Storage(data, bytes, device, std::move(release), writable));
}

Storage::~Storage() {
  if (release_)
    release_();
  else
    detail::cpu_release(data_, bytes_);
}

MemoryStats memory_stats(Device device) {
  require_cpu("memory_stats", device);
  return allocator().stats();
}

void reset_peak_memory(Device device) {
  require_cpu("reset_peak_memory", device);
  allocator().reset_peak();
}

void empty_cache(Device device) {
  require_cpu("empty_cache", device);
  allocator().empty_cache();
}

}  // namespace anello
