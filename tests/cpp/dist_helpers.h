// Groups of ranks that are threads of this process.
// Main entry: run_ranks(size, f), which gives each rank's communicator to f.
#pragma once

#include "catch.h"

#include <anello/dist/communicator.h>

#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace dist_tests {

using anello::dist::Communicator;

/// Runs f(communicator) as each rank of a group of threads; the errors of all ranks, "" where there was none. A rank's
/// communicator goes when its f has ended. Catch2's macros belong to the main thread: f throws what is wrong.
inline std::vector<std::string> errors_of_ranks(int size, const std::function<void(Communicator&)>& f,
                                                double stall_timeout = 20, const std::vector<int>& hosts = {}) {
  auto transports = anello::dist::local_transports(size, hosts);
  std::vector<std::string> errors(static_cast<size_t>(size));
  std::vector<std::thread> threads;
  for (int r = 0; r < size; ++r)
    threads.emplace_back(
        [&f, &errors, stall_timeout, r, transport = std::move(transports[static_cast<size_t>(r)])]() mutable {
          try {
            const auto group = Communicator::create(std::move(transport));
            group->set_stall_timeout(stall_timeout);
            f(*group);
          } catch (const std::exception& e) {
            errors[static_cast<size_t>(r)] = e.what();
          }
        });
  for (std::thread& t : threads) t.join();
  return errors;
}

/// errors_of_ranks() of something that must work. Under mpirun the ranks are this job's processes: groups of another
/// size are left out then (tests/dist/test_mpi.py runs the tests with several sizes).
inline void run_ranks(int size, const std::function<void(Communicator&)>& f, const std::vector<int>& hosts = {}) {
  if (anello::dist::launched()) {
    const auto all = anello::dist::world();
    if (all->size() != size || !hosts.empty()) return;
    const auto group = all->split(0);
    group->set_stall_timeout(60);
    f(*group);
    group->barrier();
    return;
  }
  const std::vector<std::string> errors = errors_of_ranks(size, f, 20, hosts);
  for (size_t r = 0; r < errors.size(); ++r) {
    INFO("rank " << r << " of " << size);
    REQUIRE(errors[r] == "");
  }
}

/// For use inside a rank.
inline void expect(bool ok, const std::string& what) {
  if (!ok) throw std::runtime_error("expected " + what);
}

inline const int kSizes[] = {1, 2, 3, 4, 5, 8};

}  // namespace dist_tests
