// The gradient of convolution weights: for each tap a product of y (transposed) with shifted x, summed over positions in registers.
// Blocks of the weight and slices of the batch are cut by the sizes alone; slices are added in order.
// Main entry: conv2d_weight_grad<A>().
#include <anello/core/cpu/conv_common.h>
#include <anello/core/cpu/convert.h>

#include <algorithm>
#include <cstring>
#include <memory>

namespace anello::kernel {
namespace {

constexpr int64_t kBlockBytes = 512 << 10;     // sums of one unit, to stay in L2
constexpr int64_t kPanelBytes = 384 << 10;     // x and y of one step beside them
constexpr int64_t kStepPositions = 256;        // positions summed in registers before the sums go back to L2
constexpr int64_t kBlockChannels = 128;
constexpr int64_t kPartialBytes = 16 << 20;    // all slices together
constexpr int64_t kWantedUnits = 32;

/// The pairs of positions that belong to each tap, for some rows of some images.
struct Pairs {
  std::vector<PanelPair> list;  ///< of all taps
  std::vector<size_t> first;    ///< [taps + 1]
};

/// What one step reads of each of its images.
struct StepPlan {
  int64_t x_row, x_rows, y_row, y_rows;
  std::vector<int64_t> key;  ///< source rows relative to x_row: equal keys have equal pairs
  std::shared_ptr<const Pairs> pairs;
};

/// Where the rows lie; no pairs yet. `whole`: keep all rows of x, so that images follow each other.
StepPlan step_rows(const AxisMap& height, int64_t begin, int64_t end, bool whole) {
  StepPlan step{0, height.inputs, begin, end - begin, {}, {}};
  if (!whole) {
    int64_t low = height.inputs, high = 0;
    for (int64_t i = begin; i < end; ++i)
      for (int64_t r = 0; r < height.taps; ++r)
        if (const int64_t row = height.at(i, r); row >= 0) low = std::min(low, row), high = std::max(high, row + 1);
    step.x_row = std::min(low, high);
    step.x_rows = high - step.x_row;
  }
  for (int64_t i = begin; i < end; ++i)
    for (int64_t r = 0; r < height.taps; ++r) step.key.push_back(height.at(i, r) < 0 ? -1 : height.at(i, r) - step.x_row);
  return step;
}

std::shared_ptr<const Pairs> make_pairs(const StepPlan& step, const AxisMap& height, const AxisMap& width, int64_t images,
                                        bool y_first) {
  auto pairs = std::make_shared<Pairs>();
  pairs->first.push_back(0);
  for (int64_t tap = 0; tap < height.taps * width.taps; ++tap) {
    for (int64_t line = 0; line < images * step.y_rows; ++line) {
      const int64_t image = line / step.y_rows, row = height.at(step.y_row + line % step.y_rows, tap / width.taps);
      if (row < 0) continue;
      const int64_t y = line * width.outputs, x = (image * step.x_rows + row - step.x_row) * width.inputs;
      for (int64_t j = 0; j < width.outputs; ++j) {
        const int64_t column = width.at(j, tap % width.taps);
        if (column < 0) continue;
        const auto in_y = static_cast<int32_t>(y + j), in_x = static_cast<int32_t>(x + column);
        pairs->list.push_back(y_first ? PanelPair{in_y, in_x} : PanelPair{in_x, in_y});
      }
    }
    pairs->first.push_back(pairs->list.size());
  }
  return pairs;
}

/// Plans of the bands of an image; bands that differ in their place only share their pairs.
std::vector<StepPlan> make_plans(const AxisMap& height, const AxisMap& width, int64_t images, int64_t band_rows, bool y_first) {
  std::vector<StepPlan> plans;
  for (int64_t begin = 0; begin < height.outputs; begin += band_rows) {
    StepPlan plan = step_rows(height, begin, std::min(height.outputs, begin + band_rows), images > 1);
    for (const StepPlan& earlier : plans)
      if (earlier.key == plan.key) plan.pairs = earlier.pairs;
    if (!plan.pairs) plan.pairs = make_pairs(plan, height, width, images, y_first);
    plans.push_back(std::move(plan));
  }
  return plans;
}

/// One operand: [position][width] of the key dtype, `channels` of each group.
struct Side {
  const void* data;
  int64_t image_size, row_size, width, channels;  ///< elements
  int64_t row_positions() const { return row_size / width; }
};

/// The whole job: which side is broadcast (a) and which fills registers (b), and how both are cut.
struct Job {
  Side a, b;
  DType dtype;
  int64_t groups, taps;
  int64_t a_block, b_block;    ///< channels of a block; b_block in whole registers
  int64_t a_blocks, b_blocks;
  int64_t images, images_per_step, band_rows, bands, steps, slices;
  bool a_is_y;

  int64_t blocks() const { return groups * a_blocks * b_blocks; }
  int64_t block_size() const { return a_block * taps * b_block; }
};

/// Elements of `side` for channels [first, first + count) of the rows of a step, cut into panels: panel q holds [position][cut.size(q) * unit],
/// zeros beyond `count`.
template <class A>
void pack_side(const Job& job, const Side& side, int64_t image, int64_t images, int64_t row, int64_t rows, int64_t first,
               int64_t count, const EvenCut& cut, int64_t unit, A* buffer, A* panels) {
  const int64_t per_image = rows * side.row_positions(), positions = images * per_image;
  for (int64_t n = 0; n < images; ++n) {
    const int64_t start = (image + n) * side.image_size + row * side.row_size + first;
    for (int64_t i = 0; i < per_image; ++i) {
      const A* from = load(element(side.data, job.dtype, start + i * side.width), job.dtype, count, 1, buffer);
      const int64_t position = n * per_image + i;
      for (int64_t q = 0; q < cut.pieces; ++q) {
        const int64_t c = cut.begin(q) * unit, width = cut.size(q) * unit, used = std::min(width, count - c);
        A* to = panels + c * positions + position * width;
        std::memcpy(to, from + c, static_cast<size_t>(used) * sizeof(A));
        if (used < width) std::fill_n(to + used, width - used, A(0));
      }
    }
  }
}

/// The plan of each band, and behind them that of a last, smaller group of images.
using Plans = std::vector<StepPlan>;

/// Sums one block over the steps [begin, end) into `sums` [a_block][tap][b_block].
template <class A>
void sum_block(const Context& ctx, const Job& job, const Plans& plans, int64_t block, int64_t begin, int64_t end, A* sums) {
  const int64_t group = block / (job.a_blocks * job.b_blocks), a_first = block / job.b_blocks % job.a_blocks * job.a_block;
  const int64_t b_first = block % job.b_blocks * job.b_block;
  const int64_t a_count = std::min(job.a_block, job.a.channels - a_first), b_count = std::min(job.b_block, job.b.channels - b_first);
  const int64_t b_padded = round_up(b_count, kLanes<A>), ld = job.taps * job.b_block;
  const EvenCut vectors(b_padded / kLanes<A>, kTileVectors), heights(a_count, tile_rows(vectors.largest()));
  int64_t x_rows = 0, y_rows = 0;
  for (const StepPlan& plan : plans) x_rows = std::max(x_rows, plan.x_rows), y_rows = std::max(y_rows, plan.y_rows);
  const int64_t a_lines = job.images_per_step * (job.a_is_y ? y_rows : x_rows);
  const int64_t b_lines = job.images_per_step * (job.a_is_y ? x_rows : y_rows);
  const Scratch<A> a_panels(ctx, a_lines * job.a.row_positions() * a_count), b_panels(ctx, b_lines * job.b.row_positions() * b_padded);
  const Scratch<A> buffer(ctx, std::max(a_count, b_count));
  for (int64_t step = begin; step < end; ++step) {
    const int64_t image = step / job.bands * job.images_per_step, images = std::min(job.images_per_step, job.images - image);
    const StepPlan& plan = plans[static_cast<size_t>(images < job.images_per_step ? job.bands : step % job.bands)];
    const int64_t a_row = job.a_is_y ? plan.y_row : plan.x_row, a_rows = job.a_is_y ? plan.y_rows : plan.x_rows;
    const int64_t b_row = job.a_is_y ? plan.x_row : plan.y_row, b_rows = job.a_is_y ? plan.x_rows : plan.y_rows;
    pack_side(job, job.a, image, images, a_row, a_rows, group * job.a.channels + a_first, a_count, heights, 1, buffer.data(),
              a_panels.data());
    pack_side(job, job.b, image, images, b_row, b_rows, group * job.b.channels + b_first, b_count, vectors, kLanes<A>, buffer.data(),
              b_panels.data());
    const int64_t a_size = images * a_rows * job.a.row_positions(), b_size = images * b_rows * job.b.row_positions();
    for (int64_t t = 0; t < job.taps; ++t) {
      const size_t first = plan.pairs->first[static_cast<size_t>(t)];
      const auto count = static_cast<int64_t>(plan.pairs->first[static_cast<size_t>(t) + 1] - first);
      if (count == 0 && step > begin) continue;
      for (int64_t q = 0; q < vectors.pieces; ++q)
        for (int64_t i = 0; i < heights.pieces; ++i) {
          const int64_t a = heights.begin(i), b = vectors.begin(q) * kLanes<A>;
          panel_function<A>(heights.size(i), vectors.size(q))(a_panels.data() + a * a_size, b_panels.data() + b * b_size,
                                                              plan.pairs->list.data() + first, count,
                                                              sums + a * ld + t * job.b_block + b, ld, step > begin);
        }
    }
  }
}

/// Adds the slices in order and writes the weight [group][o][tap][c], o being a or b.
template <class A>
void write_weight(const Context& ctx, const Job& job, const A* partial, void* out, bool accumulate) {
  const int64_t outputs = job.a_is_y ? job.a.channels : job.b.channels, inputs = job.a_is_y ? job.b.channels : job.a.channels;
  const int64_t row = job.taps * inputs, slice_step = job.blocks() * job.block_size();
  const int64_t together = std::max<int64_t>(1, std::min<int64_t>(kLanes<A>, divide_up(1 << 20, std::max<int64_t>(1, row))));
  ctx.parallel_for(job.groups * outputs, together, [&](int64_t begin, int64_t end) {
    const Scratch<A> buffer(ctx, row), sum(ctx, (end - begin) * row);
    std::fill_n(sum.data(), (end - begin) * row, A(0));
    for (int64_t slice = 0; slice < job.slices; ++slice)
      for (int64_t c = 0; c < inputs; c += job.a_is_y ? job.b_block : 1)
        for (int64_t t = 0; t < job.taps; ++t)
          for (int64_t q = begin; q < end; ++q) {
            const int64_t group = q / outputs, o = q % outputs, a = job.a_is_y ? o : c, b = job.a_is_y ? c : o;
            const int64_t block = (group * job.a_blocks + a / job.a_block) * job.b_blocks + b / job.b_block;
            const A* from = partial + slice * slice_step + block * job.block_size() +
                            (a % job.a_block * job.taps + t) * job.b_block + b % job.b_block;
            A* to = sum.data() + (q - begin) * row + t * inputs + c;
            const int64_t run = job.a_is_y ? std::min(job.b_block, inputs - c) : 1;
            for (int64_t i = 0; i < run; ++i) to[i] += from[i];
          }
    for (int64_t q = begin; q < end; ++q) {
      void* to = element(out, job.dtype, q * row);
      A* total = sum.data() + (q - begin) * row;
      if (accumulate) {
        const A* old = load(to, job.dtype, row, 1, buffer.data());
        for (int64_t i = 0; i < row; ++i) total[i] = old[i] + total[i];
      }
      store(to, job.dtype, row, 1, total);
    }
  });
}

/// Work for each useful product when `broadcast` channels meet `lanes` channels: empty lanes, and too few independent sums.
template <class A>
double cost(int64_t broadcast, int64_t lanes) {
  const auto padded = static_cast<double>(round_up(lanes, kLanes<A>));
  const auto sums = static_cast<double>(std::min<int64_t>(broadcast, 6) * (lanes > kLanes<A> ? 2 : 1));
  return padded / static_cast<double>(std::max<int64_t>(1, lanes)) * std::max(1.0, 8.0 / std::max(1.0, sums));
}

template <class A>
Job make_job(const ConvParams& p) {
  const ConvShape& s = p.shape;
  const Side y{p.weight, s.out_h * s.out_w * s.o, s.out_w * s.o, s.o, s.o / s.groups};
  const Side x{p.x, s.h * s.w * s.c, s.w * s.c, s.c, s.c / s.groups};
  Job job{};
  job.a_is_y = cost<A>(y.channels, x.channels) <= cost<A>(x.channels, y.channels);
  job.a = job.a_is_y ? y : x;
  job.b = job.a_is_y ? x : y;
  job.dtype = p.dtype;
  job.groups = s.groups;
  job.taps = s.kh * s.kw;
  job.images = s.n;
  constexpr auto kItem = static_cast<int64_t>(sizeof(A));
  job.b_block = std::min<int64_t>(kBlockChannels, round_up(job.b.channels, kLanes<A>));
  job.b_blocks = divide_up(job.b.channels, job.b_block);
  const int64_t a_limit = std::clamp<int64_t>(kBlockBytes / (job.taps * job.b_block * kItem), kTileRows, kBlockChannels);
  job.a_blocks = divide_up(job.a.channels, a_limit);
  job.a_block = divide_up(job.a.channels, job.a_blocks);
  const int64_t positions = s.out_h * s.out_w, per_position = (job.a_block + job.b_block) * kItem;
  const int64_t wanted = std::clamp<int64_t>(kPanelBytes / per_position, 32, kStepPositions);
  const int64_t bands = positions < 2 * wanted ? 1 : divide_up(s.out_h, std::max<int64_t>(1, wanted / s.out_w));
  job.band_rows = divide_up(s.out_h, bands);
  job.bands = divide_up(s.out_h, job.band_rows);
  job.images_per_step = job.bands > 1 ? 1 : std::clamp<int64_t>(wanted / positions, 1, s.n);
  job.steps = divide_up(s.n, job.images_per_step) * job.bands;
  const int64_t room = kPartialBytes / (job.blocks() * job.block_size() * kItem);
  job.slices = std::max<int64_t>(1, std::min({divide_up(kWantedUnits, job.blocks()), job.steps, room}));
  return job;
}

template <class A>
Status conv2d_weight_grad(const Context& ctx, const ConvParams& p) {
  const ConvShape& s = p.shape;
  const int64_t count = s.o * s.kh * s.kw * (s.c / s.groups);
  if (count == 0) return Status::ok;
  if (s.n * s.out_h * s.out_w * s.h * s.w == 0) {
    if (!p.accumulate) std::memset(p.out, 0, static_cast<size_t>(count) * item_size(p.dtype));  // +0 in every dtype
    return Status::ok;
  }
  if (is_depthwise(s)) {
    depthwise_weight_grad<A>(ctx, p);
    return Status::ok;
  }
  const Job job = make_job<A>(p);
  const AxisMap height = AxisMap::forward(s, 0), width = AxisMap::forward(s, 1);
  Plans plans = make_plans(height, width, job.images_per_step, job.band_rows, job.a_is_y);
  if (const int64_t rest = s.n % job.images_per_step; rest > 0) {
    plans.push_back(step_rows(height, 0, s.out_h, true));
    plans.back().pairs = make_pairs(plans.back(), height, width, rest, job.a_is_y);
  }
  const Scratch<A> partial(ctx, job.slices * job.blocks() * job.block_size());
  ctx.parallel_for(job.slices * job.blocks(), 1, [&](int64_t unit, int64_t) {
    const int64_t slice = unit / job.blocks(), block = unit % job.blocks();
    sum_block(ctx, job, plans, block, slice * job.steps / job.slices, (slice + 1) * job.steps / job.slices,
              partial.data() + unit * job.block_size());
  });
  write_weight(ctx, job, partial.data(), p.out, p.accumulate);
  return Status::ok;
}

ANELLO_KERNEL(kConv2dWeightGrad, conv2d_weight_grad<float>, {float16, bfloat16, float32});
ANELLO_KERNEL(kConv2dWeightGrad, conv2d_weight_grad<double>, {float64});

}  // namespace
}  // namespace anello::kernel
