// Pooling: every kernel reads, for each output position, the inputs at some taps; the lanes hold channels. The adjoints
// read instead of adding into place, so that rows are independent of each other. Main entry: max_pool2d<A>(),
// max_pool2d_scatter<A>(), max_pool2d_gather<A>(), avg_pool2d<A>(), avg_pool2d_grad<A>().
#include <anello/core/cpu/conv_common.h>
#include <anello/core/cpu/convert.h>
#include <anello/core/kernels/pool.h>

#include <algorithm>
#include <type_traits>

namespace anello::kernel {
namespace {

constexpr int64_t kUnitValues = 32 << 10;  // results a unit makes

AxisMap forward_map(const PoolShape& s, int axis) {
  ConvShape c{};
  c.h = s.h, c.w = s.w, c.out_h = s.out_h, c.out_w = s.out_w, c.kh = s.kernel[0], c.kw = s.kernel[1];
  for (int i : {0, 1}) c.stride[i] = s.stride[i], c.padding[i] = s.padding[i], c.dilation[i] = 1;
  return AxisMap::forward(c, axis);
}
AxisMap backward_map(const PoolShape& s, int axis) {
  ConvShape c{};
  c.h = s.h, c.w = s.w, c.out_h = s.out_h, c.out_w = s.out_w, c.kh = s.kernel[0], c.kw = s.kernel[1];
  for (int i : {0, 1}) c.stride[i] = s.stride[i], c.padding[i] = s.padding[i], c.dilation[i] = 1;
  return AxisMap::backward(c, axis);
}

/// One input that an output position reads.
template <class A>
struct Source {
  const A* values;   ///< [c]
  int64_t position;  ///< in the whole input
  int32_t tap;
  int64_t row, column;  ///< in the image
};

/// Calls f(sources, count, position, to) for each output position, with the inputs its taps reach in order, in parallel
/// over rows; f writes c values of A to `to`.
template <class A, class F>
void each_position(const Context& ctx, const void* in, void* out, DType dtype, int64_t images, int64_t channels,
                   const AxisMap& height, const AxisMap& width, const F& f) {
  const int64_t row_size = width.inputs * channels, taps = height.taps * width.taps;
  const int64_t rows_per_unit = std::clamp<int64_t>(kUnitValues / std::max<int64_t>(1, width.outputs * channels), 1,
                                                    std::max<int64_t>(1, height.outputs));
  const int64_t units = divide_up(height.outputs, rows_per_unit);
  ctx.parallel_for(images * units, 1, [&](int64_t unit, int64_t) {
    const int64_t image = unit / units, first = unit % units * rows_per_unit,
                  last = std::min(first + rows_per_unit, height.outputs);
    int64_t low = height.inputs, high = 0;
    for (int64_t i = first; i < last; ++i)
      for (int64_t r = 0; r < height.taps; ++r)
        if (const int64_t row = height.at(i, r); row >= 0) low = std::min(low, row), high = std::max(high, row + 1);
    low = std::min(low, high);
    const int64_t size = (high - low) * row_size;
    const Scratch<A> in_buffer(ctx, dtype == dtype_of<A> ? 0 : size), out_buffer(ctx, channels);
    const Scratch<Source<A>> sources(ctx, taps);
    const A* values =
        load(element(in, dtype, (image * height.inputs + low) * row_size), dtype, size, 1, in_buffer.data());
    for (int64_t i = first; i < last; ++i)
      for (int64_t j = 0; j < width.outputs; ++j) {
        int64_t count = 0;
        for (int64_t r = 0; r < height.taps; ++r) {
          const int64_t row = height.at(i, r);
          if (row < 0) continue;
          for (int64_t s = 0; s < width.taps; ++s) {
            const int64_t column = width.at(j, s);
            if (column < 0) continue;
            sources[count++] = {values + (row - low) * row_size + column * channels,
                                (image * height.inputs + row) * width.inputs + column,
                                static_cast<int32_t>(r * width.taps + s), row, column};
          }
        }
        const int64_t position = (image * height.outputs + i) * width.outputs + j;
        void* place = element(out, dtype, position * channels);
        A* to = target(place, dtype, 1, out_buffer.data());
        f(sources.data(), count, position, to);
        store(place, dtype, channels, 1, to);
      }
  });
}

template <class A>
inline constexpr bool kHasLanes = std::is_floating_point_v<A>;

/// 32-bit values as lanes as wide as A's.
template <class A>
IntLanes<A> load_taps(const int32_t* p) {
  using Narrow __attribute__((vector_size(kLanes<A> * 4))) = int32_t;
  Narrow v;
  std::memcpy(&v, p, sizeof v);
  return __builtin_convertvector(v, IntLanes<A>);
}
template <class A>
void store_taps(int32_t* p, IntLanes<A> taps) {
  using Narrow __attribute__((vector_size(kLanes<A> * 4))) = int32_t;
  const Narrow v = __builtin_convertvector(taps, Narrow);
  std::memcpy(p, &v, sizeof v);
}

/// The largest of the sources, channel by channel, and its tap (when taps is not null).
template <class A>
void largest(const Source<A>* sources, int64_t count, int64_t channels, A* to, int32_t* taps) {
  int64_t c = 0;
  if constexpr (kHasLanes<A>) {
    for (; c + kLanes<A> <= channels; c += kLanes<A>) {
      Lanes<A> best = load_lanes(sources[0].values + c);
      IntLanes<A> from = IntLanes<A>{} + sources[0].tap;
      for (int64_t k = 1; k < count; ++k) {
        const Lanes<A> v = load_lanes(sources[k].values + c);
        const auto take = (v > best) | (v != v);
        best = take ? v : best;
        from = take ? IntLanes<A>{} + sources[k].tap : from;
      }
      store_lanes(to + c, best);
      if (taps != nullptr) store_taps<A>(taps + c, from);
    }
  }
  for (; c < channels; ++c) {
    A best = sources[0].values[c];
    int32_t from = sources[0].tap;
    for (int64_t k = 1; k < count; ++k) {
      const A v = sources[k].values[c];
      if (v > best || v != v) best = v, from = sources[k].tap;
    }
    to[c] = best;
    if (taps != nullptr) taps[c] = from;
  }
}

/// Sum of the sources' values where `taps_of(k)` + c names the source's own tap.
template <class A, class TapsOf>
void sum_named(const Source<A>* sources, int64_t count, int64_t channels, const TapsOf& taps_of, A* to) {
  int64_t c = 0;
  for (; c + kLanes<A> <= channels; c += kLanes<A>) {
    Lanes<A> sum{};
    for (int64_t k = 0; k < count; ++k) {
      const auto named = load_taps<A>(taps_of(k) + c) == IntLanes<A>{} + sources[k].tap;
      sum += named ? load_lanes(sources[k].values + c) : Lanes<A>{};
    }
    store_lanes(to + c, sum);
  }
  for (; c < channels; ++c) {
    A sum = 0;
    for (int64_t k = 0; k < count; ++k) sum += taps_of(k)[c] == sources[k].tap ? sources[k].values[c] : A(0);
    to[c] = sum;
  }
}

/// Sum of the sources, each times weight_of(k).
template <class A, class WeightOf>
void sum_weighted(const Source<A>* sources, int64_t count, int64_t channels, const WeightOf& weight_of, A* to) {
  int64_t c = 0;
  for (; c + kLanes<A> <= channels; c += kLanes<A>) {
    Lanes<A> sum{};
    for (int64_t k = 0; k < count; ++k) sum += load_lanes(sources[k].values + c) * weight_of(k);
    store_lanes(to + c, sum);
  }
  for (; c < channels; ++c) {
    A sum = 0;
    for (int64_t k = 0; k < count; ++k) sum += sources[k].values[c] * weight_of(k);
    to[c] = sum;
  }
}

template <class A>
Status max_pool2d(const Context& ctx, const MaxPoolParams& p) {
  const PoolShape& s = p.shape;
  each_position<A>(ctx, p.in, p.out, p.dtype, s.n, s.c, forward_map(s, 0), forward_map(s, 1),
                   [&](const Source<A>* sources, int64_t count, int64_t position, A* to) {
                     largest(sources, count, s.c, to, p.taps == nullptr ? nullptr : p.taps + position * s.c);
                   });
  return Status::ok;
}

template <class A>
Status max_pool2d_scatter(const Context& ctx, const MaxPoolParams& p) {
  const PoolShape& s = p.shape;
  each_position<A>(ctx, p.in, p.out, p.dtype, s.n, s.c, backward_map(s, 0), backward_map(s, 1),
                   [&](const Source<A>* sources, int64_t count, int64_t, A* to) {
                     sum_named(
                         sources, count, s.c, [&](int64_t k) { return p.taps + sources[k].position * s.c; }, to);
                   });
  return Status::ok;
}

template <class A>
Status max_pool2d_gather(const Context& ctx, const MaxPoolParams& p) {
  const PoolShape& s = p.shape;
  each_position<A>(ctx, p.in, p.out, p.dtype, s.n, s.c, forward_map(s, 0), forward_map(s, 1),
                   [&](const Source<A>* sources, int64_t count, int64_t position, A* to) {
                     sum_named(
                         sources, count, s.c, [&](int64_t) { return p.taps + position * s.c; }, to);
                   });
  return Status::ok;
}

/// Places that a window counts along an axis: those inside the image, or inside image and padding.
std::vector<double> window_sizes(const PoolShape& s, int axis, bool count_padding) {
  const int64_t size = axis == 0 ? s.h : s.w, outputs = axis == 0 ? s.out_h : s.out_w;
  std::vector<double> counts;
  for (int64_t i = 0; i < outputs; ++i) {
    const int64_t begin = i * s.stride[axis] - s.padding[axis], end = begin + s.kernel[axis];
    const int64_t margin = count_padding ? s.padding[axis] : 0;
    counts.push_back(static_cast<double>(std::min(end, size + margin) - std::max(begin, -margin)));
  }
  return counts;
}

template <class A>
Status avg_pool2d(const Context& ctx, const AvgPoolParams& p) {
  const PoolShape& s = p.shape;
  const std::vector<double> rows = window_sizes(s, 0, p.count_padding), columns = window_sizes(s, 1, p.count_padding);
  each_position<A>(ctx, p.in, p.out, p.dtype, s.n, s.c, forward_map(s, 0), forward_map(s, 1),
                   [&](const Source<A>* sources, int64_t count, int64_t position, A* to) {
                     const auto i = static_cast<size_t>(position / s.out_w % s.out_h),
                                j = static_cast<size_t>(position % s.out_w);
                     sum_weighted(
                         sources, count, s.c, [](int64_t) { return A(1); }, to);
                     const A scale = static_cast<A>(1 / (rows[i] * columns[j]));
                     for (int64_t c = 0; c < s.c; ++c) to[c] *= scale;
                   });
  return Status::ok;
}

template <class A>
Status avg_pool2d_grad(const Context& ctx, const AvgPoolParams& p) {
  const PoolShape& s = p.shape;
  const std::vector<double> rows = window_sizes(s, 0, p.count_padding), columns = window_sizes(s, 1, p.count_padding);
  each_position<A>(ctx, p.in, p.out, p.dtype, s.n, s.c, backward_map(s, 0), backward_map(s, 1),
                   [&](const Source<A>* sources, int64_t count, int64_t, A* to) {
                     sum_weighted(
                         sources, count, s.c,
                         [&](int64_t k) {
                           return static_cast<A>(1 / (rows[static_cast<size_t>(sources[k].row)] *
                                                      columns[static_cast<size_t>(sources[k].column)]));
                         },
                         to);
                   });
  return Status::ok;
}

ANELLO_KERNEL(kMaxPool2d, max_pool2d<float>, {float16, bfloat16, float32});
ANELLO_KERNEL(kMaxPool2d, max_pool2d<double>, {float64});
ANELLO_KERNEL(kMaxPool2d, max_pool2d<int64_t>, kIntTypes);
ANELLO_KERNEL(kMaxPool2dScatter, max_pool2d_scatter<float>, {float16, bfloat16, float32});
ANELLO_KERNEL(kMaxPool2dScatter, max_pool2d_scatter<double>, {float64});
ANELLO_KERNEL(kMaxPool2dGather, max_pool2d_gather<float>, {float16, bfloat16, float32});
ANELLO_KERNEL(kMaxPool2dGather, max_pool2d_gather<double>, {float64});
ANELLO_KERNEL(kAvgPool2d, avg_pool2d<float>, {float16, bfloat16, float32});
ANELLO_KERNEL(kAvgPool2d, avg_pool2d<double>, {float64});
ANELLO_KERNEL(kAvgPool2dGrad, avg_pool2d_grad<float>, {float16, bfloat16, float32});
ANELLO_KERNEL(kAvgPool2dGrad, avg_pool2d_grad<double>, {float64});

}  // namespace
}  // namespace anello::kernel
