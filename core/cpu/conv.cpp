// Convolution and the gradient of its input: direct, register-tiled, no patches in memory. Each output tile sums over
// the taps and input channels in order, so neither the cut into units nor the thread count shows in the result. Main
// entry: conv2d<A>(), conv2d_input_grad<A>().
#include <anello/core/cpu/conv_common.h>
#include <anello/core/cpu/convert.h>
#include <anello/core/cpu/winograd.h>

#include <algorithm>
#include <cstring>

namespace anello::kernel {
namespace {

constexpr int64_t kUnitBytes = 512 << 10;    // input of one unit, to stay in L2 beside a panel of weights
constexpr int64_t kPanelBytes = 768 << 10;   // weights of one block
constexpr int64_t kPlanEntries = 128 << 10;  // offsets of one plan
constexpr int64_t kWantedUnits = 32;

/// The sum a kernel computes: `out` positions gather `in` positions through the maps, times a panel of weights.
template <class A>
struct Gather {
  const void* in;
  const A* panels;  ///< [group][block][tap][channel][columns]
  const A* bias;    ///< [group][padded columns], or null
  const A* zeros;
  void* out;
  DType dtype;
  const AxisMap *height, *width;
  int64_t images, groups;
  int64_t channels, columns;  ///< of one group: summed over, and produced

  int64_t taps() const { return height->taps * width->taps; }
  int64_t padded() const { return round_up(columns, kLanes<A>); }
  /// Registers of a group's columns in blocks, one panel each. A panel that would not fit in L2 is made narrower.
  EvenCut cut() const {
    const bool tall = taps() * channels * kTileColumns<A> * static_cast<int64_t>(sizeof(A)) > kPanelBytes;
    return {padded() / kLanes<A>, tall ? kTallTileVectors : kTileVectors};
  }
  int64_t blocks() const { return cut().pieces; }
  int64_t rows() const { return tile_rows(cut().largest()); }
  int64_t in_width() const { return groups * channels; }
  int64_t out_width() const { return groups * columns; }
  int64_t in_positions() const { return height->inputs * width->inputs; }
  int64_t out_positions() const { return height->outputs * width->outputs; }
};

/// Where weight (column, tap, channel) of a group lies.
struct WeightSteps {
  int64_t group, column, tap, channel;
};

/// Reorders the weights of a gather into panels: [tap][channel] rows of up to kTileColumns columns, zeros beyond the
/// last.
template <class A>
void pack_panels(const Context& ctx, const Gather<A>& g, const A* weight, const WeightSteps& steps, A* panels) {
  const int64_t taps = g.taps(), blocks = g.blocks();
  const EvenCut cut = g.cut();
  ctx.parallel_for(g.groups * blocks * taps, divide_up(16384, std::max<int64_t>(1, g.channels * kTileColumns<A>)),
                   [&](int64_t begin, int64_t end) {
                     for (int64_t item = begin; item < end; ++item) {
                       const int64_t tap = item % taps, block = item / taps % blocks, group = item / taps / blocks;
                       const int64_t first = cut.begin(block) * kLanes<A>, width = cut.size(block) * kLanes<A>;
                       const int64_t used = std::min(width, g.columns - first);
                       A* to = panels + (group * g.padded() + first) * taps * g.channels + tap * g.channels * width;
                       const A* from = weight + group * steps.group + first * steps.column + tap * steps.tap;
                       if (used < width) std::fill_n(to, g.channels * width, A(0));
                       if (steps.column == 1) {
                         for (int64_t c = 0; c < g.channels; ++c)
                           std::copy_n(from + c * steps.channel, used, to + c * width);
                         continue;
                       }
                       // A few columns at a time: their rows of `from` may all fall into the same cache sets.
                       for (int64_t column = 0; column < used; column += 8)
                         for (int64_t c = 0; c < g.channels; ++c)
                           for (int64_t l = column; l < std::min(column + 8, used); ++l)
                             to[c * width + l] = from[l * steps.column + c * steps.channel];
                     }
                   });
}

/// Runs the blocks [block_begin, block_end) (counted over all groups) of one plan. `in` is at the plan's first input
/// row, `out` counts positions from the plan's first output row.
template <class A>
void run_plan(const Gather<A>& g, const GatherPlan& plan, const A* in, int64_t out_position, int64_t block_begin,
              int64_t block_end) {
  alignas(64) A buffer[kTileRows * kTileColumns<A>];  // holds every shape of tile
  const EvenCut cut = g.cut();
  for (int64_t item = block_begin; item < block_end; ++item) {
    const int64_t group = item / cut.pieces, vectors = cut.size(item % cut.pieces),
                  first = cut.begin(item % cut.pieces) * kLanes<A>;
    const int64_t width = vectors * kLanes<A>, used = std::min(width, g.columns - first);
    GatherTile<A> tile;
    tile.base = in + group * g.channels;
    tile.zeros = g.zeros;
    tile.channels = g.channels;
    tile.panel = g.panels + (group * g.padded() + first) * g.taps() * g.channels;
    tile.panel_step = width;
    tile.bias = g.bias == nullptr ? nullptr : g.bias + group * g.padded() + first;
    for (const GatherPlan::Tile& t : plan.tiles()) {
      tile.offsets = plan.offsets(t);
      tile.taps = plan.taps(t);
      tile.tap_count = t.tap_count;
      gather_function<A>(t.height, vectors)(tile, buffer, width, false);
      const int64_t* outputs = plan.outputs(t);
      for (int p = 0; p < t.count; ++p) {
        void* to = element(g.out, g.dtype, (out_position + outputs[p]) * g.out_width() + group * g.columns + first);
        if (g.dtype == dtype_of<A>)
          std::memcpy(to, buffer + p * width, static_cast<size_t>(used) * sizeof(A));
        else
          store(to, g.dtype, used, 1, buffer + p * width);
      }
    }
  }
}

/// Images taken together: the fewest that fill the tiles well, of those that stay in the cache.
template <class A>
int64_t images_per_group(const Gather<A>& g) {
  const int64_t positions = g.out_positions(),
                bytes = g.in_positions() * g.in_width() * static_cast<int64_t>(sizeof(A));
  const int64_t fitting = kUnitBytes / std::max<int64_t>(1, bytes);
  const int64_t limit = std::clamp<int64_t>(std::min(fitting, g.images), 1, kTileRows), rows = g.rows();
  if (positions <= 4 * rows) return limit;  // mostly border: a tile holds one position of many images
  int64_t best = 1;
  double best_use = 0;
  for (int64_t n = 1; n <= limit; ++n) {
    const double use = static_cast<double>(n * positions) / static_cast<double>(round_up(n * positions, rows));
    if (use <= best_use + 0.01) continue;
    best = n;
    best_use = use;
  }
  return best;
}

/// Small images: one plan for a group of images (and one for a last, smaller group), shared by all units.
template <class A>
void gather_images(const Context& ctx, const Gather<A>& g) {
  const int64_t per_group = images_per_group(g), groups = divide_up(g.images, per_group);
  const int64_t rest = g.images - (groups - 1) * per_group, rows = g.height->outputs;
  const GatherPlan full = GatherPlan::build(*g.height, *g.width, per_group, 0, rows, g.in_width(), g.rows());
  const GatherPlan last =
      rest == per_group ? full : GatherPlan::build(*g.height, *g.width, rest, 0, rows, g.in_width(), g.rows());
  const int64_t blocks = g.groups * g.blocks(),
                splits = std::clamp<int64_t>(divide_up(kWantedUnits, groups), 1, blocks);
  const int64_t per_split = divide_up(blocks, splits), image_size = g.in_positions() * g.in_width();
  // Neighbouring units share their weights.
  ctx.parallel_for(groups * splits, 1, [&](int64_t unit, int64_t) {
    const int64_t group = unit % groups, first = unit / groups * per_split, image = group * per_group;
    const GatherPlan& plan = group + 1 == groups ? last : full;
    const int64_t images = group + 1 == groups ? rest : per_group,
                  skipped = plan.input_row_begin() * g.width->inputs * g.in_width();
    const int64_t size = images * image_size - skipped;
    if (first >= blocks) return;
    const Scratch<A> buffer(ctx, g.dtype == dtype_of<A> ? 0 : size);
    const A* in = load(element(g.in, g.dtype, image * image_size + skipped), g.dtype, size, 1, buffer.data());
    run_plan(g, plan, in, image * g.out_positions(), first, std::min(blocks, first + per_split));
  });
}

/// Large images: bands of rows. A unit makes the plan of its band and uses it for several images.
template <class A>
void gather_bands(const Context& ctx, const Gather<A>& g, int64_t bands) {
  const int64_t per_band = divide_up(g.height->outputs, bands), chunk = std::min<int64_t>(8, g.images);
  bands = divide_up(g.height->outputs, per_band);
  const int64_t chunks = divide_up(g.images, chunk), blocks = g.groups * g.blocks();
  const int64_t row_size = g.width->inputs * g.in_width();
  ctx.parallel_for(bands * chunks, 1, [&](int64_t unit, int64_t) {
    const int64_t row = unit % bands * per_band, last_row = std::min(row + per_band, g.height->outputs);
    const GatherPlan plan = GatherPlan::build(*g.height, *g.width, 1, row, last_row, g.in_width(), g.rows());
    const int64_t size = (plan.input_row_end() - plan.input_row_begin()) * row_size;
    const Scratch<A> buffer(ctx, g.dtype == dtype_of<A> ? 0 : size);
    const int64_t first = unit / bands * chunk;
    for (int64_t image = first; image < std::min(first + chunk, g.images); ++image) {
      const int64_t start = (image * g.height->inputs + plan.input_row_begin()) * row_size;
      const A* in = load(element(g.in, g.dtype, start), g.dtype, size, 1, buffer.data());
      run_plan(g, plan, in, image * g.out_positions() + row * g.width->outputs, 0, blocks);
    }
  });
}

template <class A>
void gather(const Context& ctx, Gather<A>& g, const void* weight, int64_t weight_count, const WeightSteps& steps,
            const void* bias) {
  const Scratch<A> panels(ctx, g.groups * g.padded() * g.taps() * g.channels);
  {
    const Scratch<A> buffer(ctx, g.dtype == dtype_of<A> ? 0 : weight_count);
    pack_panels(ctx, g, load(weight, g.dtype, weight_count, 1, buffer.data()), steps, panels.data());
  }
  const Scratch<A> zeros(ctx, g.channels), padded_bias(ctx, bias == nullptr ? 0 : g.groups * g.padded());
  std::fill_n(zeros.data(), g.channels, A(0));
  if (bias != nullptr) {
    std::fill_n(padded_bias.data(), g.groups * g.padded(), A(0));
    for (int64_t group = 0; group < g.groups; ++group) {
      A* to = padded_bias.data() + group * g.padded();
      const A* values = load(element(bias, g.dtype, group * g.columns), g.dtype, g.columns, 1, to);
      if (values != to) std::copy_n(values, g.columns, to);
    }
  }
  g.panels = panels.data();
  g.zeros = zeros.data();
  g.bias = bias == nullptr ? nullptr : padded_bias.data();
  const int64_t bytes = g.in_positions() * g.in_width() * static_cast<int64_t>(sizeof(A));
  const int64_t bands =
      std::max(divide_up(bytes, 2 * kUnitBytes), divide_up(g.out_positions() * g.taps(), kPlanEntries));
  if (bands <= 1)
    gather_images(ctx, g);
  else
    gather_bands(ctx, g, std::min(bands, g.height->outputs));
}

template <class A>
Status conv2d(const Context& ctx, const ConvParams& p) {
  const ConvShape& s = p.shape;
  if (s.n * s.out_h * s.out_w * s.o == 0) return Status::ok;
  const AxisMap height = AxisMap::forward(s, 0), width = AxisMap::forward(s, 1);
  if (is_depthwise(s)) {
    depthwise_gather<A>(ctx, p, height, width);
    return Status::ok;
  }
  if constexpr (sizeof(A) == 4)
    if (winograd_pays(s)) {
      winograd_forward(ctx, p);
      return Status::ok;
    }
  const int64_t channels = s.c / s.groups, columns = s.o / s.groups, taps = s.kh * s.kw;
  Gather<A> g{p.x, nullptr, nullptr, nullptr, p.out, p.dtype, &height, &width, s.n, s.groups, channels, columns};
  gather(ctx, g, p.weight, s.o * taps * channels, {columns * taps * channels, taps * channels, channels, 1}, p.bias);
  return Status::ok;
}

template <class A>
Status conv2d_input_grad(const Context& ctx, const ConvParams& p) {
  const ConvShape& s = p.shape;
  if (s.n * s.h * s.w * s.c == 0) return Status::ok;
  const AxisMap height = AxisMap::backward(s, 0), width = AxisMap::backward(s, 1);
  if (is_depthwise(s)) {
    depthwise_gather<A>(ctx, p, height, width);
    return Status::ok;
  }
  if constexpr (sizeof(A) == 4)
    if (winograd_pays(s)) {
      winograd_input_grad(ctx, p);
      return Status::ok;
    }
  const int64_t channels = s.o / s.groups, columns = s.c / s.groups, taps = s.kh * s.kw;
  Gather<A> g{p.x, nullptr, nullptr, nullptr, p.out, p.dtype, &height, &width, s.n, s.groups, channels, columns};
  gather(ctx, g, p.weight, s.o * taps * columns, {channels * taps * columns, 1, columns, taps * columns}, nullptr);
  return Status::ok;
}

ANELLO_KERNEL(kConv2d, conv2d<float>, {float16, bfloat16, float32});
ANELLO_KERNEL(kConv2d, conv2d<double>, {float64});
ANELLO_KERNEL(kConv2dInputGrad, conv2d_input_grad<float>, {float16, bfloat16, float32});
ANELLO_KERNEL(kConv2dInputGrad, conv2d_input_grad<double>, {float64});

}  // namespace
}  // namespace anello::kernel
