// Dot products of a few rows with many, and sums of columns.
// Main entry: small_product(), column_sum<A>().
#include <anello/core/cpu/convert.h>
#include <anello/core/cpu/matmul_small.h>
#include <anello/core/cpu/register_tile.h>

#include <algorithm>

namespace anello::kernel {
namespace {

constexpr int64_t kTogether = 4;           // rows of b at a time
constexpr int64_t kUnitValues = 64 << 10;  // values of b a unit reads
constexpr int64_t kChunkRows = 64;         // rows of a column sum added in registers
constexpr int64_t kSlices = 64;            // of a column sum, at most

/// dots[i][j] = a[i] . b[j] for M rows of a and kTogether rows of b.
template <class A, int M>
void dots_of(const A* const* a, const A* const* b, int64_t k, A (*dots)[kTogether]) {
  Lanes<A> acc[M][kTogether] = {};
  int64_t at = 0;
  for (; at + kLanes<A> <= k; at += kLanes<A>) {
    Lanes<A> right[kTogether];
    ANELLO_UNROLL for (int j = 0; j < kTogether; ++j) right[j] = load_lanes(b[j] + at);
    ANELLO_UNROLL for (int i = 0; i < M; ++i) {
      const Lanes<A> left = load_lanes(a[i] + at);
      ANELLO_UNROLL for (int j = 0; j < kTogether; ++j) acc[i][j] += left * right[j];
    }
  }
  for (int i = 0; i < M; ++i)
    for (int j = 0; j < kTogether; ++j) {
      A sum = sum_lanes(acc[i][j]);
      for (int64_t t = at; t < k; ++t) sum += a[i][t] * b[j][t];
      dots[i][j] = sum;
    }
}

/// Sums rows [begin, end) into total [cols].
template <class A>
void sum_rows(const ColumnSumParams& p, int64_t begin, int64_t end, A* buffer, A* total) {
  std::fill_n(total, p.cols, A(0));
  for (int64_t row = begin; row < end; row += kChunkRows) {
    const int64_t count = std::min(kChunkRows, end - row);
    const A* x = load(element(p.x, p.dtype, row * p.cols), p.dtype, count * p.cols, 1, buffer);
    int64_t c = 0;
    for (; c + kLanes<A> <= p.cols; c += kLanes<A>) {
      Lanes<A> even{}, odd{};
      int64_t i = 0;
      for (; i + 2 <= count; i += 2) {
        even += load_lanes(x + i * p.cols + c);
        odd += load_lanes(x + (i + 1) * p.cols + c);
      }
      if (i < count) even += load_lanes(x + i * p.cols + c);
      store_lanes(total + c, load_lanes(total + c) + (even + odd));
    }
    for (; c < p.cols; ++c) {
      A sum = 0;
      for (int64_t i = 0; i < count; ++i) sum += x[i * p.cols + c];
      total[c] += sum;
    }
  }
}

template <class A>
Status column_sum(const Context& ctx, const ColumnSumParams& p) {
  if (p.cols == 0) return Status::ok;
  const int64_t wanted = std::clamp<int64_t>(p.rows * p.cols / kUnitValues, 1, kSlices);
  const int64_t per_slice = std::max<int64_t>(1, (p.rows + wanted - 1) / wanted),
                slices = (p.rows + per_slice - 1) / per_slice;
  const Scratch<A> partial(ctx, std::max<int64_t>(1, slices) * p.cols), sums(ctx, p.cols);
  ctx.parallel_for(slices, 1, [&](int64_t slice, int64_t) {
    const int64_t begin = slice * per_slice, end = std::min(p.rows, begin + per_slice);
    const Scratch<A> buffer(ctx, p.dtype == dtype_of<A> ? 0 : std::min(kChunkRows, end - begin) * p.cols);
    sum_rows(p, begin, end, buffer.data(), partial.data() + slice * p.cols);
  });
  if (p.accumulate) {
    const A* old = load(p.out, p.dtype, p.cols, 1, sums.data());
    if (old != sums.data()) std::copy_n(old, p.cols, sums.data());
  } else {
    std::fill_n(sums.data(), p.cols, A(0));
  }
  for (int64_t slice = 0; slice < slices; ++slice)
    for (int64_t c = 0; c < p.cols; ++c) sums[c] += partial[slice * p.cols + c];
  store(p.out, p.dtype, p.cols, 1, sums.data());
  return Status::ok;
}

}  // namespace

template <class A>
void small_product(const Context& ctx, const MatmulParams& p, const void* a, const void* b, void* out) {
  using Dots = void (*)(const A* const*, const A* const*, int64_t, A(*)[kTogether]);
  static constexpr Dots kDots[kDotRows] = {dots_of<A, 1>, dots_of<A, 2>, dots_of<A, 3>, dots_of<A, 4>};
  const bool same = p.dtype == dtype_of<A>;
  const Scratch<A> left_buffer(ctx, same ? 0 : p.m * p.k);
  const A* left[kDotRows];
  for (int64_t i = 0; i < p.m; ++i)
    left[i] = load(element(a, p.dtype, i * p.ld_a), p.dtype, p.k, 1, left_buffer.data() + i * p.k);
  const int64_t groups = (p.n + kTogether - 1) / kTogether;
  ctx.parallel_for(
      groups, std::max<int64_t>(1, kUnitValues / (kTogether * std::max<int64_t>(1, p.k))),
      [&](int64_t begin, int64_t end) {
        const Scratch<A> buffer(ctx, same ? 0 : kTogether * p.k);
        for (int64_t group = begin; group < end; ++group) {
          const int64_t first = group * kTogether, used = std::min(kTogether, p.n - first);
          const A* right[kTogether];
          for (int64_t j = 0; j < kTogether; ++j)
            right[j] = j < used
                           ? load(element(b, p.dtype, (first + j) * p.ld_b), p.dtype, p.k, 1, buffer.data() + j * p.k)
                           : right[0];
          A dots[kDotRows][kTogether];
          kDots[p.m - 1](left, right, p.k, dots);
          A line[kTogether], old[kTogether];
          const A* bias = p.bias == nullptr ? nullptr : load(element(p.bias, p.dtype, first), p.dtype, used, 1, line);
          for (int64_t i = 0; i < p.m; ++i) {
            void* to = element(out, p.dtype, i * p.ld_out + first);
            const A* before = p.accumulate ? load(to, p.dtype, used, 1, old) : nullptr;
            for (int64_t j = 0; j < used; ++j)
              dots[i][j] += (before == nullptr ? A(0) : before[j]) + (bias == nullptr ? A(0) : bias[j]);
            store(to, p.dtype, used, 1, dots[i]);
          }
        }
      });
}
template void small_product<float>(const Context&, const MatmulParams&, const void*, const void*, void*);
template void small_product<double>(const Context&, const MatmulParams&, const void*, const void*, void*);

namespace {
ANELLO_KERNEL(kColumnSum, column_sum<float>, {float16, bfloat16, float32});
ANELLO_KERNEL(kColumnSum, column_sum<double>, {float64});
}  // namespace

}  // namespace anello::kernel
