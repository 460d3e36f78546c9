// What several tests need: reproducible values, tolerances by dtype, comparison over thread counts.
// Main entry: sample(), require_close(), require_same_bits().
#pragma once

#include <anello/core/parallel.h>
#include <anello/core/random.h>
#include <anello/core/tensor.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "catch.h"

namespace support {

/// Values in [low, high) that depend on the seed and the place alone.
inline anello::Tensor sample(const anello::Shape& shape, uint64_t seed, anello::DType dtype = anello::float64,
                             double low = -2, double high = 2) {
  std::vector<double> values(static_cast<size_t>(anello::numel(shape)));
  for (size_t i = 0; i < values.size(); ++i) {
    const auto bits = anello::philox(seed, 77, i);
    values[i] = low + (high - low) * anello::uniform_double(bits[0], bits[1]);
  }
  return anello::copy_as(anello::from_vector(values, shape), dtype);
}
inline anello::Tensor leaf(const anello::Shape& shape, uint64_t seed, double low = -2, double high = 2) {
  return sample(shape, seed, anello::float64, low, high).set_requires_grad();
}
inline std::vector<double> values(const anello::Tensor& t) { return t.to_vector<double>(); }

/// Relative to the largest value: one rounding of the result, and of each operand, in this dtype.
inline double tolerance(anello::DType dtype) {
  if (dtype == anello::float64) return 1e-12;
  if (dtype == anello::float32) return 2e-6;
  return dtype == anello::float16 ? 2e-3 : 1.6e-2;
}

inline void require_close(const std::vector<double>& a, const std::vector<double>& b, double allowed) {
  REQUIRE(a.size() == b.size());
  double largest = 1;
  for (double v : b)
    if (std::isfinite(v)) largest = std::max(largest, std::abs(v));
  for (size_t i = 0; i < a.size(); ++i) {
    const bool same = a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i]));
    if (same || std::abs(a[i] - b[i]) <= allowed * largest) continue;
    INFO("element " << i << ": " << a[i] << ", expected " << b[i]);
    REQUIRE(a[i] == b[i]);
  }
}
inline void require_close(const anello::Tensor& a, const anello::Tensor& b, double allowed) {
  REQUIRE(a.shape() == b.shape());
  require_close(values(a), values(b), allowed);
}

/// f() gives the same bits with 1, 2 and 3 threads; f returns a vector of contiguous tensors.
template <class F>
void require_same_bits(const F& f) {
  const int before = anello::num_threads();
  std::vector<anello::Tensor> first;
  for (int threads : {1, 2, 3}) {
    anello::set_num_threads(threads);
    const std::vector<anello::Tensor> now = f();
    if (threads == 1) first = now;
    for (size_t i = 0; i < now.size(); ++i) {
      INFO("result " << i << " with " << threads << " threads");
      REQUIRE(now[i].nbytes() == first[i].nbytes());
      const bool same = std::memcmp(now[i].raw_data(), first[i].raw_data(), now[i].nbytes()) == 0;
      REQUIRE(same);
    }
  }
  anello::set_num_threads(before);
}

}  // namespace support
