// The arithmetic of reductions: what several ranks gave, combined element by element in their order.
// Main entry: reduce(), reduce_to_all().
#pragma once

#include <anello/core/dtype.h>
#include <anello/dist/communicator.h>

#include <cstdint>

namespace anello::dist {

/// How values are combined: acc = op over sources of (prescale * source), then acc * postscale / divisor, rounded once.
/// Floats of 16 bits are converted to float32 first. Integers wrap; NaN wins min and max.
struct Reduction {
  DType dtype = DType::float32;
  ReduceOp op = ReduceOp::sum;
  double prescale = 1, postscale = 1;
  int divisor = 1;
};

/// destination[i] = combination of sources[0][i], sources[1][i], ... in this order; destination may be one of them.
/// Memory is contiguous. Runs on the calling thread.
void reduce(const Reduction& how, void* destination, const void* const* sources, int count, int64_t n);

/// The same, written to every one of the destinations; a destination may be a source.
void reduce_to_all(const Reduction& how, void* const* destinations, int destination_count, const void* const* sources,
                   int source_count, int64_t n);

/// Raises DTypeError for what has no meaning: the average or a scaled integer, the sum of bools.
void check_reduction(std::string_view where, const Reduction& how);

}  // namespace anello::dist
