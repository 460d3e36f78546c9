// The thread pool: every chunk once, same partition for any thread count, exceptions, nesting, fork.
// Main entry: tag [parallel].
#include "catch.h"

#include <anello/core/error.h>
#include <anello/core/parallel.h>
#include <anello/core/tensor.h>

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <set>
#include <thread>

using namespace anello;

namespace {
/// Restores the thread count at the end of a test.
struct Threads {
  explicit Threads(int n) { set_num_threads(n); }
  ~Threads() { set_num_threads(before); }
  int before = num_threads();
};
}  // namespace

TEST_CASE("parallel_for runs every index once", "[parallel]") {
  for (int threads : {1, 2, 3, 8}) {
    const Threads guard(threads);
    for (int64_t n : {0, 1, 7, 64, 1000}) {
      for (int64_t grain : {1, 3, 64, 5000}) {
        std::vector<std::atomic<int>> seen(static_cast<size_t>(n));
        std::atomic<bool> too_long{false};  // Catch's macros belong to one thread
        parallel_for(n, grain, [&](int64_t begin, int64_t end) {
          if (end - begin > grain) too_long = true;
          for (int64_t i = begin; i < end; ++i) ++seen[static_cast<size_t>(i)];
        });
        REQUIRE_FALSE(too_long);
        for (const auto& count : seen) REQUIRE(count == 1);
      }
    }
  }
}

TEST_CASE("the partition does not depend on the number of threads", "[parallel]") {
  std::vector<std::set<std::pair<int64_t, int64_t>>> partitions;
  for (int threads : {1, 2, 5}) {
    const Threads guard(threads);
    std::mutex mutex;
    std::set<std::pair<int64_t, int64_t>> pieces;
    parallel_for(103, 10, [&](int64_t begin, int64_t end) {
      const std::lock_guard lock(mutex);
      pieces.emplace(begin, end);
    });
    partitions.push_back(pieces);
  }
  REQUIRE(partitions[0].size() == 11);
  REQUIRE(partitions[0] == partitions[1]);
  REQUIRE(partitions[0] == partitions[2]);
}

TEST_CASE("many short jobs in a row lose no chunk", "[parallel]") {
  const Threads guard(4);
  for (int round = 0; round < 3000; ++round) {
    std::atomic<int64_t> sum{0};
    parallel_for(17, 1, [&](int64_t begin, int64_t) { sum += begin; });
    REQUIRE(sum == 136);
  }
}

TEST_CASE("jobs of changing sizes run every chunk once, also while workers come late", "[parallel]") {
  const Threads guard(6);  // more than most test machines have: workers are often caught between two jobs
  std::vector<std::atomic<int>> seen(64);
  for (int round = 0; round < 40000; ++round) {
    const int64_t chunks = 2 + (round * 7) % 63;
    for (int64_t i = 0; i < chunks; ++i) seen[static_cast<size_t>(i)].store(0, std::memory_order_relaxed);
    parallel_for(chunks, 1, [&](int64_t begin, int64_t) { ++seen[static_cast<size_t>(begin)]; });
    for (int64_t i = 0; i < chunks; ++i)
      if (seen[static_cast<size_t>(i)] != 1)
        FAIL("round " << round << ", chunk " << i << " ran " << seen[static_cast<size_t>(i)]);
  }
}

TEST_CASE("an exception in a piece reaches the caller and the pool lives on", "[parallel]") {
  const Threads guard(3);
  const auto failing = [] {
    parallel_for(100, 1, [](int64_t begin, int64_t) { check<ValueError>(begin != 57, "piece", "57"); });
  };
  REQUIRE_THROWS_AS(failing(), ValueError);
  std::atomic<int> count{0};
  parallel_for(100, 1, [&](int64_t, int64_t) { ++count; });
  REQUIRE(count == 100);
}

TEST_CASE("nested and concurrent calls finish", "[parallel]") {
  const Threads guard(3);
  std::atomic<int> count{0};
  parallel_for(8, 1, [&](int64_t, int64_t) { parallel_for(8, 1, [&](int64_t, int64_t) { ++count; }); });
  REQUIRE(count == 64);
  std::vector<std::thread> callers;
  for (int i = 0; i < 4; ++i)
    callers.emplace_back([&] {
      for (int k = 0; k < 50; ++k) parallel_for(20, 1, [&](int64_t, int64_t) { ++count; });
    });
  for (auto& t : callers) t.join();
  REQUIRE(count == 64 + 4 * 50 * 20);
}

TEST_CASE("thread counts below one are refused", "[parallel]") {
  REQUIRE_THROWS_WITH(set_num_threads(0), contains_text("[set_num_threads]") && contains_text("count is 0"));
}

#if !defined(__SANITIZE_THREAD__)  // the sanitizer itself does not survive a fork of a threaded process
TEST_CASE("the pool works in a forked child", "[parallel]") {
  const Threads guard(3);
  std::atomic<int> warm{0};
  parallel_for(50, 1, [&](int64_t, int64_t) { ++warm; });  // the workers run
  const pid_t child = fork();
  if (child == 0) {
    std::atomic<int> count{0};
    parallel_for(50, 1, [&](int64_t, int64_t) { ++count; });
    _exit(count == 50 && num_threads() == 3 ? 0 : 1);
  }
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  REQUIRE(WEXITSTATUS(status) == 0);
}
#endif
