// Reductions: sums, products, extremes, any and all.
// Main entry: reduce_kernel<Op>.
//
// One scheme serves long rows and many columns alike. The [size, inner] matrix of each outer index is read as rows of
// `width` elements, width = inner * group: `group` neighbouring rows side by side where inner is small (inner = 1 gives
// 256 lanes). Lanes are accumulated in registers' width, then the groups are folded. Many short rows are turned: each
// becomes a column. Work is cut into column tiles and chunks of rows by the sizes alone; chunk results are combined
// pairwise.
#include <anello/core/cpu/convert.h>
#include <anello/core/cpu/vec.h>
#include <anello/core/kernels/reduce.h>

#include <algorithm>
#include <limits>

namespace anello::kernel {
namespace {

constexpr int64_t kLanesWanted = 256;  // width aimed at for a small inner
constexpr int64_t kColumns = 512;      // widest column tile
constexpr int64_t kChunk = 65536;      // elements a thread takes at a time
constexpr int64_t kShortRow = 128;     // with inner = 1: up to here rows are turned into columns
constexpr int64_t kTurned = 8192;      // elements of a tile of turned rows, which is read once for every column
constexpr int64_t kRowsAtOnce = 4;
constexpr int64_t kRowsPerFlush = 32;  // additions in C before the sum moves on to Wide

template <class C>
struct Sum {
  using Wide = std::conditional_t<std::is_same_v<C, float>, double, C>;
  static constexpr bool kCentered = false;
  static constexpr Wide identity = 0;
  static Vec<C> map(Vec<C> x, Vec<C>) { return x; }
  template <class V>
  static V combine(V a, V b) {
    if constexpr (std::is_same_v<V, int64_t>)
      return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
    else
      return a + b;
  }
};
template <class C>
struct SumSquares : Sum<C> {
  static constexpr bool kCentered = true;
  static Vec<C> map(Vec<C> x, Vec<C> mean) {
    const Vec<C> d = x - mean;
    return d * d;
  }
};
template <class C>
struct Prod {
  using Wide = C;
  static constexpr bool kCentered = false;
  static constexpr Wide identity = 1;
  static Vec<C> map(Vec<C> x, Vec<C>) { return x; }
  template <class V>
  static V combine(V a, V b) {
    if constexpr (std::is_same_v<V, int64_t>)
      return static_cast<int64_t>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
    else
      return a * b;
  }
};
template <class C>
struct Max {
  using Wide = C;
  using Limits = std::numeric_limits<C>;
  static constexpr bool kCentered = false;
  static constexpr Wide identity = Limits::has_infinity ? -Limits::infinity() : Limits::lowest();
  static Vec<C> map(Vec<C> x, Vec<C>) { return x; }
  static Vec<C> combine(Vec<C> a, Vec<C> b) { return maximum(a, b); }
  static C combine(C a, C b) { return a > b || a != a ? a : b; }
};
template <class C>
struct Min {
  using Wide = C;
  using Limits = std::numeric_limits<C>;
  static constexpr bool kCentered = false;
  static constexpr Wide identity = Limits::has_infinity ? Limits::infinity() : Limits::max();
  static Vec<C> map(Vec<C> x, Vec<C>) { return x; }
  static Vec<C> combine(Vec<C> a, Vec<C> b) { return minimum(a, b); }
  static C combine(C a, C b) { return a < b || a != a ? a : b; }
};
template <class C>
struct Any : Max<C> {
  static constexpr C identity = 0;
  static Vec<C> map(Vec<C> x, Vec<C>) { return where(ne(x, 0.0), Vec<C>::splat(C{1}), Vec<C>{}); }
};
template <class C>
struct All : Min<C> {
  static constexpr C identity = 1;
  static Vec<C> map(Vec<C> x, Vec<C> unused) { return Any<C>::map(x, unused); }
};

/// How the work is cut; a function of the sizes alone.
struct Cut {
  int64_t outer, inner;              // of the matrix that is walked
  int64_t row_step, column_step;     // in elements
  int64_t group, width, rows, rest;  // rows of `width` elements and `rest` more rows of `inner`
  int64_t tile, tiles;               // columns
  int64_t chunk_rows, chunks;

  explicit Cut(const ReduceParams& p) {
    const bool turned = p.inner == 1 && p.size <= kShortRow && p.outer > 1;
    outer = turned ? 1 : p.outer, inner = turned ? p.outer : p.inner;
    group = turned ? 1 : std::clamp<int64_t>(kLanesWanted / inner, 1, std::max<int64_t>(1, p.size));
    width = group * inner;
    row_step = turned ? 1 : width, column_step = turned ? p.size : 1;
    rows = p.size / group, rest = p.size % group;
    const int64_t widest =
        turned ? std::clamp<int64_t>(kTurned / std::max<int64_t>(1, p.size), 64, kColumns) : kColumns;
    tile = std::min(width, widest), tiles = (width + tile - 1) / tile;
    chunk_rows = std::max<int64_t>(kRowsPerFlush, kChunk / tile / kRowsPerFlush * kRowsPerFlush);
    chunks = std::max<int64_t>(1, (rows + chunk_rows - 1) / chunk_rows);
  }
};

/// Accumulates one chunk of one column tile.
template <class C, class Op>
class Accumulator {
 public:
  using Wide = typename Op::Wide;

  Accumulator(const ReduceParams& p, const Cut& cut) : p_(p), cut_(cut) {}

  /// Leaves the sums of rows [begin, end) of columns [first, first + n) of outer index o, folded to `inner` columns, in
  /// values().
  void run(int64_t o, int64_t chunk, int64_t first, int64_t n) {
    const int64_t begin = chunk * cut_.chunk_rows, end = std::min(cut_.rows, begin + cut_.chunk_rows);
    base_ = element(p_.x, p_.dtype, o * p_.size * p_.inner + first * cut_.column_step);
    n_ = n;
    if constexpr (Op::kCentered) load_means(o, first);
    std::fill_n(wide_, n, Op::identity);
    for (int64_t r = begin; r < end; r += kRowsPerFlush) flush(r, std::min(end, r + kRowsPerFlush), n);
    if (chunk == cut_.chunks - 1 && cut_.rest > 0) last_rows();
    fold();
  }
  const Wide* values() const { return wide_; }

 private:
  const C* row(int64_t r, int slot) {
    return load(element(base_, p_.dtype, r * cut_.row_step), p_.dtype, n_, cut_.column_step, buffers_[slot]);
  }

  /// wide += the rows [begin, end), which are few enough to be added in C.
  void flush(int64_t begin, int64_t end, int64_t n) {
    const C* first[2] = {row(begin, 0), mean_};
    vec_loop<C, 2>(lanes_, first, n, [](Vec<C> x, Vec<C> mean) { return Op::map(x, mean); });
    int64_t r = begin + 1;
    for (; r + kRowsAtOnce <= end; r += kRowsAtOnce) {
      const C* in[kRowsAtOnce + 2] = {lanes_, row(r, 0), row(r + 1, 1), row(r + 2, 2), row(r + 3, 3), mean_};
      vec_loop<C, kRowsAtOnce + 2>(lanes_, in, n, [](Vec<C> acc, Vec<C> a, Vec<C> b, Vec<C> c, Vec<C> d, Vec<C> mean) {
        const Vec<C> ab = Op::combine(Op::map(a, mean), Op::map(b, mean));
        return Op::combine(acc, Op::combine(ab, Op::combine(Op::map(c, mean), Op::map(d, mean))));
      });
    }
    for (; r < end; ++r) {
      const C* in[3] = {lanes_, row(r, 0), mean_};
      vec_loop<C, 3>(lanes_, in, n,
                     [](Vec<C> acc, Vec<C> x, Vec<C> mean) { return Op::combine(acc, Op::map(x, mean)); });
    }
    for (int64_t i = 0; i < n; ++i) wide_[i] = Op::combine(wide_[i], static_cast<Wide>(lanes_[i]));
  }

  /// The rows that do not fill a group: there is one column tile then.
  void last_rows() {
    n_ = cut_.rest * cut_.inner;
    flush(cut_.rows, cut_.rows + 1, n_);
    n_ = cut_.width;
  }

  /// Halves the number of groups until one is left.
  void fold() {
    for (int64_t groups = cut_.group; groups > 1;) {
      const int64_t half = (groups + 1) / 2, n = (groups - half) * cut_.inner;
      const Wide* upper = wide_ + half * cut_.inner;
      for (int64_t i = 0; i < n; ++i) wide_[i] = Op::combine(wide_[i], upper[i]);
      groups = half;
    }
  }

  void load_means(int64_t o, int64_t first) {
    if (p_.mean == nullptr) return;
    const C* means = static_cast<const C*>(p_.mean) + o * cut_.inner + first;
    const int64_t n = std::min(n_, cut_.inner);
    for (int64_t g = 0; g < cut_.group; ++g) std::copy_n(means, n, mean_ + g * n);
  }

  const ReduceParams& p_;
  const Cut& cut_;
  const void* base_ = nullptr;
  int64_t n_ = 0;
  alignas(64) C lanes_[kColumns], buffers_[kRowsAtOnce][kColumns], mean_[kColumns] = {};
  alignas(64) Wide wide_[kColumns];
};

/// Writes n results from out[at] on.
template <class Op, class Wide>
void finish(const ReduceParams& p, int64_t at, int64_t n, const Wide* values) {
  void* dst = element(p.out, p.out_dtype, at);
  if (p.scale == 1) return store_block(dst, p.out_dtype, 1, 0, n, 1, values);
  double scaled[kColumns];
  for (int64_t i = 0; i < n; ++i) scaled[i] = static_cast<double>(values[i]) * p.scale;
  store_block(dst, p.out_dtype, 1, 0, n, 1, scaled);
}

template <class C, class Op>
void reduce(const Context& ctx, const ReduceParams& p) {
  using Wide = typename Op::Wide;
  const Cut cut(p);
  const bool split = cut.chunks > 1;
  const Scratch<Wide> partial(ctx, split ? cut.outer * cut.chunks * cut.inner : 0);
  const int64_t unit = std::max<int64_t>(1, std::min(cut.chunk_rows, cut.rows + 1) * cut.tile);
  ctx.parallel_for(
      cut.outer * cut.tiles * cut.chunks, std::max<int64_t>(1, kChunk / unit), [&](int64_t begin, int64_t end) {
        Accumulator<C, Op> accumulator(p, cut);
        for (int64_t u = begin; u < end; ++u) {
          const int64_t chunk = u % cut.chunks, tile = u / cut.chunks % cut.tiles, o = u / cut.chunks / cut.tiles;
          const int64_t first = tile * cut.tile, n = std::min(cut.tile, cut.width - first),
                        columns = std::min(n, cut.inner);
          accumulator.run(o, chunk, first, n);
          if (split)
            std::copy_n(accumulator.values(), columns, partial.data() + (o * cut.chunks + chunk) * cut.inner + first);
          else
            finish<Op>(p, o * cut.inner + first, columns, accumulator.values());
        }
      });
  if (!split) return;
  ctx.parallel_for(
      cut.outer * cut.tiles, std::max<int64_t>(1, kChunk / (cut.chunks * cut.tile)), [&](int64_t begin, int64_t end) {
        for (int64_t u = begin; u < end; ++u) {
          const int64_t first = u % cut.tiles * cut.tile, o = u / cut.tiles, n = std::min(cut.tile, cut.inner - first);
          Wide* chunks = partial.data() + o * cut.chunks * cut.inner + first;
          for (int64_t step = 1; step < cut.chunks; step *= 2)
            for (int64_t k = 0; k + step < cut.chunks; k += 2 * step)
              for (int64_t i = 0; i < n; ++i)
                chunks[k * cut.inner + i] = Op::combine(chunks[k * cut.inner + i], chunks[(k + step) * cut.inner + i]);
          finish<Op>(p, o * cut.inner + first, n, chunks);
        }
      });
}

template <template <class> class Op>
Status reduce_kernel(const Context& ctx, const ReduceParams& p) {
  if (p.outer > 0 && p.inner > 0) with_compute_type(p.dtype, [&]<class C>(C) { reduce<C, Op<C>>(ctx, p); });
  return Status::ok;
}
template <template <class> class Op>
Status float_reduce_kernel(const Context& ctx, const ReduceParams& p) {
  if (p.outer > 0 && p.inner > 0) with_float_type(p.dtype, [&]<class C>(C) { reduce<C, Op<C>>(ctx, p); });
  return Status::ok;
}
/// A product's relative error grows with its length: floats are multiplied in float64.
Status prod_kernel(const Context& ctx, const ReduceParams& p) {
  if (p.outer == 0 || p.inner == 0) return Status::ok;
  if (is_floating_point(p.dtype))
    reduce<double, Prod<double>>(ctx, p);
  else
    reduce<int64_t, Prod<int64_t>>(ctx, p);
  return Status::ok;
}

ANELLO_KERNEL(kSum, reduce_kernel<Sum>, kAllTypes);
ANELLO_KERNEL(kCenteredSquares, float_reduce_kernel<SumSquares>, kFloatTypes);
ANELLO_KERNEL(kProd, prod_kernel, kAllTypes);
ANELLO_KERNEL(kMax, reduce_kernel<Max>, kAllTypes);
ANELLO_KERNEL(kMin, reduce_kernel<Min>, kAllTypes);
ANELLO_KERNEL(kAny, reduce_kernel<Any>, kAllTypes);
ANELLO_KERNEL(kAll, reduce_kernel<All>, kAllTypes);

}  // namespace
}  // namespace anello::kernel
