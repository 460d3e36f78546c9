// Walks N-dimensional strided operands in tiles and hands a kernel plain contiguous arrays.
// Main entry: run_tiles().
#pragma once

#include <anello/core/context.h>
#include <anello/core/cpu/convert.h>
#include <anello/core/cpu/plan.h>
#include <anello/core/kernels/elementwise.h>

#include <cstdint>

namespace anello::kernel {

/// Largest number of elements a tile function is called with.
inline constexpr int kTile = 1024;

/// Computes out[0, n) from the inputs' [0, n), n <= kTile, all contiguous. out may be an input's memory.
template <class C>
using TileFunction = void (*)(C* out, const C* const* in, int64_t n, const void* arguments);

/// What run_tiles() walks. Inputs without data are the number `scalar` (`int_scalar` for C = int64_t).
struct TileJob {
  const int64_t* sizes;
  int dims;
  const Operand* out;
  const Operand* in[kMaxInputs];
  int inputs;
  const void* arguments = nullptr;  ///< handed to the tile function
  double scalar = 0;
  int64_t int_scalar = 0;
  int64_t grain = 32768;  ///< elements a thread takes at a time, for a cheap function
};

/// Merges dims where all operands allow it and calls `function` for every tile, in parallel. Operands that are
/// contiguous and of type C are used in place; others are gathered and converted into a buffer of one tile, and the
/// result is converted and scattered. What a thread gets depends on the sizes alone.
template <class C>
void run_tiles(const Context& ctx, const TileJob& job, TileFunction<C> function);

extern template void run_tiles<float>(const Context&, const TileJob&, TileFunction<float>);
extern template void run_tiles<double>(const Context&, const TileJob&, TileFunction<double>);
extern template void run_tiles<int64_t>(const Context&, const TileJob&, TileFunction<int64_t>);

}  // namespace anello::kernel
