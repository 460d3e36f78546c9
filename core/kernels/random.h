// Parameters of the random kernels.
// Main entry: RandomParams, DropoutParams.
//
// Each kernel is a pure function of (seed, stream, element): no state, the same for any partition.
// Word w of a stream is philox(seed, stream, w / 4)[w % 4]. Element i takes word i, or words 2i (high half) and 2i + 1
// where it needs 64 bits.
#pragma once

#include <anello/core/kernels/philox.h>
#include <anello/core/plugin.h>

namespace anello {

/// out[i] for i in [0, count), contiguous. The key dtype is that of out.
struct RandomParams {
  void* out;
  DType dtype;
  int64_t count;
  uint64_t seed, stream;
  double a, b;
  int64_t low;     ///< kRandomIntegers only
  uint64_t range;  ///< kRandomIntegers only
};
/// a + (b - a) u. float32: u = uniform_float(word i); 16-bit floats: u has as many bits as their significand (11 or 8),
/// so that it does not round up to 1; float64: u = uniform_double of 64 bits.
inline constexpr KernelTag<RandomParams> kRandomUniform{"random_uniform"};
/// a + b z. Box-Muller on pairs of elements (2p, 2p + 1): r = sqrt(-2 ln u), z = r cos(2 pi v) and r sin(2 pi v); u =
/// (word 2p + 1/2) 2^-32 and v = uniform_float(word 2p + 1) for float32 and below, u = 1 - uniform_double and v =
/// uniform_double (64 bits each) for float64.
inline constexpr KernelTag<RandomParams> kRandomNormal{"random_normal"};
/// low + uniform_below(word i, range) for range up to 2^32, else low + the upper half of (64 bits times range).
inline constexpr KernelTag<RandomParams> kRandomIntegers{"random_integers"};

/// y[i] = (word i >> 8) >= threshold ? x[i] * scale : 0; contiguous. Forward and backward alike. Key: the dtype of x
/// and y.
struct DropoutParams {
  void* y;
  const void* x;
  DType dtype;
  int64_t count;
  uint64_t seed, stream;
  uint32_t threshold;  ///< p * 2^24
  double scale;
};
inline constexpr KernelTag<DropoutParams> kDropout{"dropout"};

}  // namespace anello
