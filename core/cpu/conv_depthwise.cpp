// Depthwise convolution and its adjoints: the lanes hold channels, the taps are added up in registers.
// Main entry: depthwise_gather(), depthwise_weight_grad().
#include <anello/core/cpu/conv_common.h>
#include <anello/core/cpu/convert.h>

#include <algorithm>

namespace anello::kernel {
namespace {

constexpr int64_t kSlices = 32;  // partial weight gradients, at most

/// out[c] = bias[c] + sum over the taps of rows[t][c] * weight[t][c] for NV registers of channels.
template <class A, int NV>
inline void sum_taps(const A* const* rows, int64_t taps, const A* weight, int64_t weight_step, const A* bias, int64_t c,
                     A* out) {
  Lanes<A> acc[NV];
  ANELLO_UNROLL for (int q = 0; q < NV; ++q) acc[q] =
      bias == nullptr ? Lanes<A>{} : load_lanes(bias + c + q * kLanes<A>);
  for (int64_t t = 0; t < taps; ++t) {
    if (rows[t] == nullptr) continue;
    ANELLO_UNROLL for (int q = 0; q < NV; ++q) acc[q] +=
        load_lanes(rows[t] + c + q * kLanes<A>) * load_lanes(weight + t * weight_step + c + q * kLanes<A>);
  }
  ANELLO_UNROLL for (int q = 0; q < NV; ++q) store_lanes(out + c + q * kLanes<A>, acc[q]);
}

/// One output position: all channels.
template <class A>
void sum_position(const A* const* rows, int64_t taps, const A* weight, const A* bias, int64_t channels, A* out) {
  constexpr int kWide = 4 * kLanes<A>;
  int64_t c = 0;
  for (; c + kWide <= channels; c += kWide) sum_taps<A, 4>(rows, taps, weight, channels, bias, c, out);
  for (; c + kLanes<A> <= channels; c += kLanes<A>) sum_taps<A, 1>(rows, taps, weight, channels, bias, c, out);
  for (; c < channels; ++c) {
    A sum = bias == nullptr ? A(0) : bias[c];
    for (int64_t t = 0; t < taps; ++t)
      if (rows[t] != nullptr) sum += rows[t][c] * weight[t * channels + c];
    out[c] = sum;
  }
}

/// sum[c] += y[c] x[c] over a run of positions, `y_step` and `x_step` apart.
template <class A>
void add_products(const A* y, int64_t y_step, const A* x, int64_t x_step, int64_t count, int64_t channels, A* sum) {
  int64_t c = 0;
  for (; c + kLanes<A> <= channels; c += kLanes<A>) {
    Lanes<A> acc = load_lanes(sum + c);
    for (int64_t i = 0; i < count; ++i) acc += load_lanes(y + i * y_step + c) * load_lanes(x + i * x_step + c);
    store_lanes(sum + c, acc);
  }
  for (; c < channels; ++c)
    for (int64_t i = 0; i < count; ++i) sum[c] += y[i * y_step + c] * x[i * x_step + c];
}

/// First output place and number of places along an axis for which `tap` is inside; they follow each other.
struct Run {
  int64_t begin, count;
};
Run valid_run(const AxisMap& map, int64_t tap) {
  Run run{0, 0};
  for (int64_t j = 0; j < map.outputs; ++j) {
    if (map.at(j, tap) < 0) continue;
    if (run.count++ == 0) run.begin = j;
  }
  return run;
}

}  // namespace

template <class A>
void depthwise_gather(const Context& ctx, const ConvParams& p, const AxisMap& height, const AxisMap& width) {
  const int64_t channels = p.shape.c, taps = height.taps * width.taps, row_size = width.inputs * channels;
  const Scratch<A> buffer(ctx, channels * taps), weight(ctx, channels * taps), bias_buffer(ctx, channels);
  const A* by_channel = load(p.weight, p.dtype, channels * taps, 1, buffer.data());
  for (int64_t c = 0; c < channels; ++c)
    for (int64_t t = 0; t < taps; ++t) weight[t * channels + c] = by_channel[c * taps + t];
  const A* bias = p.bias == nullptr ? nullptr : load(p.bias, p.dtype, channels, 1, bias_buffer.data());
  const int64_t rows_per_unit =
      std::clamp<int64_t>(divide_up(16384, std::max<int64_t>(1, width.outputs * channels)), 1, height.outputs);
  const int64_t units = divide_up(height.outputs, rows_per_unit);
  ctx.parallel_for(p.shape.n * units, 1, [&](int64_t unit, int64_t) {
    const int64_t image = unit / units, first = unit % units * rows_per_unit,
                  last = std::min(first + rows_per_unit, height.outputs);
    int64_t low = height.inputs, high = 0;
    for (int64_t i = first; i < last; ++i)
      for (int64_t r = 0; r < height.taps; ++r)
        if (const int64_t row = height.at(i, r); row >= 0) low = std::min(low, row), high = std::max(high, row + 1);
    low = std::min(low, high);
    const int64_t size = (high - low) * row_size;
    const Scratch<A> in_buffer(ctx, p.dtype == dtype_of<A> ? 0 : size), out_buffer(ctx, channels);
    const Scratch<const A*> rows(ctx, taps);
    const A* in =
        load(element(p.x, p.dtype, (image * height.inputs + low) * row_size), p.dtype, size, 1, in_buffer.data());
    for (int64_t i = first; i < last; ++i)
      for (int64_t j = 0; j < width.outputs; ++j) {
        for (int64_t t = 0; t < taps; ++t) {
          const int64_t y = height.at(i, t / width.taps), x = width.at(j, t % width.taps);
          rows[t] = y < 0 || x < 0 ? nullptr : in + (y - low) * row_size + x * channels;
        }
        void* to = element(p.out, p.dtype, ((image * height.outputs + i) * width.outputs + j) * channels);
        A* sum = target(to, p.dtype, 1, out_buffer.data());
        sum_position(rows.data(), taps, weight.data(), bias, channels, sum);
        store(to, p.dtype, channels, 1, sum);
      }
  });
}
template void depthwise_gather<float>(const Context&, const ConvParams&, const AxisMap&, const AxisMap&);
template void depthwise_gather<double>(const Context&, const ConvParams&, const AxisMap&, const AxisMap&);

template <class A>
void depthwise_weight_grad(const Context& ctx, const ConvParams& p) {
  const ConvShape& s = p.shape;
  const AxisMap height = AxisMap::forward(s, 0), width = AxisMap::forward(s, 1);
  const int64_t channels = s.c, taps = s.kh * s.kw, per_slice = std::max<int64_t>(1, divide_up(s.n, kSlices));
  const int64_t slices = divide_up(s.n, per_slice);
  const int64_t x_size = s.h * s.w * channels, y_size = s.out_h * s.out_w * channels;
  const Scratch<A> partial(ctx, std::max<int64_t>(1, slices) * taps * channels);
  ctx.parallel_for(slices, 1, [&](int64_t slice, int64_t) {
    A* sums = partial.data() + slice * taps * channels;
    std::fill_n(sums, taps * channels, A(0));
    const bool same = p.dtype == dtype_of<A>;
    const Scratch<A> x_buffer(ctx, same ? 0 : x_size), y_buffer(ctx, same ? 0 : y_size);
    for (int64_t image = slice * per_slice; image < std::min(s.n, (slice + 1) * per_slice); ++image) {
      const A* x = load(element(p.x, p.dtype, image * x_size), p.dtype, x_size, 1, x_buffer.data());
      const A* y = load(element(p.weight, p.dtype, image * y_size), p.dtype, y_size, 1, y_buffer.data());
      for (int64_t t = 0; t < taps; ++t) {
        const Run run = valid_run(width, t % s.kw);
        if (run.count == 0) continue;
        const int64_t column = width.at(run.begin, t % s.kw);
        for (int64_t i = 0; i < s.out_h; ++i)
          if (const int64_t row = height.at(i, t / s.kw); row >= 0)
            add_products(y + (i * s.out_w + run.begin) * channels, channels, x + (row * s.w + column) * channels,
                         s.stride[1] * channels, run.count, channels, sums + t * channels);
      }
    }
  });
  const Scratch<A> buffer(ctx, taps);
  for (int64_t c = 0; c < channels; ++c) {
    void* to = element(p.out, p.dtype, c * taps);
    const A* old = p.accumulate ? load(to, p.dtype, taps, 1, buffer.data()) : nullptr;
    A* sum = target(to, p.dtype, 1, buffer.data());
    for (int64_t t = 0; t < taps; ++t) {
      A total = old == nullptr ? A(0) : old[t];
      for (int64_t slice = 0; slice < slices; ++slice) total += partial[(slice * taps + t) * channels + c];
      sum[t] = total;
    }
    store(to, p.dtype, taps, 1, sum);
  }
}
template void depthwise_weight_grad<float>(const Context&, const ConvParams&);
template void depthwise_weight_grad<double>(const Context&, const ConvParams&);

}  // namespace anello::kernel
