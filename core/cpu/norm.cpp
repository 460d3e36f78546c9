// Batch normalisation over the last dim: statistics, forward, backward.
// Main entry: batch_norm_kernel, batch_norm_grad_kernel.
//
// Memory-bound, so passes over memory count. Rows are cut into blocks that stay in the cache: a block's mean and
// squared deviations take two passes over it but one over memory, and blocks are merged in float64 (Chan, Golub,
// LeVeque, 1979), so a large mean does not cancel. Blocks depend on the shape alone. With few channels, `fold` rows
// count as one wide row, so that registers are full for 3 channels as for 64.
#include <anello/core/cpu/lanes.h>
#include <anello/core/kernels/norm.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

namespace anello::kernel {
namespace {

/// Elements of a block: 32 KB of float32.
constexpr int64_t kBlock = 8192;
/// Width that a row is folded to.
constexpr int64_t kWidth = 64;
/// Blocks a task works on.
constexpr int64_t kTaskBlocks = 2;

struct Layout {
  int64_t rows, channels;
  int64_t fold;   ///< rows that count as one
  int64_t width;  ///< fold * channels: a multiple of the register unless there are many channels
  int64_t block_rows, blocks;
};

template <class A>
Layout make_layout(int64_t rows, int64_t channels) {
  int64_t fold = 1;
  if (channels < kWidth || (channels < 8 * kWidth && channels % kLanes<A> != 0)) {
    fold = kLanes<A> / std::gcd(channels, int64_t{kLanes<A>});
    fold *= (kWidth + fold * channels - 1) / (fold * channels);
  }
  const int64_t width = fold * channels, wide_rows = std::max((kBlock + width - 1) / width, int64_t{16});
  const int64_t block_rows = fold * wide_rows;
  return {rows, channels, fold, width, block_rows, (rows + block_rows - 1) / block_rows};
}

/// Calls f(block, first row, rows) for every block, in parallel.
template <class Make, class F>
void for_each_block(const Context& ctx, const Layout& layout, const Make& make_scratch, const F& f) {
  ctx.parallel_for(layout.blocks, kTaskBlocks, [&](int64_t begin, int64_t end) {
    const auto scratch = make_scratch();
    for (int64_t b = begin; b < end; ++b) {
      const int64_t first = b * layout.block_rows;
      f(scratch, b, first, std::min(layout.block_rows, layout.rows - first));
    }
  });
}

/// Repeats per-channel values to the folded width.
template <class A, class F>
void repeat(const Layout& layout, A* out, const F& value) {
  for (int64_t c = 0; c < layout.channels; ++c) out[c] = value(c);
  for (int64_t i = layout.channels; i < layout.width; ++i) out[i] = out[i - layout.channels];
}

/// Adds the lanes of a folded row up by channel: sums[c] += lanes[c] + lanes[channels + c] + ...
template <class A>
void unfold(const Layout& layout, const A* lanes, A* sums) {
  for (int64_t j = 0; j < layout.fold; ++j) {
    for (int64_t c = 0; c < layout.channels; ++c) sums[c] += lanes[j * layout.channels + c];
  }
}

/// Sums over the rows of a block, by channel. term(i, j, m, s): adds elements [i, i + m) of the block, which lie in
/// lanes [j, j + m) of the width, to the registers s[0 .. N). Rows that do not fill a folded one go through the same
/// code with m short. lanes: room for N * width; sums: N * channels.
template <int N, class A, class Term>
void sum_rows(const Layout& layout, int64_t rows, const Term& term, A* lanes, A* sums) {
  constexpr int64_t kStep = kLanes<A>;
  constexpr int kRegisters = 4;
  const int64_t wide_rows = rows / layout.fold, width = layout.width, rest = rows % layout.fold * layout.channels;
  int64_t j = 0;
  for (; j + kRegisters * kStep <= width; j += kRegisters * kStep) {
    Lanes<A> s[kRegisters][N] = {};
    for (int64_t r = 0; r < wide_rows; ++r) {
      for (int k = 0; k < kRegisters; ++k) term(r * width + j + k * kStep, j + k * kStep, kStep, s[k]);
    }
    for (int k = 0; k < kRegisters; ++k) {
      for (int n = 0; n < N; ++n) store_lanes(lanes + n * width + j + k * kStep, s[k][n]);
    }
  }
  for (; j < width; j += kStep) {
    const int64_t m = std::min(kStep, width - j);
    Lanes<A> s[N] = {};
    for (int64_t r = 0; r < wide_rows; ++r) term(r * width + j, j, m, s);
    for (int n = 0; n < N; ++n) store_part(lanes + n * width + j, m, s[n]);
  }
  for (j = 0; j < rest; j += kStep) {
    const int64_t m = std::min(kStep, rest - j);
    Lanes<A> s[N];
    for (int n = 0; n < N; ++n) s[n] = load_part(lanes + n * width + j, m, A(0));
    term(wide_rows * width + j, j, m, s);
    for (int n = 0; n < N; ++n) store_part(lanes + n * width + j, m, s[n]);
  }
  std::fill_n(sums, N * layout.channels, A(0));
  for (int n = 0; n < N; ++n) unfold(layout, lanes + n * width, sums + n * layout.channels);
}

/// Calls f(i, j, m) for the elements [i, i + m) of a block, which lie in lanes [j, j + m) of the width.
template <class A, class F>
void for_each_element(const Layout& layout, int64_t rows, const F& f) {
  const int64_t n = rows * layout.channels, width = layout.width;
  for (int64_t first = 0; first < n; first += width) {
    for_lanes<A>(std::min(width, n - first), [&](int64_t j, int64_t m) { f(first + j, j, m); });
  }
}

/// Mean and sum of squared deviations of one block, [2 * channels] in float64.
template <class A>
void block_statistics(const Layout& layout, const A* x, int64_t rows, A* scratch, double* out) {
  const int64_t width = layout.width, channels = layout.channels;
  A *center = scratch, *lanes = center + width, *sums = lanes + 2 * width;
  const auto sum = [&](int64_t i, int64_t, int64_t m, Lanes<A>* s) { s[0] += load_part(x + i, m, A(0)); };
  sum_rows<1>(layout, rows, sum, lanes, sums);
  repeat(layout, center, [&](int64_t c) { return sums[c] / static_cast<A>(rows); });
  const auto deviations = [&](int64_t i, int64_t j, int64_t m, Lanes<A>* s) {
    const Lanes<A> d = load_part(x + i, m, A(0)) - load_part(center + j, m, A(0));
    s[0] += d;
    s[1] += d * d;
  };
  sum_rows<2>(layout, rows, deviations, lanes, sums);
  for (int64_t c = 0; c < channels; ++c) {
    // The mean above is rounded: what is left of the deviations corrects it.
    const double left = static_cast<double>(sums[c]) / static_cast<double>(rows);
    out[c] = static_cast<double>(center[c]) + left;
    out[channels + c] = static_cast<double>(sums[channels + c]) - left * static_cast<double>(sums[c]);
  }
}

/// Statistics of the batch into mean and rstd, and into the running ones.
template <class T>
void batch_statistics(const Context& ctx, const BatchNormParams& p, const Layout& layout) {
  using A = ComputeOf<T>;
  const int64_t channels = layout.channels, block_size = layout.block_rows * channels;
  const Scratch<double> partial(ctx, layout.blocks * 2 * channels);
  const bool converts = !std::is_same_v<A, T>;
  const int64_t room = 3 * layout.width + 2 * channels;
  const auto make_scratch = [&] { return Scratch<A>(ctx, room + (converts ? block_size : 0)); };
  for_each_block(ctx, layout, make_scratch, [&](const Scratch<A>& scratch, int64_t b, int64_t first, int64_t rows) {
    const T* x = static_cast<const T*>(p.x) + first * channels;
    const A* values = load(x, dtype_of<T>, rows * channels, 1, scratch.data() + room);
    block_statistics(layout, values, rows, scratch.data(), partial.data() + b * 2 * channels);
  });
  const double n = static_cast<double>(layout.rows), momentum = p.momentum;
  A *mean_out = static_cast<A*>(p.mean), *rstd_out = static_cast<A*>(p.rstd);
  A *running_mean = static_cast<A*>(p.running_mean), *running_var = static_cast<A*>(p.running_var);
  ctx.parallel_for(channels, 16, [&](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; ++c) {
      double mean = 0, squares = 0;
      const auto rows_of = [&](int64_t b) {
        return static_cast<double>(std::min(layout.block_rows, layout.rows - b * layout.block_rows));
      };
      for (int64_t b = 0; b < layout.blocks; ++b) mean += partial[b * 2 * channels + c] * rows_of(b);
      mean /= n;
      for (int64_t b = 0; b < layout.blocks; ++b) {
        const double d = partial[b * 2 * channels + c] - mean;
        squares += partial[(b * 2 + 1) * channels + c] + d * d * rows_of(b);
      }
      mean_out[c] = static_cast<A>(mean);
      rstd_out[c] = static_cast<A>(1 / std::sqrt(squares / n + p.eps));
      if (running_mean != nullptr) {
        running_mean[c] = static_cast<A>((1 - momentum) * static_cast<double>(running_mean[c]) + momentum * mean);
      }
      if (running_var != nullptr) {
        running_var[c] =
            static_cast<A>((1 - momentum) * static_cast<double>(running_var[c]) + momentum * squares / (n - 1));
      }
    }
  });
}

template <class T>
Status batch_norm_kernel(const Context& ctx, const BatchNormParams& p) {
  using A = ComputeOf<T>;
  const Layout layout = make_layout<A>(p.rows, p.channels);
  const int64_t channels = p.channels, width = layout.width, block_size = layout.block_rows * channels;
  const A *weight = static_cast<const A*>(p.weight), *bias = static_cast<const A*>(p.bias);
  A *mean = static_cast<A*>(p.mean), *rstd = static_cast<A*>(p.rstd);
  if (p.training) {
    batch_statistics<T>(ctx, p, layout);
  } else {
    const A *running_mean = static_cast<const A*>(p.running_mean), *running_var = static_cast<const A*>(p.running_var);
    for (int64_t c = 0; c < channels; ++c) {
      mean[c] = running_mean[c];
      rstd[c] = static_cast<A>(1 / std::sqrt(static_cast<double>(running_var[c]) + p.eps));
    }
  }
  const Scratch<A> coefficients(ctx, 3 * width);
  A *center = coefficients.data(), *scale = center + width, *shift = scale + width;
  repeat(layout, center, [&](int64_t c) { return mean[c]; });
  repeat(layout, scale, [&](int64_t c) { return weight != nullptr ? weight[c] * rstd[c] : rstd[c]; });
  repeat(layout, shift, [&](int64_t c) { return bias != nullptr ? bias[c] : A(0); });
  const bool converts = !std::is_same_v<A, T>;
  const auto make_scratch = [&] { return Scratch<A>(ctx, converts ? block_size : 0); };
  for_each_block(ctx, layout, make_scratch, [&](const Scratch<A>& scratch, int64_t, int64_t first, int64_t rows) {
    const int64_t n = rows * channels;
    const A* x = load(static_cast<const T*>(p.x) + first * channels, dtype_of<T>, n, 1, scratch.data());
    T* out = static_cast<T*>(p.y) + first * channels;
    A* y = target(out, dtype_of<T>, 1, scratch.data());
    for_each_element<A>(layout, rows, [&](int64_t i, int64_t j, int64_t m) {
      const Lanes<A> d = load_part(x + i, m, A(0)) - load_part(center + j, m, A(0));
      store_part(y + i, m, d * load_part(scale + j, m, A(0)) + load_part(shift + j, m, A(0)));
    });
    store(out, dtype_of<T>, n, 1, y);
  });
  return Status::ok;
}

/// sums[c] = sum of dy, sums[channels + c] = sum of dy (x - mean), over all rows.
template <class T>
void gradient_sums(const Context& ctx, const BatchNormGradParams& p, const Layout& layout, double* sums) {
  using A = ComputeOf<T>;
  const int64_t channels = layout.channels, width = layout.width, block_size = layout.block_rows * channels;
  const Scratch<double> partial(ctx, layout.blocks * 2 * channels);
  const Scratch<A> center(ctx, width);
  repeat(layout, center.data(), [&](int64_t c) { return static_cast<const A*>(p.mean)[c]; });
  const bool converts = !std::is_same_v<A, T>;
  const int64_t room = 2 * width + 2 * channels;
  const auto make_scratch = [&] { return Scratch<A>(ctx, room + (converts ? 2 * block_size : 0)); };
  for_each_block(ctx, layout, make_scratch, [&](const Scratch<A>& scratch, int64_t b, int64_t first, int64_t rows) {
    A *lanes = scratch.data(), *block_sums = lanes + 2 * width, *buffer = lanes + room;
    const int64_t n = rows * channels;
    const A* x = load(static_cast<const T*>(p.x) + first * channels, dtype_of<T>, n, 1, buffer);
    const A* dy = load(static_cast<const T*>(p.dy) + first * channels, dtype_of<T>, n, 1, buffer + block_size);
    const auto term = [&](int64_t i, int64_t j, int64_t m, Lanes<A>* s) {
      const Lanes<A> g = load_part(dy + i, m, A(0));
      s[0] += g;
      s[1] += g * (load_part(x + i, m, A(0)) - load_part(center.data() + j, m, A(0)));
    };
    sum_rows<2>(layout, rows, term, lanes, block_sums);
    for (int64_t c = 0; c < 2 * channels; ++c) partial[b * 2 * channels + c] = static_cast<double>(block_sums[c]);
  });
  ctx.parallel_for(2 * channels, 32, [&](int64_t begin, int64_t end) {
    std::fill(sums + begin, sums + end, 0.0);
    for (int64_t b = 0; b < layout.blocks; ++b) {
      for (int64_t c = begin; c < end; ++c) sums[c] += partial[b * 2 * channels + c];
    }
  });
}

template <class T>
Status batch_norm_grad_kernel(const Context& ctx, const BatchNormGradParams& p) {
  using A = ComputeOf<T>;
  const Layout layout = make_layout<A>(p.rows, p.channels);
  const int64_t channels = p.channels, width = layout.width, block_size = layout.block_rows * channels;
  const A *weight = static_cast<const A*>(p.weight), *mean = static_cast<const A*>(p.mean);
  const A* rstd = static_cast<const A*>(p.rstd);
  const Scratch<double> sums(ctx, 2 * channels);
  const bool needs_sums = p.training || p.dweight != nullptr || p.dbias != nullptr;
  if (needs_sums) gradient_sums<T>(ctx, p, layout, sums.data());
  for (int64_t c = 0; c < channels; ++c) {
    if (p.dbias != nullptr) static_cast<A*>(p.dbias)[c] = static_cast<A>(sums[c]);
    if (p.dweight != nullptr) {
      static_cast<A*>(p.dweight)[c] = static_cast<A>(sums[channels + c] * static_cast<double>(rstd[c]));
    }
  }
  if (p.dx == nullptr) return Status::ok;

  // dx = scale (dy - offset - (x - center) slope); evaluation has neither offset nor slope.
  const Scratch<A> coefficients(ctx, 4 * width);
  A *center = coefficients.data(), *scale = center + width, *offset = scale + width, *slope = offset + width;
  const double n_rows = static_cast<double>(p.rows);
  repeat(layout, center, [&](int64_t c) { return mean[c]; });
  repeat(layout, scale, [&](int64_t c) { return weight != nullptr ? weight[c] * rstd[c] : rstd[c]; });
  repeat(layout, offset, [&](int64_t c) { return p.training ? static_cast<A>(sums[c] / n_rows) : A(0); });
  repeat(layout, slope, [&](int64_t c) {
    const double r = static_cast<double>(rstd[c]);
    return p.training ? static_cast<A>(sums[channels + c] * r * r / n_rows) : A(0);
  });
  const bool converts = !std::is_same_v<A, T>;
  const auto make_scratch = [&] { return Scratch<A>(ctx, converts ? 2 * block_size : 0); };
  for_each_block(ctx, layout, make_scratch, [&](const Scratch<A>& scratch, int64_t, int64_t first, int64_t rows) {
    const int64_t n = rows * channels, at = first * channels;
    const A* dy = load(static_cast<const T*>(p.dy) + at, dtype_of<T>, n, 1, scratch.data());
    T* out = static_cast<T*>(p.dx) + at;
    A* dx = target(out, dtype_of<T>, 1, scratch.data());
    if (p.training) {
      const A* x = load(static_cast<const T*>(p.x) + at, dtype_of<T>, n, 1, scratch.data() + block_size);
      for_each_element<A>(layout, rows, [&](int64_t i, int64_t j, int64_t m) {
        const Lanes<A> d = load_part(x + i, m, A(0)) - load_part(center + j, m, A(0));
        const Lanes<A> g =
            load_part(dy + i, m, A(0)) - load_part(offset + j, m, A(0)) - d * load_part(slope + j, m, A(0));
        store_part(dx + i, m, load_part(scale + j, m, A(0)) * g);
      });
    } else {
      for_each_element<A>(layout, rows, [&](int64_t i, int64_t j, int64_t m) {
        store_part(dx + i, m, load_part(scale + j, m, A(0)) * load_part(dy + i, m, A(0)));
      });
    }
    store(out, dtype_of<T>, n, 1, dx);
  });
  return Status::ok;
}

#define ANELLO_NORM_KERNELS(T)                                    \
  ANELLO_KERNEL(kBatchNorm, batch_norm_kernel<T>, {dtype_of<T>}); \
  ANELLO_KERNEL(kBatchNormGrad, batch_norm_grad_kernel<T>, {dtype_of<T>});
ANELLO_NORM_KERNELS(Float16)
ANELLO_NORM_KERNELS(BFloat16)
ANELLO_NORM_KERNELS(float)
ANELLO_NORM_KERNELS(double)

}  // namespace
}  // namespace anello::kernel
