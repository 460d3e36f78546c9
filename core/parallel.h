// The one thread pool of the process.
// Main entry: parallel_for(n, grain, f), set_num_threads().
#pragma once

#include <anello/core/context.h>

#include <cstdint>

namespace anello {

/// Threads that work on one call, the caller included. Default: ANELLO_NUM_THREADS if set, else
/// min(affinity mask, container CPU quota, cores / ranks on this host).
int num_threads();
/// Sets it for all later calls; raises ValueError below 1. Results do not depend on it, to the last bit.
void set_num_threads(int count);

/// The CPU's kernel context: pool, scratch memory from the CPU allocator, a message buffer of the calling thread.
const Context& cpu_context();

/// Calls f(begin, end) over [0, n) in pieces of `grain`, in parallel; blocks until all are done. The partition depends
/// on n and grain alone. Called from inside a piece it runs inline. The first exception of f is raised here.
template <class F>
void parallel_for(int64_t n, int64_t grain, const F& f) {
  cpu_context().parallel_for(n, grain, f);
}

}  // namespace anello
