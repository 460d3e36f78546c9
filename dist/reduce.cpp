// The arithmetic of reductions, in blocks that stay in the cache.
// Main entry: reduce().
#include <anello/dist/reduce.h>

#include <algorithm>
#include <cmath>
#include <type_traits>

namespace anello::dist {
namespace {

constexpr int64_t kBlock = 1024;

template <class T>
struct Accumulator {
  using type = T;
};
template <>
struct Accumulator<Float16> {
  using type = float;
};
template <>
struct Accumulator<BFloat16> {
  using type = float;
};

template <ReduceOp op, class A>
A combine(A a, A b) {
  if constexpr (op == ReduceOp::min || op == ReduceOp::max) {
    if constexpr (std::is_floating_point_v<A>)
      if (std::isnan(a) || std::isnan(b)) return std::isnan(a) ? a : b;
    return (op == ReduceOp::min ? b < a : a < b) ? b : a;
  } else if constexpr (std::is_same_v<A, bool>) {
    return a && b;
  } else if constexpr (std::is_integral_v<A>) {  // wraps like NumPy: unsigned, for a signed overflow is undefined
    const auto x = static_cast<uint64_t>(a), y = static_cast<uint64_t>(b);
    return static_cast<A>(op == ReduceOp::product ? x * y : x + y);
  } else {
    return op == ReduceOp::product ? a * b : a + b;
  }
}

template <class T, ReduceOp op>
void run(const Reduction& how, T* destination, const void* const* sources, int count, int64_t n) {
  using A = typename Accumulator<T>::type;
  A sums[kBlock];
  const bool scales = how.prescale != 1, scales_after = how.postscale != 1, divides = how.divisor != 1;
  const A before = static_cast<A>(how.prescale), after = static_cast<A>(how.postscale),
          divisor = static_cast<A>(how.divisor);
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    const int64_t length = std::min(kBlock, n - begin);
    for (int s = 0; s < count; ++s) {
      const T* source = static_cast<const T*>(sources[s]) + begin;
      const auto each = [&](auto f) {
        for (int64_t i = 0; i < length; ++i) f(sums[i], static_cast<A>(source[i]));
      };
      if (s == 0)
        each([](A& sum, A x) { sum = x; });
      else if (!scales)
        each([](A& sum, A x) { sum = combine<op>(sum, x); });
      if (scales && s == 0) each([&](A& sum, A x) { sum = static_cast<A>(x * before); });
      if (scales && s > 0) each([&](A& sum, A x) { sum = combine<op>(sum, static_cast<A>(x * before)); });
    }
    if (scales_after)
      for (int64_t i = 0; i < length; ++i) sums[i] = static_cast<A>(sums[i] * after);
    if constexpr (std::is_floating_point_v<A>)
      if (divides)
        for (int64_t i = 0; i < length; ++i) sums[i] /= divisor;
    for (int64_t i = 0; i < length; ++i) destination[begin + i] = static_cast<T>(sums[i]);
  }
}

template <class T>
void run_op(const Reduction& how, void* destination, const void* const* sources, int count, int64_t n) {
  T* to = static_cast<T*>(destination);
  switch (how.op) {
    case ReduceOp::sum:
    case ReduceOp::average:
      return run<T, ReduceOp::sum>(how, to, sources, count, n);
    case ReduceOp::min:
      return run<T, ReduceOp::min>(how, to, sources, count, n);
    case ReduceOp::max:
      return run<T, ReduceOp::max>(how, to, sources, count, n);
    case ReduceOp::product:
      return run<T, ReduceOp::product>(how, to, sources, count, n);
  }
}

}  // namespace

void reduce(const Reduction& how, void* destination, const void* const* sources, int count, int64_t n) {
  switch (how.dtype) {
    case DType::bool_:
      return run_op<bool>(how, destination, sources, count, n);
    case DType::uint8:
      return run_op<uint8_t>(how, destination, sources, count, n);
    case DType::int8:
      return run_op<int8_t>(how, destination, sources, count, n);
    case DType::int16:
      return run_op<int16_t>(how, destination, sources, count, n);
    case DType::int32:
      return run_op<int32_t>(how, destination, sources, count, n);
    case DType::int64:
      return run_op<int64_t>(how, destination, sources, count, n);
    case DType::float16:
      return run_op<Float16>(how, destination, sources, count, n);
    case DType::bfloat16:
      return run_op<BFloat16>(how, destination, sources, count, n);
    case DType::float32:
      return run_op<float>(how, destination, sources, count, n);
    case DType::float64:
      return run_op<double>(how, destination, sources, count, n);
  }
}

void check_reduction(std::string_view where, const Reduction& how) {
  const bool sums = how.op == ReduceOp::sum || how.op == ReduceOp::average;
  check<DTypeError>(how.dtype != DType::bool_ || !sums, where, how.op,
                    " of bool has no meaning. Hint: max tells whether any is true, min whether all are.");
  check<DTypeError>(is_floating_point(how.dtype) || how.op != ReduceOp::average, where, "average of ", how.dtype,
                    " is not a whole number. Hint: convert to a float dtype, or use sum.");
  check<DTypeError>(is_floating_point(how.dtype) || (how.prescale == 1 && how.postscale == 1), where, "prescale ",
                    how.prescale, " and postscale ", how.postscale, " need a float dtype, this is ", how.dtype, '.');
}

}  // namespace anello::dist
