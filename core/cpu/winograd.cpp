// Winograd's convolution and the gradient of its input: blocks of tiles to points, a product of matrices at each of
// the 36 points, and back. Main entry: winograd_forward(), winograd_input_grad().
#include <anello/core/cpu/convert.h>
#include <anello/core/cpu/winograd.h>

#include <algorithm>

namespace anello::kernel {

using namespace winograd;

namespace {

constexpr int64_t kBlockTiles = 48;        // tiles whose points are multiplied together: weights are read once for all
constexpr int64_t kFewBlocks = 16;         // fewer blocks than this share their points, and are cut by columns
constexpr int64_t kPanelBytes = 20 << 10;  // a panel of weights beyond this is made narrower, to stay in L1
constexpr int64_t kDepth = 256;            // channels of one pass
constexpr int64_t kPad = 16;               // floats, against sets of the cache that collide

/// Either product: `out` positions see the windows of `in` that begin `pad` before them.
template <class T>
struct Form {
  const T *in, *weight, *bias;
  T* out;
  int64_t in_h, in_w, channels, out_h, out_w, columns, pad_h, pad_w;
  bool backward;  ///< columns are the weight's last dim, and its taps turned around
  Tiles tiles;
  EvenCut cut;  ///< registers of columns in panels
  const float* zeros;

  /// Elements between the points of a tile, and between tiles: the 36 places of one tile lie on few pages.
  int64_t place() const { return round_up(channels, kLanes<float>); }
  int64_t tile_step() const { return kPlaces * place() + kPad; }
  int64_t width(int64_t panel) const { return cut.size(panel) * kLanes<float>; }
  int64_t column(int64_t panel) const { return cut.begin(panel) * kLanes<float>; }
  /// The weights of a panel at its 36 points, [point][channel][width], with a pad after each point.
  int64_t weights_size(int64_t panel) const { return kPlaces * (channels * width(panel) + kPad); }
  int64_t weights_begin(int64_t panel) const { return kPlaces * (channels * column(panel) + kPad * panel); }
  /// The products of one tile and a panel, [point][width], and a pad.
  int64_t product_step(int64_t panel) const { return kPlaces * width(panel) + kPad; }
};

/// The 3x3 weights of kLanes columns and `count` channels as [channel][tap], lanes beyond `used` 0.
template <class T>
void read_weights(const Form<T>& f, int64_t first, int64_t used, int64_t c, int64_t count, V* g) {
  for (int t = 0; t < 9; ++t) {
    if (f.backward) {
      for (int64_t i = 0; i < count; ++i)
        g[i * 9 + t] = read_lanes(f.weight + ((c + i) * 9 + 8 - t) * f.columns + first, used);
      continue;
    }
    V rows[kLanes<float>] = {};
    for (int64_t l = 0; l < used; ++l) rows[l] = read_lanes(f.weight + ((first + l) * 9 + t) * f.channels + c, count);
    transpose(rows);
    for (int64_t i = 0; i < count; ++i) g[i * 9 + t] = rows[i];
  }
}

/// Channels [c, c + count), at most kLanes, of a panel's weights.
template <class T>
void pack_weights(const Form<T>& f, int64_t panel, int64_t c, int64_t count, float* to) {
  constexpr int64_t kStep = kLanes<float>;
  const int64_t width = f.width(panel), point = f.channels * width + kPad;
  V g[kStep * 9], half[kTile * 3], u[kTile];
  for (int64_t r = 0; r < width; r += kStep) {
    read_weights(f, f.column(panel) + r, std::min(kStep, f.columns - f.column(panel) - r), c, count, g);
    for (int64_t i = 0; i < count; ++i) {
      for (int j = 0; j < 3; ++j) {
        weights_to_points(g + i * 9 + j, u, 3);
        for (int k = 0; k < kTile; ++k) half[k * 3 + j] = u[k];
      }
      float* row = to + (c + i) * width + r;
      for (int k = 0; k < kTile; ++k) {
        weights_to_points(half + k * 3, u, 1);
        for (int j = 0; j < kTile; ++j) store_lanes(row + (k * kTile + j) * point, u[j]);
      }
    }
  }
}

/// The points of tile i.
template <class T>
void pack_points(const Form<T>& f, int64_t i, float* to) {
  const Tiles::Place p = f.tiles[i];
  const T* at[kPlaces];
  window(f.in + p.image * f.in_h * f.in_w * f.channels, f.in_h, f.in_w, f.channels, p.row - f.pad_h, p.column - f.pad_w,
         kTile, reinterpret_cast<const T*>(f.zeros), at);
  window_to_points<kTile, to_points>(at, f.channels, to, f.place());
}

/// One point of `count` tiles times a panel.
template <class T>
void multiply(const Form<T>& f, const float* points, int64_t count, int64_t panel, const float* weights, float* out) {
  static constexpr int32_t kTap = 0;
  const int64_t vectors = f.cut.size(panel), width = f.width(panel), rows = tile_rows(vectors),
                ld = f.product_step(panel);
  int64_t offsets[kTileRows];
  for (int64_t c = 0; c < f.channels; c += kDepth)
    for (int64_t row = 0; row < count; row += rows) {
      const int64_t used = std::min(rows, count - row), height = gather_height(used, rows);
      for (int64_t p = 0; p < height; ++p) offsets[p] = p < used ? (row + p) * f.tile_step() : -1;
      const GatherTile<float> tile{points + c,          f.zeros, offsets, &kTap, 1, std::min(kDepth, f.channels - c),
                                   weights + c * width, width,   nullptr};
      gather_function<float>(height, vectors)(tile, out + row * ld, ld, c > 0);
    }
}

/// The outputs of tile i in a panel's columns, from its products.
template <class T>
void write_outputs(const Form<T>& f, int64_t i, int64_t panel, const float* products) {
  const Tiles::Place p = f.tiles[i];
  const int64_t column = f.column(panel), step = f.width(panel);
  T* to = f.out + ((p.image * f.out_h + p.row) * f.out_w + p.column) * f.columns + column;
  const auto height = std::min<int64_t>(kOut, f.out_h - p.row), width = std::min<int64_t>(kOut, f.out_w - p.column);
  for_lanes<float>(
      std::min(step, f.columns - column), [&](int64_t c, int64_t m) __attribute__((always_inline)) {
        V half[kOut * kTile], x[kTile], y[kOut];
        ANELLO_UNROLL for (int j = 0; j < kTile; ++j) {
          ANELLO_UNROLL for (int k = 0; k < kTile; ++k) x[k] = load_lanes(products + (k * kTile + j) * step + c);
          from_points(x, y);
          ANELLO_UNROLL for (int k = 0; k < kOut; ++k) half[k * kTile + j] = y[k];
        }
        const V shift = f.bias == nullptr ? V{} : read_lanes(f.bias + column + c, m);
        for (int64_t k = 0; k < height; ++k) {
          from_points(half + k * kTile, y);
          T* row = to + k * f.out_w * f.columns + c;
          for (int64_t j = 0; j < width; ++j) write_lanes(row + j * f.columns, m, y[j] + shift);
        }
      });
}

/// Many tiles: the weights' points once, then blocks of tiles on their own.
template <class T>
void run_blocks(const Context& ctx, const Form<T>& f, const EvenCut& blocks) {
  const int64_t panels = f.cut.pieces, pieces = divide_up(f.channels, kLanes<float>);
  const Scratch<float> weights(ctx, f.weights_begin(panels - 1) + f.weights_size(panels - 1));
  ctx.parallel_for(panels * pieces, 1, [&](int64_t unit, int64_t) {
    const int64_t panel = unit / pieces, c = unit % pieces * kLanes<float>;
    pack_weights(f, panel, c, std::min<int64_t>(kLanes<float>, f.channels - c),
                 weights.data() + f.weights_begin(panel));
  });
  ctx.parallel_for(blocks.pieces, 1, [&](int64_t block, int64_t) {
    const int64_t begin = blocks.begin(block), count = blocks.size(block), rows = round_up(count, kTileRows);
    const Scratch<float> points(ctx, count * f.tile_step()), products(ctx, rows * f.product_step(0) * panels);
    for (int64_t i = 0; i < count; ++i) pack_points(f, begin + i, points.data() + i * f.tile_step());
    for (int e = 0; e < kPlaces; ++e)
      for (int64_t panel = 0; panel < panels; ++panel)
        multiply(f, points.data() + e * f.place(), count, panel,
                 weights.data() + f.weights_begin(panel) + e * (f.channels * f.width(panel) + kPad),
                 products.data() + panel * rows * f.product_step(0) + e * f.width(panel));
    for (int64_t i = 0; i < count; ++i)
      for (int64_t panel = 0; panel < panels; ++panel)
        write_outputs(f, begin + i, panel,
                      products.data() + panel * rows * f.product_step(0) + i * f.product_step(panel));
  });
}

/// Few tiles: their points once, then panels on their own, whose weights are used while they are in the cache.
template <class T>
void run_panels(const Context& ctx, const Form<T>& f, const EvenCut& blocks) {
  const Scratch<float> points(ctx, f.tiles.count() * f.tile_step());
  ctx.parallel_for(f.tiles.count(), 2, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) pack_points(f, i, points.data() + i * f.tile_step());
  });
  ctx.parallel_for(f.cut.pieces, 1, [&](int64_t panel, int64_t) {
    const int64_t step = f.product_step(panel), width = f.width(panel);
    const Scratch<float> weights(ctx, f.weights_size(panel)),
        products(ctx, round_up(blocks.largest(), kTileRows) * step);
    for (int64_t c = 0; c < f.channels; c += kLanes<float>)
      pack_weights(f, panel, c, std::min<int64_t>(kLanes<float>, f.channels - c), weights.data());
    for (int64_t block = 0; block < blocks.pieces; ++block) {
      const int64_t begin = blocks.begin(block), count = blocks.size(block);
      for (int e = 0; e < kPlaces; ++e)
        multiply(f, points.data() + begin * f.tile_step() + e * f.place(), count, panel,
                 weights.data() + e * (f.channels * width + kPad), products.data() + e * width);
      for (int64_t i = 0; i < count; ++i) write_outputs(f, begin + i, panel, products.data() + i * step);
    }
  });
}

struct Sizes {
  int64_t n, in_h, in_w, channels, out_h, out_w, columns, pad_h, pad_w;
};

template <class T>
void run(const Context& ctx, const ConvParams& p, const void* bias, const Sizes& s, bool backward) {
  const bool tall = s.channels * kTileColumns<float> * 4 > kPanelBytes;
  const EvenCut cut(divide_up(s.columns, kLanes<float>), tall ? kTallTileVectors : kTileVectors);
  const Scratch<float> zeros(ctx, round_up(s.channels, kLanes<float>));
  std::fill_n(zeros.data(), round_up(s.channels, kLanes<float>), 0.0f);
  const Form<T> f{static_cast<const T*>(p.x),
                  static_cast<const T*>(p.weight),
                  static_cast<const T*>(bias),
                  static_cast<T*>(p.out),
                  s.in_h,
                  s.in_w,
                  s.channels,
                  s.out_h,
                  s.out_w,
                  s.columns,
                  s.pad_h,
                  s.pad_w,
                  backward,
                  Tiles(s.n, s.out_h, s.out_w),
                  cut,
                  zeros.data()};
  const EvenCut blocks(f.tiles.count(), kBlockTiles);
  if (blocks.pieces < kFewBlocks && cut.pieces > 1)
    run_panels(ctx, f, EvenCut(f.tiles.count(), 2 * kBlockTiles));
  else
    run_blocks(ctx, f, blocks);
}

void run(const Context& ctx, const ConvParams& p, const void* bias, const Sizes& s, bool backward) {
  if (p.dtype == float32)
    run<float>(ctx, p, bias, s, backward);
  else if (p.dtype == bfloat16)
    run<BFloat16>(ctx, p, bias, s, backward);
  else
    run<Float16>(ctx, p, bias, s, backward);
}

}  // namespace

bool winograd_pays(const ConvShape& s) {
  if (s.kh != 3 || s.kw != 3 || s.groups != 1) return false;
  for (int axis = 0; axis < 2; ++axis)
    if (s.stride[axis] != 1 || s.dilation[axis] != 1) return false;
  // Multiplications for each pair of channels, and what the transforms cost beside them, in whole numbers.
  const int64_t tiles = Tiles(s.n, s.out_h, s.out_w).count(), positions = s.n * s.out_h * s.out_w;
  if (tiles == 0 || s.c < 16 || s.o < 16) return false;
  const int64_t products = kPlaces * tiles * s.c * s.o, transforms = 200 * tiles * (s.c + s.o) + 100 * s.c * s.o;
  return 5 * (products + transforms) < 4 * 9 * positions * s.c * s.o;
}

void winograd_forward(const Context& ctx, const ConvParams& p) {
  const ConvShape& s = p.shape;
  run(ctx, p, p.bias, {s.n, s.h, s.w, s.c, s.out_h, s.out_w, s.o, s.padding[0], s.padding[1]}, false);
}

void winograd_input_grad(const Context& ctx, const ConvParams& p) {
  const ConvShape& s = p.shape;
  run(ctx, p, nullptr, {s.n, s.out_h, s.out_w, s.o, s.h, s.w, s.c, 2 - s.padding[0], 2 - s.padding[1]}, true);
}

}  // namespace anello::kernel
