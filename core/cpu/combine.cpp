// Several arrays combined into one, which is written to several places: one pass over memory, in registers.
// Main entry: the registrations at the end.
#include <anello/core/cpu/lanes.h>
#include <anello/core/kernels/combine.h>

#include <algorithm>
#include <bit>
#include <cstring>

namespace anello::kernel {
namespace {

/// Registers that are combined side by side: their additions do not wait for one another.
constexpr int kUnroll = 4;
/// Integers that are combined at a time; they stay in the first-level cache.
constexpr int64_t kBlock = 4096;

template <CombineOp op, class V>
inline V combine(V a, V b) {
  if constexpr (op == CombineOp::sum) return a + b;
  if constexpr (op == CombineOp::product) return a * b;
  if constexpr (op == CombineOp::max) return max_lanes(a, b);
  const V smaller = a < b ? a : b;  // b where either is NaN
  return a != a ? a : smaller;
}

template <class T>
struct Scales {
  using A = ComputeOf<T>;
  A before, after, divisor, inverse;
  bool divides;

  explicit Scales(const CombineParams& p)
      : before(static_cast<A>(p.prescale)),
        after(static_cast<A>(p.postscale)),
        divisor(static_cast<A>(p.divisor)),
        inverse(A(1) / divisor),
        divides(!std::has_single_bit(static_cast<uint32_t>(p.divisor))) {}
  Lanes<A> finish(Lanes<A> v) const {
    v *= after;
    return divides ? v / divisor : v * inverse;  // the inverse of a power of two is exact
  }
};

template <class T, CombineOp op, bool scaled>
void combine_floats(const CombineParams& p) {
  using A = ComputeOf<T>;
  constexpr int64_t kWidth = kLanes<A>;
  const Scales<T> scales(p);
  const auto source = [&](int64_t s) { return static_cast<const T*>(p.sources[s]); };
  const auto read = [&](const T* from, int64_t m) {
    const Lanes<A> v = read_lanes(from, m);
    return scaled ? v * scales.before : v;
  };
  const auto write = [&](int64_t i, int64_t m, Lanes<A> v) {
    if constexpr (scaled) v = scales.finish(v);
    for (int64_t d = 0; d < p.destination_count; ++d) write_lanes(static_cast<T*>(p.destinations[d]) + i, m, v);
  };
  int64_t i = 0;
  for (; i + kUnroll * kWidth <= p.n; i += kUnroll * kWidth) {
    Lanes<A> sums[kUnroll];
    for (int k = 0; k < kUnroll; ++k) sums[k] = read(source(0) + i + k * kWidth, kWidth);
    for (int64_t s = 1; s < p.source_count; ++s)
      for (int k = 0; k < kUnroll; ++k) sums[k] = combine<op>(sums[k], read(source(s) + i + k * kWidth, kWidth));
    for (int k = 0; k < kUnroll; ++k) write(i + k * kWidth, kWidth, sums[k]);
  }
  for_lanes<A>(p.n - i, [&](int64_t at, int64_t m) {
    Lanes<A> sum = read(source(0) + i + at, m);
    for (int64_t s = 1; s < p.source_count; ++s) sum = combine<op>(sum, read(source(s) + i + at, m));
    write(i + at, m, sum);
  });
}

template <class T, CombineOp op>
void combine_integers(const CombineParams& p) {
  alignas(64) T sums[kBlock];
  for (int64_t begin = 0; begin < p.n; begin += kBlock) {
    const int64_t n = std::min(kBlock, p.n - begin);
    const auto bytes = static_cast<size_t>(n) * sizeof(T);
    std::memcpy(sums, static_cast<const T*>(p.sources[0]) + begin, bytes);
    for (int64_t s = 1; s < p.source_count; ++s) {
      const T* const x = static_cast<const T*>(p.sources[s]) + begin;
      for (int64_t i = 0; i < n; ++i) {
        if constexpr (op == CombineOp::min)
          sums[i] = std::min(sums[i], x[i]);
        else if constexpr (op == CombineOp::max)
          sums[i] = std::max(sums[i], x[i]);
        else {  // unsigned: for a signed type overflow is undefined
          const auto a = static_cast<uint64_t>(sums[i]), b = static_cast<uint64_t>(x[i]);
          sums[i] = static_cast<T>(op == CombineOp::product ? a * b : a + b);
        }
      }
    }
    for (int64_t d = 0; d < p.destination_count; ++d)
      std::memcpy(static_cast<T*>(p.destinations[d]) + begin, sums, bytes);
  }
}

template <class T, CombineOp op>
void combine_as(const CombineParams& p) {
  if constexpr (std::is_integral_v<T>) {
    combine_integers<T, op>(p);
  } else if (p.prescale != 1 || p.postscale != 1 || p.divisor != 1) {
    combine_floats<T, op, true>(p);
  } else {
    combine_floats<T, op, false>(p);
  }
}

template <class T>
Status combine_kernel(const Context&, const CombineParams& p) {
  switch (p.op) {
    case CombineOp::sum:
      combine_as<T, CombineOp::sum>(p);
      break;
    case CombineOp::min:
      combine_as<T, CombineOp::min>(p);
      break;
    case CombineOp::max:
      combine_as<T, CombineOp::max>(p);
      break;
    case CombineOp::product:
      combine_as<T, CombineOp::product>(p);
      break;
  }
  return Status::ok;
}

ANELLO_KERNEL(kCombine, combine_kernel<uint8_t>, {bool_, uint8});  // a bool is a byte of 0 or 1
ANELLO_KERNEL(kCombine, combine_kernel<int8_t>, {int8});
ANELLO_KERNEL(kCombine, combine_kernel<int16_t>, {int16});
ANELLO_KERNEL(kCombine, combine_kernel<int32_t>, {int32});
ANELLO_KERNEL(kCombine, combine_kernel<int64_t>, {int64});
ANELLO_KERNEL(kCombine, combine_kernel<Float16>, {float16});
ANELLO_KERNEL(kCombine, combine_kernel<BFloat16>, {bfloat16});
ANELLO_KERNEL(kCombine, combine_kernel<float>, {float32});
ANELLO_KERNEL(kCombine, combine_kernel<double>, {float64});

}  // namespace
}  // namespace anello::kernel
