// The kernel that combines the values of several ranks, beside scalar formulas, for every dtype and op.
// Main entry: tag [combine].
#include "catch.h"

#include <anello/core/tensor.h>
#include <anello/dist/reduce.h>

#include <cmath>
#include <limits>

using namespace anello;
using namespace anello::dist;

namespace {

constexpr DType kAll[] = {bool_, uint8, int8, int16, int32, int64, float16, bfloat16, float32, float64};
constexpr ReduceOp kOps[] = {ReduceOp::sum, ReduceOp::min, ReduceOp::max, ReduceOp::product};

Tensor values_of(int source, int64_t n, DType dtype) {
  std::vector<double> values;
  for (int64_t i = 0; i < n; ++i) values.push_back(std::sin(static_cast<double>(i * 3 + source)) * 9);
  return copy_as(from_vector(values, {n}), dtype);
}
double formula(ReduceOp op, double a, double b) {
  if (op == ReduceOp::min) return std::min(a, b);
  if (op == ReduceOp::max) return std::max(a, b);
  return op == ReduceOp::product ? a * b : a + b;
}
/// In the type that the contract names: float32 for 16 bits, else the dtype.
double rounded(double value, DType dtype) {
  if (dtype == float64) return value;
  return is_floating_point(dtype) ? static_cast<double>(static_cast<float>(value)) : value;
}

}  // namespace

TEST_CASE("combining is the formula, in the order of the sources, rounded once", "[combine]") {
  for (DType dtype : kAll)
    for (ReduceOp op : kOps) {
      if (dtype == bool_ && op == ReduceOp::sum) continue;
      for (int count : {1, 2, 3, 5})
        for (int64_t n : {0, 1, 7, 64, 131, 5003}) {
          std::vector<Tensor> tensors;
          std::vector<const void*> sources;
          std::vector<std::vector<double>> numbers;
          for (int s = 0; s < count; ++s) {
            tensors.push_back(values_of(s, n, dtype));
            sources.push_back(tensors.back().raw_data());
            numbers.push_back(tensors.back().to_vector<double>());
          }
          std::vector<double> want(static_cast<size_t>(n));
          for (size_t i = 0; i < want.size(); ++i) {
            want[i] = numbers[0][i];
            for (size_t s = 1; s < numbers.size(); ++s) want[i] = rounded(formula(op, want[i], numbers[s][i]), dtype);
          }
          std::vector<int64_t> wrapped(want.begin(), want.end());
          const Tensor expected = is_floating_point(dtype) ? copy_as(from_vector(want, {n}), dtype)
                                                           : copy_as(from_vector(wrapped, {n}), dtype);
          // Into one of the sources and into other memory at once.
          const Tensor other = empty({n}, dtype);
          void* const destinations[] = {tensors.back().raw_data(), other.raw_data()};
          reduce_to_all({dtype, op, 1, 1, 1}, destinations, 2, sources.data(), count, n);
          INFO(op << " of " << count << " times " << n << ' ' << dtype);
          REQUIRE(tensors.back().to_vector<double>() == expected.to_vector<double>());
          REQUIRE(other.to_vector<double>() == expected.to_vector<double>());
        }
    }
}

TEST_CASE("integers wrap, NaN wins min and max", "[combine]") {
  const Tensor a = full({70}, 100, int8), b = full({70}, 100, int8);
  const void* sources[] = {a.raw_data(), b.raw_data()};
  reduce({int8, ReduceOp::sum, 1, 1, 1}, a.raw_data(), sources, 2, 70);
  for (double v : a.to_vector<double>()) REQUIRE(v == -56);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (DType dtype : {float16, bfloat16, float32, float64})
    for (ReduceOp op : {ReduceOp::min, ReduceOp::max})
      for (int place : {0, 1}) {
        const Tensor x = full({70}, place == 0 ? nan : 1.0, dtype), y = full({70}, place == 1 ? nan : 1.0, dtype);
        const void* both[] = {x.raw_data(), y.raw_data()};
        reduce({dtype, op, 1, 1, 1}, x.raw_data(), both, 2, 70);
        for (double v : x.to_vector<double>()) REQUIRE(std::isnan(v));
      }
}

TEST_CASE("scales and the divisor come before the one rounding", "[combine]") {
  for (DType dtype : {float16, bfloat16, float32, float64})
    for (int divisor : {1, 2, 3, 4, 7}) {
      const Tensor x = values_of(0, 100, dtype), y = values_of(1, 100, dtype), out = empty({100}, dtype);
      const void* sources[] = {x.raw_data(), y.raw_data()};
      reduce({dtype, ReduceOp::average, 0.5, 8, divisor}, out.raw_data(), sources, 2, 100);  // powers of two: exact
      const std::vector<double> a = x.to_vector<double>(), b = y.to_vector<double>(), got = out.to_vector<double>();
      std::vector<double> want;
      for (size_t i = 0; i < a.size(); ++i)
        want.push_back(rounded(rounded(a[i] * 0.5 + b[i] * 0.5, dtype) * 8 / divisor, dtype));
      INFO(dtype << " / " << divisor);
      REQUIRE(got == copy_as(from_vector(want, {100}), dtype).to_vector<double>());
    }
}
