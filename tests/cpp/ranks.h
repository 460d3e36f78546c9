// Ranks as threads of the test: each runs the same function with its communicator.
// Main entry: on_ranks(), which gives what each rank returned; run_ranks() for functions that return nothing.
#pragma once

#include <anello/dist/communicator.h>

#include <exception>
#include <memory>
#include <thread>
#include <vector>

namespace support {

using anello::dist::Communicator;
using CommunicatorPtr = std::shared_ptr<Communicator>;

/// f(communicator) on `size` threads; the results by rank. Assertions belong outside of f: they are not thread-safe.
/// The exception of the lowest rank that has one is raised here.
template <class F>
auto on_ranks(int size, const F& f, const std::vector<int>& hosts = {}) {
  using Result = decltype(f(std::declval<const CommunicatorPtr&>()));
  const auto transports = anello::dist::local_transports(size, hosts);
  std::vector<Result> results(static_cast<size_t>(size));
  std::vector<std::exception_ptr> errors(static_cast<size_t>(size));
  std::vector<std::thread> threads;
  for (size_t r = 0; r < results.size(); ++r)
    threads.emplace_back([&, r] {
      try {
        const CommunicatorPtr communicator = Communicator::create(transports[r]);
        communicator->set_stall_timeout(20);
        results[r] = f(communicator);
      } catch (...) {
        errors[r] = std::current_exception();
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors)
    if (error) std::rethrow_exception(error);
  return results;
}

template <class F>
void run_ranks(int size, const F& f) {
  on_ranks(size, [&](const CommunicatorPtr& communicator) {
    f(communicator);
    return 0;
  });
}

}  // namespace support
