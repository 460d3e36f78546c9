// Winograd's gradient of 3x3 weights: at each of the 36 points the product of the output gradients' points with the
// inputs', summed over tiles; blocks of output and input channels, and slices of the batch, are cut by the sizes alone
// and slices added in order. Main entry: winograd_weight_grad().
#include <anello/core/cpu/convert.h>
#include <anello/core/cpu/winograd.h>

#include <algorithm>

namespace anello::kernel {

using namespace winograd;

namespace {

constexpr int64_t kBlockChannels = 64;  // of either side: the sums of a block stay in L2
constexpr int64_t kBlockTiles = 48;     // tiles multiplied at a time
constexpr int64_t kWantedUnits = 16;
constexpr int64_t kPad = 16;  // floats, against sets of the cache that collide

template <class T>
struct Job {
  const T *x, *y;
  ConvShape shape;
  Tiles tiles;
  EvenCut outputs, inputs;  ///< registers of channels in blocks
  EvenCut slices;           ///< of the tiles
  const float* zeros;
  float* partial;  ///< [slice][o][tap][c]

  int64_t blocks() const { return outputs.pieces * inputs.pieces; }
};

/// The weight gradients of `outputs` rows of `columns` sums at 36 points, each [outputs][columns], to [row][tap][c].
void write_block(const float* sums, int64_t point, int64_t outputs, int64_t columns, int64_t inputs, float* to,
                 int64_t all_inputs) {
  for (int64_t o = 0; o < outputs; ++o)
    for_lanes<float>(inputs, [&](int64_t c, int64_t m) {
      V half[3 * kTile], u[kTile], g[3];
      const float* from = sums + o * columns + c;
      for (int j = 0; j < kTile; ++j) {
        for (int i = 0; i < kTile; ++i) u[i] = load_lanes(from + (i * kTile + j) * point);
        points_to_weights(u, g);
        for (int i = 0; i < 3; ++i) half[i * kTile + j] = g[i];
      }
      for (int i = 0; i < 3; ++i) {
        points_to_weights(half + i * kTile, g);
        for (int j = 0; j < 3; ++j) store_part(to + (o * 9 + i * 3 + j) * all_inputs + c, m, g[j]);
      }
    });
}

template <class T>
void run_unit(const Context& ctx, const Job<T>& job, int64_t slice, int64_t block) {
  const ConvShape& s = job.shape;
  constexpr int64_t kStep = kLanes<float>;
  const int64_t o_piece = block / job.inputs.pieces, c_piece = block % job.inputs.pieces;
  const int64_t o_first = job.outputs.begin(o_piece) * kStep, c_first = job.inputs.begin(c_piece) * kStep;
  const int64_t o_padded = job.outputs.size(o_piece) * kStep, c_padded = job.inputs.size(c_piece) * kStep;
  const int64_t o_count = std::min(o_padded, s.o - o_first), c_count = std::min(c_padded, s.c - c_first);
  const EvenCut vectors(job.inputs.size(c_piece), kTileVectors), rows(o_count, tile_rows(vectors.largest()));
  const int64_t point = o_count * c_padded + kPad, y_step = kPlaces * o_padded + kPad,
                x_step = kPlaces * c_padded + kPad;
  const Scratch<float> sums(ctx, kPlaces * point), y(ctx, kBlockTiles * y_step), x(ctx, kBlockTiles * x_step);
  const auto* nothing = reinterpret_cast<const T*>(job.zeros);
  const int64_t begin = job.slices.begin(slice);
  const EvenCut steps(job.slices.size(slice), kBlockTiles);
  const T* at[kPlaces];
  for (int64_t step = 0; step < steps.pieces; ++step) {
    const int64_t count = steps.size(step);
    for (int64_t i = 0; i < count; ++i) {
      const Tiles::Place p = job.tiles[begin + steps.begin(step) + i];
      window(job.y + p.image * s.out_h * s.out_w * s.o + o_first, s.out_h, s.out_w, s.o, p.row, p.column, kOut, nothing,
             at);
      window_to_points<kOut, outputs_to_points>(at, o_count, y.data() + i * y_step, o_padded);
      window(job.x + p.image * s.h * s.w * s.c + c_first, s.h, s.w, s.c, p.row - s.padding[0], p.column - s.padding[1],
             kTile, nothing, at);
      window_to_points<kTile, to_points>(at, c_count, x.data() + i * x_step, c_padded);
    }
    for (int e = 0; e < kPlaces; ++e)
      for (int64_t q = 0; q < vectors.pieces; ++q)
        for (int64_t r = 0; r < rows.pieces; ++r)
          strided_function(rows.size(r), vectors.size(q))(
              y.data() + e * o_padded + rows.begin(r), y_step, x.data() + e * c_padded + vectors.begin(q) * kStep,
              x_step, count, sums.data() + e * point + rows.begin(r) * c_padded + vectors.begin(q) * kStep, c_padded,
              step > 0);
  }
  write_block(sums.data(), point, o_count, c_padded, c_count,
              job.partial + ((slice * s.o + o_first) * 9) * s.c + c_first, s.c);
}

/// Adds the slices in order.
template <class T>
void add_slices(const Context& ctx, const Job<T>& job, T* out, bool accumulate) {
  const int64_t size = job.shape.o * 9 * job.shape.c;
  ctx.parallel_for(size, 4096, [&](int64_t begin, int64_t end) {
    for_lanes<float>(end - begin, [&](int64_t i, int64_t m) {
      const float* from = job.partial + begin + i;
      V sum = load_part(from, m, 0.0f);
      for (int64_t slice = 1; slice < job.slices.pieces; ++slice) sum += load_part(from + slice * size, m, 0.0f);
      T* to = out + begin + i;
      if (accumulate) sum += read_lanes(to, m);
      write_lanes(to, m, sum);
    });
  });
}

template <class T>
void run(const Context& ctx, const ConvParams& p) {
  const ConvShape& s = p.shape;
  constexpr int64_t kMost = kBlockChannels / kLanes<float>;
  const Tiles tiles(s.n, s.out_h, s.out_w);
  const EvenCut outputs(divide_up(s.o, kLanes<float>), kMost), inputs(divide_up(s.c, kLanes<float>), kMost);
  const int64_t blocks = outputs.pieces * inputs.pieces, most = divide_up(tiles.count(), 2 * kBlockTiles);
  const int64_t wanted = std::clamp<int64_t>(divide_up(kWantedUnits, blocks), 1, most);
  const EvenCut slices(tiles.count(), divide_up(tiles.count(), wanted));
  const Scratch<float> partial(ctx, slices.pieces * s.o * 9 * s.c), zeros(ctx, kBlockChannels);
  std::fill_n(zeros.data(), kBlockChannels, 0.0f);
  const Job<T> job{static_cast<const T*>(p.x),
                   static_cast<const T*>(p.weight),
                   s,
                   tiles,
                   outputs,
                   inputs,
                   slices,
                   zeros.data(),
                   partial.data()};
  ctx.parallel_for(slices.pieces * blocks, 1,
                   [&](int64_t unit, int64_t) { run_unit(ctx, job, unit / blocks, unit % blocks); });
  add_slices(ctx, job, static_cast<T*>(p.out), p.accumulate);
}

}  // namespace

void winograd_weight_grad(const Context& ctx, const ConvParams& p) {
  if (p.dtype == float32)
    run<float>(ctx, p);
  else if (p.dtype == bfloat16)
    run<BFloat16>(ctx, p);
  else
    run<Float16>(ctx, p);
}

}  // namespace anello::kernel
