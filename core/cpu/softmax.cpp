// Softmax and log_softmax along a dim, forward and backward.
// Main entry: the registrations at the end.
#include <anello/core/cpu/lanes.h>
#include <anello/core/kernels/softmax.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace anello::kernel {
namespace {

/// Elements a task works on, about.
constexpr int64_t kTask = 16384;
/// Neighbouring lines that are worked on together when the dim is not the last.
constexpr int64_t kTile = 128;

template <class A>
constexpr A kMinusInfinity = -std::numeric_limits<A>::infinity();

template <class A>
A max_of(const A* x, int64_t n) {
  Lanes<A> best = splat(kMinusInfinity<A>);
  for_lanes<A>(n, [&](int64_t i, int64_t m) { best = max_lanes(best, load_part(x + i, m, kMinusInfinity<A>)); });
  return max_lane(best);
}

/// One line of values: x and y may be the same memory.
template <bool kLog, class A>
void softmax_line(const A* x, A* y, int64_t n) {
  const A top = max_of(x, n);
  Lanes<A> sums{};
  for_lanes<A>(n, [&](int64_t i, int64_t m) {
    const Lanes<A> e = exp_lanes<A>(load_part(x + i, m, kMinusInfinity<A>) - top);
    sums += e;
    if constexpr (!kLog) store_part(y + i, m, e);
  });
  const A total = sum_lanes(sums);
  if constexpr (kLog) {
    const A log_total = std::log(total);
    for_lanes<A>(n, [&](int64_t i, int64_t m) { store_part(y + i, m, (load_part(x + i, m, A(0)) - top) - log_total); });
  } else {
    const A scale = A(1) / total;
    for_lanes<A>(n, [&](int64_t i, int64_t m) { store_part(y + i, m, load_part(y + i, m, A(0)) * scale); });
  }
}

template <bool kLog, class A>
void softmax_grad_line(const A* dy, const A* y, A* dx, int64_t n) {
  Lanes<A> sums{};
  for_lanes<A>(n, [&](int64_t i, int64_t m) {
    const Lanes<A> g = load_part(dy + i, m, A(0));
    sums += kLog ? g : g * load_part(y + i, m, A(0));
  });
  const A total = sum_lanes(sums);
  for_lanes<A>(n, [&](int64_t i, int64_t m) {
    const Lanes<A> g = load_part(dy + i, m, A(0)), v = load_part(y + i, m, A(0));
    store_part(dx + i, m, kLog ? g - exp_lanes<A>(v) * total : v * (g - total));
  });
}

/// kTile lines side by side, `step` apart along the dim; only the first `width` of them are real.
template <bool kLog, class T>
void softmax_tile(const T* x, T* y, int64_t n, int64_t step, int64_t width) {
  using A = ComputeOf<T>;
  alignas(64) A top[kTile], sums[kTile], run[kTile];
  std::fill_n(top, kTile, kMinusInfinity<A>);
  std::fill_n(sums, kTile, A(0));
  std::fill_n(run, kTile, A(0));
  for (int64_t k = 0; k < n; ++k) {
    convert_run(run, x + k * step, width);
    for_lanes<A>(
        width, [&](int64_t i, int64_t) { store_lanes(top + i, max_lanes(load_lanes(top + i), load_lanes(run + i))); });
  }
  for (int64_t k = 0; k < n; ++k) {
    convert_run(run, x + k * step, width);
    for_lanes<A>(width, [&](int64_t i, int64_t) {
      store_lanes(sums + i, load_lanes(sums + i) + exp_lanes<A>(load_lanes(run + i) - load_lanes(top + i)));
    });
  }
  for (int64_t i = 0; i < width; ++i) sums[i] = kLog ? std::log(sums[i]) : A(1) / sums[i];
  for (int64_t k = 0; k < n; ++k) {
    convert_run(run, x + k * step, width);
    for_lanes<A>(width, [&](int64_t i, int64_t) {
      const Lanes<A> v = load_lanes(run + i) - load_lanes(top + i);
      store_lanes(run + i, kLog ? v - load_lanes(sums + i) : exp_lanes<A>(v) * load_lanes(sums + i));
    });
    convert_run(y + k * step, run, width);
  }
}

template <bool kLog, class T>
void softmax_grad_tile(const T* dy, const T* y, T* dx, int64_t n, int64_t step, int64_t width) {
  using A = ComputeOf<T>;
  alignas(64) A sums[kTile], g[kTile], v[kTile];
  std::fill_n(sums, kTile, A(0));
  std::fill_n(g, kTile, A(0));
  std::fill_n(v, kTile, A(0));
  for (int64_t k = 0; k < n; ++k) {
    convert_run(g, dy + k * step, width);
    if constexpr (!kLog) convert_run(v, y + k * step, width);
    for_lanes<A>(width, [&](int64_t i, int64_t) {
      store_lanes(sums + i, load_lanes(sums + i) + (kLog ? load_lanes(g + i) : load_lanes(g + i) * load_lanes(v + i)));
    });
  }
  for (int64_t k = 0; k < n; ++k) {
    convert_run(g, dy + k * step, width);
    convert_run(v, y + k * step, width);
    for_lanes<A>(width, [&](int64_t i, int64_t) {
      const Lanes<A> total = load_lanes(sums + i), gi = load_lanes(g + i), vi = load_lanes(v + i);
      store_lanes(g + i, kLog ? gi - exp_lanes<A>(vi) * total : vi * (gi - total));
    });
    convert_run(dx + k * step, g, width);
  }
}

/// Calls line(i) for each of `outer` lines when inner is 1, else tile(offset, width) for groups of neighbouring lines.
template <class Line, class Tile>
void for_each_line(const Context& ctx, int64_t outer, int64_t size, int64_t inner, const Line& line, const Tile& tile) {
  if (size == 0) return;
  if (inner == 1) {
    ctx.parallel_for(outer, std::max<int64_t>(1, kTask / size), line);
    return;
  }
  const int64_t tiles = (inner + kTile - 1) / kTile, tile_elements = std::min(inner, kTile) * size;
  ctx.parallel_for(outer * tiles, std::max<int64_t>(1, kTask / tile_elements), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const int64_t at = t % tiles * kTile;
      tile(t / tiles * size * inner + at, std::min(kTile, inner - at));
    }
  });
}

template <bool kLog, class T>
Status softmax_kernel(const Context& ctx, const SoftmaxParams& p) {
  using A = ComputeOf<T>;
  const T* x = static_cast<const T*>(p.x);
  T* y = static_cast<T*>(p.y);
  const auto lines = [&](int64_t begin, int64_t end) {
    if constexpr (std::is_same_v<A, T>) {
      for (int64_t i = begin; i < end; ++i) softmax_line<kLog>(x + i * p.size, y + i * p.size, p.size);
    } else {
      const Scratch<A> buffer(ctx, p.size);
      for (int64_t i = begin; i < end; ++i) {
        convert_run(buffer.data(), x + i * p.size, p.size);
        softmax_line<kLog>(buffer.data(), buffer.data(), p.size);
        convert_run(y + i * p.size, buffer.data(), p.size);
      }
    }
  };
  for_each_line(ctx, p.outer, p.size, p.inner, lines,
                [&](int64_t at, int64_t width) { softmax_tile<kLog>(x + at, y + at, p.size, p.inner, width); });
  return Status::ok;
}

template <bool kLog, class T>
Status softmax_grad_kernel(const Context& ctx, const SoftmaxGradParams& p) {
  using A = ComputeOf<T>;
  const T *dy = static_cast<const T*>(p.dy), *y = static_cast<const T*>(p.y);
  T* dx = static_cast<T*>(p.dx);
  const auto lines = [&](int64_t begin, int64_t end) {
    if constexpr (std::is_same_v<A, T>) {
      for (int64_t i = begin * p.size; i < end * p.size; i += p.size) {
        softmax_grad_line<kLog>(dy + i, y + i, dx + i, p.size);
      }
    } else {
      const Scratch<A> buffer(ctx, 2 * p.size);
      A *g = buffer.data(), *v = g + p.size;
      for (int64_t i = begin * p.size; i < end * p.size; i += p.size) {
        convert_run(g, dy + i, p.size);
        convert_run(v, y + i, p.size);
        softmax_grad_line<kLog>(g, v, g, p.size);
        convert_run(dx + i, g, p.size);
      }
    }
  };
  for_each_line(ctx, p.outer, p.size, p.inner, lines, [&](int64_t at, int64_t width) {
    softmax_grad_tile<kLog>(dy + at, y + at, dx + at, p.size, p.inner, width);
  });
  return Status::ok;
}

#define ANELLO_SOFTMAX_KERNELS(T)                                              \
  ANELLO_KERNEL(kSoftmax, (softmax_kernel<false, T>), {dtype_of<T>});          \
  ANELLO_KERNEL(kLogSoftmax, (softmax_kernel<true, T>), {dtype_of<T>});        \
  ANELLO_KERNEL(kSoftmaxGrad, (softmax_grad_kernel<false, T>), {dtype_of<T>}); \
  ANELLO_KERNEL(kLogSoftmaxGrad, (softmax_grad_kernel<true, T>), {dtype_of<T>});
ANELLO_SOFTMAX_KERNELS(Float16)
ANELLO_SOFTMAX_KERNELS(BFloat16)
ANELLO_SOFTMAX_KERNELS(float)
ANELLO_SOFTMAX_KERNELS(double)

}  // namespace
}  // namespace anello::kernel
