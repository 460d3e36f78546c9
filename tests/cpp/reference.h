// What the tests of kernels with many sizes share: random tensors, their values as doubles, and a comparison.
// Main entry: random_tensor(), doubles(), require_close(), RandomSizes.
#pragma once

#include "catch.h"

#include <anello/anello.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

namespace reference {

/// Sizes from a fixed seed.
class RandomSizes {
 public:
  explicit RandomSizes(uint32_t seed) : engine_(seed) {}
  int64_t operator()(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(engine_() % static_cast<uint32_t>(high - low + 1));
  }
  bool chance(int one_in) { return (*this)(1, one_in) == 1; }

 private:
  std::mt19937 engine_;
};

/// Multiples of 1/1000 in [-1, 1], rounded to the dtype.
inline anello::Tensor random_tensor(RandomSizes& random, const anello::Shape& shape,
                                    anello::DType dtype = anello::float64) {
  std::vector<double> values(static_cast<size_t>(anello::numel(shape)));
  for (double& v : values) v = static_cast<double>(random(-1000, 1000)) / 1000;
  return anello::copy_as(anello::from_vector(values, shape), dtype);
}

inline std::vector<double> doubles(const anello::Tensor& t) { return t.to_vector<double>(); }

/// Relative error allowed for a sum computed in the accumulation type of a dtype and rounded once.
inline double tolerance(anello::DType dtype) {
  switch (dtype) {
    case anello::float64:
      return 1e-12;
    case anello::float32:
      return 2e-5;
    case anello::float16:
      return 1e-3;
    default:
      return 8e-3;
  }
}

/// Every value within tolerance of the expected one, relative to the largest.
inline void require_close(const anello::Tensor& got, const std::vector<double>& expected, double allowed) {
  const std::vector<double> values = doubles(got);
  REQUIRE(values.size() == expected.size());
  double largest = 1, error = 0;
  for (const double v : expected) largest = std::max(largest, std::abs(v));
  for (size_t i = 0; i < values.size(); ++i) {
    const double e = std::abs(values[i] - expected[i]);
    error = e <= error ? error : e;  // NaN counts as an error
  }
  REQUIRE(error <= allowed * largest);
}

/// f() with 1, 2 and 3 threads gives the same bytes.
template <class F>
void require_same_bits(const F& f) {
  const int before = anello::num_threads();
  std::vector<std::vector<double>> results;
  for (const int threads : {1, 2, 3}) {
    anello::set_num_threads(threads);
    results.push_back(doubles(f()));
  }
  anello::set_num_threads(before);
  REQUIRE(results[0] == results[1]);
  REQUIRE(results[0] == results[2]);
}

inline constexpr anello::DType kFloats[] = {anello::float32, anello::float64, anello::bfloat16, anello::float16};

}  // namespace reference
