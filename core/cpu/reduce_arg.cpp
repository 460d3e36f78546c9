// The place of the extreme element.
// Main entry: kernels of kArgMax and kArgMin.
#include <anello/core/cpu/convert.h>
#include <anello/core/cpu/vec.h>
#include <anello/core/kernels/reduce.h>

#include <algorithm>

namespace anello::kernel {
namespace {

constexpr int64_t kColumns = 512;
constexpr int64_t kChunk = 65536;  // elements a thread takes at a time

template <bool kLargest>
struct Order {
  /// NaN comes before every number; of equals the first stays.
  template <class C>
  static bool before(C a, C b) {
    return (kLargest ? a > b : a < b) || (a != a && b == b);
  }
  template <class C>
  static Vec<C> best(Vec<C> a, Vec<C> b) {
    return kLargest ? maximum(a, b) : minimum(a, b);
  }
};

/// inner = 1: the best of every piece in vector code; a piece is searched only when it holds a new best.
template <class C, class Which>
std::pair<C, int64_t> best_of_row(const void* row, DType dtype, int64_t begin, int64_t end) {
  constexpr int64_t kPiece = 1024;
  alignas(64) C buffer[kPiece], lanes[Vec<C>::kWidth];
  C best{};
  int64_t place = -1;
  for (int64_t i = begin; i < end; i += kPiece) {
    const int64_t n = std::min(kPiece, end - i);
    const C* x = load(element(row, dtype, i), dtype, n, 1, buffer);
    Vec<C> acc = Vec<C>::splat(x[0]);
    int64_t k = 0;
    for (; k + Vec<C>::kWidth <= n; k += Vec<C>::kWidth) acc = Which::best(acc, Vec<C>::load(x + k));
    acc.store(lanes);
    C top = lanes[0];
    for (C v : lanes) top = Which::before(v, top) ? v : top;
    for (; k < n; ++k) top = Which::before(x[k], top) ? x[k] : top;
    if (place >= 0 && !Which::before(top, best)) continue;
    best = top;
    for (k = 0; !(x[k] == top || (x[k] != x[k] && top != top));) ++k;
    place = i + k;
  }
  return {best, place};
}

template <class C, class Which>
void arg_rows(const Context& ctx, const ArgReduceParams& p) {
  const int64_t chunks = (p.size + kChunk - 1) / kChunk;
  const Scratch<C> values(ctx, chunks > 1 ? p.outer * chunks : 0);
  const Scratch<int64_t> places(ctx, chunks > 1 ? p.outer * chunks : 0);
  ctx.parallel_for(p.outer * chunks, std::max<int64_t>(1, kChunk / p.size), [&](int64_t begin, int64_t end) {
    for (int64_t u = begin; u < end; ++u) {
      const int64_t o = u / chunks, first = u % chunks * kChunk;
      const auto [value, place] =
          best_of_row<C, Which>(element(p.x, p.dtype, o * p.size), p.dtype, first, std::min(p.size, first + kChunk));
      if (chunks > 1)
        values[u] = value, places[u] = place;
      else
        p.out[o] = place;
    }
  });
  for (int64_t o = 0; chunks > 1 && o < p.outer; ++o) {
    int64_t best = o * chunks;
    for (int64_t u = best + 1; u < (o + 1) * chunks; ++u)
      if (Which::before(values[u], values[best])) best = u;
    p.out[o] = places[best];
  }
}

template <class C, class Which>
void arg_columns(const Context& ctx, const ArgReduceParams& p) {
  const int64_t tiles = (p.inner + kColumns - 1) / kColumns, unit = p.size * std::min(p.inner, kColumns);
  ctx.parallel_for(p.outer * tiles, std::max<int64_t>(1, kChunk / unit), [&](int64_t begin, int64_t end) {
    alignas(64) C buffer[kColumns], best[kColumns];
    int64_t place[kColumns];
    for (int64_t u = begin; u < end; ++u) {
      const int64_t o = u / tiles, first = u % tiles * kColumns, n = std::min(kColumns, p.inner - first);
      for (int64_t s = 0; s < p.size; ++s) {
        const C* x = load(element(p.x, p.dtype, (o * p.size + s) * p.inner + first), p.dtype, n, 1, buffer);
        for (int64_t i = 0; i < n; ++i) {
          const bool better = s == 0 || Which::before(x[i], best[i]);
          best[i] = better ? x[i] : best[i];
          place[i] = better ? s : place[i];
        }
      }
      std::copy_n(place, n, p.out + o * p.inner + first);
    }
  });
}

template <bool kLargest>
Status arg_kernel(const Context& ctx, const ArgReduceParams& p) {
  if (p.outer == 0 || p.inner == 0) return Status::ok;
  if (p.size == 0) return ctx.error(Status::shape_error, "nothing to choose from");
  with_compute_type(p.dtype, [&]<class C>(C) {
    if (p.inner == 1)
      arg_rows<C, Order<kLargest>>(ctx, p);
    else
      arg_columns<C, Order<kLargest>>(ctx, p);
  });
  return Status::ok;
}

ANELLO_KERNEL(kArgMax, arg_kernel<true>, kAllTypes);
ANELLO_KERNEL(kArgMin, arg_kernel<false>, kAllTypes);

}  // namespace
}  // namespace anello::kernel
