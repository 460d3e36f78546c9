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
#include <type_traits>

namespace anello::kernel {
namespace {

/// Elements of a block: 32 KB of float32.
constexpr int64_t kBlock = 8192;
/// Width that a row is folded to.
constexpr int64_t kWidth = 64;
/// Channels whose blocks are merged by one task.
constexpr int64_t kMerge = 32;
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
  // What is done once a block (adding lanes up, merging) is spread over enough rows, also of many channels.
  const int64_t width = fold * channels;
  const int64_t wide_rows = std::max({kBlock / width, std::min<int64_t>(64, 8 * kBlock / width), int64_t{8}});
  const int64_t block_rows = fold * wide_rows;
  return {rows, channels, fold, width, block_rows, (rows + block_rows - 1) / block_rows};
}

/// Calls f(scratch, block, first row, rows) for every block, in parallel; scratch has room for `room` values of A.
template <class A, class F>
void for_each_block(const Context& ctx, const Layout& layout, int64_t room, const F& f) {
  ctx.parallel_for(layout.blocks, kTaskBlocks, [&](int64_t begin, int64_t end) {
    const Scratch<A> scratch(ctx, room);
    for (int64_t b = begin; b < end; ++b) {
      const int64_t first = b * layout.block_rows;
      f(scratch.data(), b, first, std::min(layout.block_rows, layout.rows - first));
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
/// lanes [j, j + m) of the width, to the registers s[0 .. N). lanes: room for N * width; sums: N * channels.
template <int N, class A, class Term>
void sum_rows(const Layout& layout, int64_t rows, const Term& term, A* lanes, A* sums) {
  constexpr int64_t kStep = kLanes<A>;
  const int64_t width = layout.width, n = rows * layout.channels;
  // Adds one row, whole or cut short, to the sums in memory.
  const auto add_row = [&](int64_t first) {
    for_lanes<A>(std::min(width, n - first), [&](int64_t j, int64_t m) {
      Lanes<A> s[N];
      for (int k = 0; k < N; ++k) s[k] = load_part(lanes + k * width + j, m, A(0));
      term(first + j, j, m, s);
      for (int k = 0; k < N; ++k) store_part(lanes + k * width + j, m, s[k]);
    });
  };
  std::fill_n(lanes, N * width, A(0));
  int64_t done = 0;
  if (width % kStep == 0) {
    // Whole rows: strips of a few registers, in which the sums stay from the first row to the last.
    done = n / width * width;
    const auto strip = [&]<int R>(std::integral_constant<int, R>, int64_t j) {
      Lanes<A> s[R][N] = {};
      for (int64_t first = j; first < done; first += width) {
        for (int k = 0; k < R; ++k) term(first + k * kStep, j + k * kStep, kStep, s[k]);
      }
      for (int k = 0; k < R; ++k) {
        for (int q = 0; q < N; ++q) store_lanes(lanes + q * width + j + k * kStep, s[k][q]);
      }
    };
    int64_t j = 0;
    for (; j + 4 * kStep <= width; j += 4 * kStep) strip(std::integral_constant<int, 4>(), j);
    for (; j < width; j += kStep) strip(std::integral_constant<int, 1>(), j);
  }
  for (; done < n; done += width) add_row(done);
  std::fill_n(sums, N * layout.channels, A(0));
  for (int k = 0; k < N; ++k) unfold(layout, lanes + k * width, sums + k * layout.channels);
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
template <class T, class A>
void block_statistics(const Layout& layout, const T* x, int64_t rows, A* scratch, double* out) {
  const int64_t width = layout.width, channels = layout.channels;
  A *center = scratch, *lanes = center + width, *sums = lanes + 2 * width;
  const auto sum = [&](int64_t i, int64_t, int64_t m, Lanes<A>* s) { s[0] += read_lanes(x + i, m); };
  sum_rows<1>(layout, rows, sum, lanes, sums);
  repeat(layout, center, [&](int64_t c) { return sums[c] / static_cast<A>(rows); });
  const auto deviations = [&](int64_t i, int64_t j, int64_t m, Lanes<A>* s) {
    const Lanes<A> d = read_lanes(x + i, m) - load_part(center + j, m, A(0));
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
  const int64_t channels = layout.channels;
  const Scratch<double> partial(ctx, layout.blocks * 2 * channels);
  const int64_t room = 3 * layout.width + 2 * channels;
  for_each_block<A>(ctx, layout, room, [&](A* scratch, int64_t b, int64_t first, int64_t rows) {
    const T* x = static_cast<const T*>(p.x) + first * channels;
    block_statistics(layout, x, rows, scratch, partial.data() + b * 2 * channels);
  });
  const double n = static_cast<double>(layout.rows), momentum = p.momentum;
  A *mean_out = static_cast<A*>(p.mean), *rstd_out = static_cast<A*>(p.rstd);
  A *running_mean = static_cast<A*>(p.running_mean), *running_var = static_cast<A*>(p.running_var);
  ctx.parallel_for(channels, kMerge, [&](int64_t begin, int64_t end) {
    double mean[kMerge] = {}, squares[kMerge] = {};
    const auto rows_of = [&](int64_t b) {
      return static_cast<double>(std::min(layout.block_rows, layout.rows - b * layout.block_rows));
    };
    for (int64_t b = 0; b < layout.blocks; ++b) {
      for (int64_t c = begin; c < end; ++c) mean[c - begin] += partial[b * 2 * channels + c] * (rows_of(b) / n);
    }
    for (int64_t b = 0; b < layout.blocks; ++b) {
      for (int64_t c = begin; c < end; ++c) {
        const double d = partial[b * 2 * channels + c] - mean[c - begin];
        squares[c - begin] += partial[(b * 2 + 1) * channels + c] + d * d * rows_of(b);
      }
    }
    for (int64_t c = begin; c < end; ++c) {
      const double average = mean[c - begin], deviations = squares[c - begin];
      mean_out[c] = static_cast<A>(average);
      rstd_out[c] = static_cast<A>(1 / std::sqrt(deviations / n + p.eps));
      const auto mix = [&](A* running, double batch) {
        if (running != nullptr)
          running[c] = static_cast<A>((1 - momentum) * static_cast<double>(running[c]) + momentum * batch);
      };
      mix(running_mean, average);
      mix(running_var, deviations / (n - 1));
    }
  });
}

template <class T>
Status batch_norm_kernel(const Context& ctx, const BatchNormParams& p) {
  using A = ComputeOf<T>;
  const Layout layout = make_layout<A>(p.rows, p.channels);
  const int64_t channels = p.channels, width = layout.width;
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
  for_each_block<A>(ctx, layout, 0, [&](A*, int64_t, int64_t first, int64_t rows) {
    const T* x = static_cast<const T*>(p.x) + first * channels;
    T* y = static_cast<T*>(p.y) + first * channels;
    for_each_element<A>(layout, rows, [&](int64_t i, int64_t j, int64_t m) {
      const Lanes<A> d = read_lanes(x + i, m) - load_part(center + j, m, A(0));
      write_lanes(y + i, m, d * load_part(scale + j, m, A(0)) + load_part(shift + j, m, A(0)));
    });
  });
  return Status::ok;
}

/// sums[c] = sum of dy, sums[channels + c] = sum of dy (x - mean), over all rows.
template <class T>
void gradient_sums(const Context& ctx, const BatchNormGradParams& p, const Layout& layout, double* sums) {
  using A = ComputeOf<T>;
  const int64_t channels = layout.channels, width = layout.width;
  const Scratch<double> partial(ctx, layout.blocks * 2 * channels);
  const Scratch<A> center(ctx, width);
  repeat(layout, center.data(), [&](int64_t c) { return static_cast<const A*>(p.mean)[c]; });
  for_each_block<A>(ctx, layout, 2 * width + 2 * channels, [&](A* lanes, int64_t b, int64_t first, int64_t rows) {
    const T *x = static_cast<const T*>(p.x) + first * channels, *dy = static_cast<const T*>(p.dy) + first * channels;
    A* block_sums = lanes + 2 * width;
    const auto term = [&](int64_t i, int64_t j, int64_t m, Lanes<A>* s) {
      const Lanes<A> g = read_lanes(dy + i, m);
      s[0] += g;
      s[1] += g * (read_lanes(x + i, m) - load_part(center.data() + j, m, A(0)));
    };
    sum_rows<2>(layout, rows, term, lanes, block_sums);
    for (int64_t c = 0; c < 2 * channels; ++c) partial[b * 2 * channels + c] = static_cast<double>(block_sums[c]);
  });
  ctx.parallel_for(2 * channels, kMerge, [&](int64_t begin, int64_t end) {
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
  const int64_t channels = p.channels, width = layout.width;
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
  for_each_block<A>(ctx, layout, 0, [&](A*, int64_t, int64_t first, int64_t rows) {
    const T *x = static_cast<const T*>(p.x) + first * channels, *dy = static_cast<const T*>(p.dy) + first * channels;
    T* dx = static_cast<T*>(p.dx) + first * channels;
    if (p.training) {
      for_each_element<A>(layout, rows, [&](int64_t i, int64_t j, int64_t m) {
        const Lanes<A> d = read_lanes(x + i, m) - load_part(center + j, m, A(0));
        const Lanes<A> g = read_lanes(dy + i, m) - load_part(offset + j, m, A(0)) - d * load_part(slope + j, m, A(0));
        write_lanes(dx + i, m, load_part(scale + j, m, A(0)) * g);
      });
    } else {
      for_each_element<A>(layout, rows, [&](int64_t i, int64_t j, int64_t m) {
        write_lanes(dx + i, m, load_part(scale + j, m, A(0)) * read_lanes(dy + i, m));
      });
    }
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
