// The thread pool: chunks are claimed from one atomic ticket; who runs a chunk never changes what is computed.
// Main entry: cpu_context(), whose `run` is the pool's.
#include <anello/core/error.h>
#include <anello/core/parallel.h>
#include <anello/core/storage.h>

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace anello {
namespace detail {
std::mutex& cpu_allocator_mutex();
}
namespace {

constexpr int kSpins = 4000;  // about 50-100 us: longer than the gap between two kernels of a training step
constexpr int64_t kMaxChunks = int64_t{1} << 30;
constexpr uint64_t kClosed = uint64_t{1} << 31;  // a ticket beyond any chunk

thread_local bool inside_task = false;

inline void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

/// Spins for a while, then sleeps, until value differs from `old`.
template <class T>
T wait_change(std::atomic<T>& value, T old) {
  for (int i = 0; i < kSpins; ++i) {
    const T now = value.load(std::memory_order_acquire);
    if (now != old) return now;
    pause();
  }
  value.wait(old, std::memory_order_acquire);
  return value.load(std::memory_order_acquire);
}

class Pool {
 public:
  explicit Pool(int threads) : threads_(threads) {}
  ~Pool() { stop(); }

  void run(int64_t chunks, void (*task)(void*, int64_t), void* arg) {
    std::unique_lock lock(submit_, std::try_to_lock);
    // Nested, busy with another caller's job, or nothing to share: run here. The partition is the same.
    if (!lock.owns_lock() || inside_task || threads_ == 1 || chunks > kMaxChunks) {
      for (int64_t c = 0; c < chunks; ++c) task(arg, c);
      return;
    }
    if (workers_.empty()) start();
    // Close the ticket first: a late worker of the job before must not take the new job's fields for its own. Whoever
    // reads one of these (acquire) also sees the closed ticket when it looks again.
    const uint64_t generation = ++generation_;
    ticket_.store(generation << 32 | kClosed, std::memory_order_release);
    task_.store(task, std::memory_order_release);
    arg_.store(arg, std::memory_order_release);
    chunks_.store(chunks, std::memory_order_release);
    done_.store(0, std::memory_order_release);
    ticket_.store(generation << 32, std::memory_order_release);
    announced_.store(generation, std::memory_order_release);
    announced_.notify_all();
    inside_task = true;
    work();
    inside_task = false;
    for (int64_t done = done_.load(std::memory_order_acquire); done != chunks;) done = wait_change(done_, done);
  }

  void stop() {
    stopping_.store(true);
    announced_.store(++generation_);
    announced_.notify_all();
    for (std::thread& w : workers_) w.join();
    workers_.clear();
    stopping_.store(false);
  }

  /// Between jobs only; the workers start again with the next job.
  void resize(int threads) {
    const std::lock_guard lock(submit_);
    stop();
    threads_.store(threads);
  }
  int threads() const { return threads_.load(std::memory_order_relaxed); }
  std::mutex& submit_mutex() { return submit_; }

 private:
  void start() {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);  // signals belong to the caller's threads
    const uint64_t seen = announced_.load();
    for (int i = 1; i < threads_; ++i) workers_.emplace_back([this, seen] { loop(seen); });
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }

  void loop(uint64_t seen) {
    inside_task = true;
    for (;;) {
      seen = wait_change(announced_, seen);
      if (stopping_.load()) return;
      work();
    }
  }

  /// Claims and runs chunks until the present job has none left.
  void work() {
    for (;;) {
      const uint64_t ticket = ticket_.fetch_add(1, std::memory_order_acq_rel);
      const auto task = task_.load(std::memory_order_acquire);
      void* const arg = arg_.load(std::memory_order_acquire);
      const int64_t chunks = chunks_.load(std::memory_order_acquire);
      const auto chunk = static_cast<int64_t>(ticket & 0xffffffffu);
      // A valid chunk keeps its job open until it is done, so fields and ticket belong together while the job is still
      // the ticket's. A ticket of a job that has ended is worth nothing.
      if (chunk >= chunks || (ticket_.load(std::memory_order_acquire) >> 32) != (ticket >> 32)) return;
      task(arg, chunk);
      if (done_.fetch_add(1, std::memory_order_acq_rel) + 1 == chunks) done_.notify_all();
    }
  }

  std::mutex submit_;  // one job at a time
  std::vector<std::thread> workers_;
  std::atomic<int> threads_;
  std::atomic<bool> stopping_{false};
  uint64_t generation_ = 0;
  alignas(64) std::atomic<uint64_t> ticket_{0};  // generation << 32 | next chunk
  alignas(64) std::atomic<uint64_t> announced_{0};
  alignas(64) std::atomic<int64_t> done_{0};
  std::atomic<void (*)(void*, int64_t)> task_{nullptr};
  std::atomic<void*> arg_{nullptr};
  std::atomic<int64_t> chunks_{0};
};

int env_int(const char* variable) {
  const char* text = std::getenv(variable);
  if (text == nullptr) return 0;
  const std::string_view view(text);
  int value = 0;
  const auto [end, error] = std::from_chars(view.begin(), view.end(), value);
  return error == std::errc() && end == view.end() && value > 0 ? value : 0;
}

/// CPUs that the container's quota pays for, rounded up; 0 when there is no quota.
int quota_cpus() {
  double quota = 0, period = 0;
  std::string text;
  if (std::ifstream v2("/sys/fs/cgroup/cpu.max"); v2 >> text >> period && text != "max")
    quota = std::atof(text.c_str());
  else if (std::ifstream q("/sys/fs/cgroup/cpu/cpu.cfs_quota_us"), p("/sys/fs/cgroup/cpu/cpu.cfs_period_us"); q && p)
    q >> quota, p >> period;
  return quota > 0 && period > 0 ? static_cast<int>(std::ceil(quota / period)) : 0;
}

constexpr int kMostThreads = 4096;

int default_threads() {
  if (const char* text = std::getenv("ANELLO_NUM_THREADS"); text != nullptr && *text != 0) {
    const int wanted = env_int("ANELLO_NUM_THREADS");
    check<ValueError>(wanted >= 1 && wanted <= kMostThreads, "threads", "ANELLO_NUM_THREADS is '", text,
                      "'. Hint: a whole number from 1 to ", kMostThreads, '.');
    return wanted;
  }
  int count = std::max(1u, std::thread::hardware_concurrency());
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) count = std::min(count, CPU_COUNT(&set));
  if (const int quota = quota_cpus()) count = std::min(count, quota);
  // Ranks on this host, as Open MPI, MPICH/Hydra and Slurm tell.
  for (const char* variable : {"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "SLURM_NTASKS_PER_NODE"})
    if (const int ranks = env_int(variable)) {
      count = std::min(count, static_cast<int>(std::thread::hardware_concurrency()) / ranks);
      break;
    }
  return std::max(count, 1);
}

std::atomic<Pool*> the_pool{nullptr};
std::once_flag pool_once;

/// Never destroyed: sleeping workers end with the process, and no static destructor has to join them.
Pool& pool() {
  std::call_once(pool_once, [] {
    the_pool.store(new Pool(default_threads()));
    // Nothing may be locked in the child by a thread that it does not have; its pool starts anew.
    pthread_atfork([] { the_pool.load()->submit_mutex().lock(), detail::cpu_allocator_mutex().lock(); },
                   [] { detail::cpu_allocator_mutex().unlock(), the_pool.load()->submit_mutex().unlock(); },
                   [] {
                     detail::cpu_allocator_mutex().unlock();
                     the_pool.store(new Pool(the_pool.load()->threads()));  // the old one has no threads here: leave it
                   });
  });
  return *the_pool.load(std::memory_order_acquire);
}

void run_on_pool(void*, int64_t chunks, void (*task)(void*, int64_t), void* arg) { pool().run(chunks, task, arg); }

}  // namespace

int num_threads() { return pool().threads(); }

void set_num_threads(int count) {
  check<ValueError>(count >= 1, "set_num_threads", "count is ", count, ". Hint: use 1 or more.");
  check<ValueError>(count <= kMostThreads, "set_num_threads", "count is ", count, ", more than ", kMostThreads, ".");
  if (count != pool().threads()) pool().resize(count);
}

const Context& cpu_context() {
  static thread_local char message[512];
  static thread_local const Context context = [] {
    pool();  // a wrong setting is told here: nothing may be thrown once a kernel runs
    Context c;
    c.run = &run_on_pool;
    c.allocate = &detail::cpu_allocate;
    c.release = &detail::cpu_release;
    c.message = message;
    c.message_size = sizeof message;
    return c;
  }();
  return context;
}

}  // namespace anello
