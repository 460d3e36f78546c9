// The gradient of convolution weights: for each tap a product of y (transposed) with shifted x, summed over positions
// in registers. Blocks of the weight and slices of the batch are cut by the sizes alone; slices are added in order.
// Main entry: conv2d_weight_grad<A>().
#include <anello/core/cpu/conv_common.h>
#include <anello/core/cpu/convert.h>
#include <anello/core/cpu/winograd.h>

#include <algorithm>
#include <cstring>
#include <memory>

namespace anello::kernel {
namespace {

constexpr int64_t kBlockBytes = 512 << 10;  // sums of one unit, to stay in L2
constexpr int64_t kPanelBytes = 384 << 10;  // x and y of one step beside them
constexpr int64_t kStepPositions =
    128;  // positions summed in registers before the sums go back to L2: a panel stays in L1
constexpr int64_t kBlockChannels = 128;
constexpr int64_t kPartialBytes = 16 << 20;  // all slices together
constexpr int64_t kWantedUnits = 32;

/// The pairs of positions that belong to each tap, for some rows of some images.
struct Pairs {
  std::vector<PanelPair> list;  ///< of all taps
  std::vector<size_t> first;    ///< [taps + 1]
};

/// Which positions of an image one operand of a step is packed from: every row with every column.
struct Grid {
  std::vector<int64_t> rows, columns;
  int64_t positions() const { return static_cast<int64_t>(rows.size() * columns.size()); }
};

/// What one step reads of each of its images.
struct StepPlan {
  Grid x, y;
  std::vector<int64_t> key;  ///< for each row of y and tap the place in x.rows, or -1: equal keys have equal pairs
  std::shared_ptr<const Pairs> pairs;
};

/// The places of an axis that some tap of the outputs [begin, end) reads, ascending.
std::vector<int64_t> used_places(const AxisMap& map, int64_t begin, int64_t end) {
  std::vector<int64_t> places;
  for (int64_t i = begin; i < end; ++i)
    for (int64_t t = 0; t < map.taps; ++t)
      if (map.at(i, t) >= 0) places.push_back(map.at(i, t));
  std::sort(places.begin(), places.end());
  places.erase(std::unique(places.begin(), places.end()), places.end());
  return places;
}
int64_t place_of(const std::vector<int64_t>& places, int64_t place) {
  return place < 0 ? -1 : std::lower_bound(places.begin(), places.end(), place) - places.begin();
}

/// Rows [begin, end) of y and what they need of x; no pairs yet.
StepPlan step_rows(const AxisMap& height, const AxisMap& width, int64_t begin, int64_t end) {
  StepPlan step{{used_places(height, begin, end), used_places(width, 0, width.outputs)}, {}, {}, {}};
  for (int64_t i = begin; i < end; ++i) step.y.rows.push_back(i);
  for (int64_t j = 0; j < width.outputs; ++j) step.y.columns.push_back(j);
  for (int64_t i = begin; i < end; ++i)
    for (int64_t r = 0; r < height.taps; ++r) step.key.push_back(place_of(step.x.rows, height.at(i, r)));
  return step;
}

std::shared_ptr<const Pairs> make_pairs(const StepPlan& step, const AxisMap& height, const AxisMap& width,
                                        int64_t images, bool y_first) {
  auto pairs = std::make_shared<Pairs>();
  const auto y_rows = static_cast<int64_t>(step.y.rows.size()), x_columns = static_cast<int64_t>(step.x.columns.size());
  std::vector<int64_t> columns;  // [output column][tap]
  for (int64_t j = 0; j < width.outputs; ++j)
    for (int64_t s = 0; s < width.taps; ++s) columns.push_back(place_of(step.x.columns, width.at(j, s)));
  pairs->first.push_back(0);
  for (int64_t tap = 0; tap < height.taps * width.taps; ++tap) {
    for (int64_t line = 0; line < images * y_rows; ++line) {
      const int64_t image = line / y_rows,
                    row = step.key[static_cast<size_t>(line % y_rows * height.taps + tap / width.taps)];
      if (row < 0) continue;
      const int64_t y = line * width.outputs, x = image * step.x.positions() + row * x_columns;
      for (int64_t j = 0; j < width.outputs; ++j) {
        const int64_t column = columns[static_cast<size_t>(j * width.taps + tap % width.taps)];
        if (column < 0) continue;
        const auto in_y = static_cast<int32_t>(y + j), in_x = static_cast<int32_t>(x + column);
        pairs->list.push_back(y_first ? PanelPair{in_y, in_x} : PanelPair{in_x, in_y});
      }
    }
    pairs->first.push_back(pairs->list.size());
  }
  return pairs;
}

/// The plan of each band, and behind them that of a last, smaller group of images. Bands that differ in their place
/// only share their pairs.
using Plans = std::vector<StepPlan>;
Plans make_plans(const AxisMap& height, const AxisMap& width, int64_t images, int64_t rest, int64_t band_rows,
                 bool y_first) {
  Plans plans;
  for (int64_t begin = 0; begin < height.outputs; begin += band_rows) {
    StepPlan plan = step_rows(height, width, begin, std::min(height.outputs, begin + band_rows));
    for (const StepPlan& earlier : plans)
      if (earlier.key == plan.key) plan.pairs = earlier.pairs;
    if (!plan.pairs) plan.pairs = make_pairs(plan, height, width, images, y_first);
    plans.push_back(std::move(plan));
  }
  if (rest > 0) {
    plans.push_back(step_rows(height, width, 0, height.outputs));
    plans.back().pairs = make_pairs(plans.back(), height, width, rest, y_first);
  }
  return plans;
}

/// One operand: [position][width] of the key dtype, `channels` of each group.
struct Side {
  const void* data;
  int64_t image_size, row_size, width, channels;  ///< elements
};

/// The whole job: which side is broadcast (a) and which fills registers (b), and how both are cut.
struct Job {
  Side a, b;
  DType dtype;
  int64_t groups, taps;
  int64_t a_block, b_block;  ///< channels of a block; b_block in whole registers
  int64_t a_blocks, b_blocks;
  int64_t images, images_per_step, band_rows, bands, steps, slices;
  bool a_is_y;

  int64_t blocks() const { return groups * a_blocks * b_blocks; }
  int64_t block_size() const { return a_block * taps * b_block; }
};

/// One operand of one block, packed step by step: panel q holds [position][cut.size(q) * unit] channels, zeros beyond
/// the last.
template <class A>
class PackedSide {
 public:
  PackedSide(const Context& ctx, const Job& job, const Side& side, int64_t first, int64_t count, EvenCut cut,
             int64_t unit, int64_t most_positions)
      : job_(job),
        side_(side),
        first_(first),
        count_(count),
        cut_(cut),
        unit_(unit),
        converted_(ctx, job.dtype == dtype_of<A> ? 0 : most_positions * count + kSlack),
        panels_(ctx, most_positions * cut.count * unit + kSlack) {}

  /// Takes `images` images from `image` on; the panels of the step before are gone.
  void pack(const Grid& grid, int64_t image, int64_t images) {
    positions_ = images * grid.positions();
    if (positions_ == 0) return;
    const bool same = job_.dtype == dtype_of<A>;
    if (!same) convert(grid, image, images);
    const auto total = job_.images * side_.image_size;
    for (int64_t q = 0; q < cut_.pieces; ++q) {
      const int64_t c = cut_.begin(q) * unit_, width = cut_.size(q) * unit_, used = std::min(width, count_ - c);
      const int64_t whole = round_up(width, kCopy);
      A *to = panels_.data() + c * positions_, *const end = to + positions_ * width;
      const A* from = converted_.data() + c;
      if (!same) {
        for (; to != end; to += width, from += count_) copy(to, from, used, width, used == width);
        continue;
      }
      for (int64_t n = image; n < image + images; ++n)
        for (const int64_t row : grid.rows) {
          const int64_t start = n * side_.image_size + row * side_.row_size + first_ + c;
          from = static_cast<const A*>(side_.data) + start;
          // Copies read beyond the piece; near the end of the tensor they may not.
          const bool roomy = used == width && start + grid.columns.back() * side_.width + whole <= total;
          for (const int64_t column : grid.columns) {
            copy(to, from + column * side_.width, used, width, roomy);
            to += width;
          }
        }
    }
  }
  /// Fetches share `part` of `parts` of what pack() with these arguments would read.
  void prefetch(const Grid& grid, int64_t image, int64_t images, int64_t part, int64_t parts) const {
    const int64_t positions = images * grid.positions(), bytes = count_ * static_cast<int64_t>(item_size(job_.dtype));
    const auto columns = static_cast<int64_t>(grid.columns.size()), rows = static_cast<int64_t>(grid.rows.size());
    for (int64_t i = positions * part / parts; i < positions * (part + 1) / parts; ++i) {
      const int64_t row = grid.rows[static_cast<size_t>(i / columns % rows)],
                    column = grid.columns[static_cast<size_t>(i % columns)];
      const int64_t start =
          (image + i / columns / rows) * side_.image_size + row * side_.row_size + column * side_.width + first_;
      const auto* from = static_cast<const char*>(element(side_.data, job_.dtype, start));
      for (int64_t byte = 0; byte < bytes; byte += 64) __builtin_prefetch(from + byte, 0, 2);
    }
  }
  const A* panel(int64_t q) const { return panels_.data() + cut_.begin(q) * unit_ * positions_; }

 private:
  static constexpr int64_t kCopy =
      32 / static_cast<int64_t>(sizeof(A));  // elements copied at a time, with more room than needed
  static constexpr int64_t kSlack = 2 * kCopy;

  static void copy(A* to, const A* from, int64_t used, int64_t width, bool roomy) {
    if (roomy) {
      for (int64_t i = 0; i < width; i += kCopy) std::memcpy(to + i, from + i, 32);
    } else {
      std::memcpy(to, from, static_cast<size_t>(used) * sizeof(A));
      std::fill_n(to + used, width - used, A(0));
    }
  }

  void convert(const Grid& grid, int64_t image, int64_t images) {
    A* to = converted_.data();
    for (int64_t n = image; n < image + images; ++n)
      for (const int64_t row : grid.rows)
        for (const int64_t column : grid.columns) {
          const int64_t start = n * side_.image_size + row * side_.row_size + column * side_.width + first_;
          load(element(side_.data, job_.dtype, start), job_.dtype, count_, 1, to);
          to += count_;
        }
  }

  const Job& job_;
  const Side& side_;
  int64_t first_, count_;
  EvenCut cut_;
  int64_t unit_, positions_ = 0;
  Scratch<A> converted_, panels_;
};

/// Sums one block over the steps [begin, end) into `sums` [a_block][tap][b_block].
template <class A>
void sum_block(const Context& ctx, const Job& job, const Plans& plans, int64_t block, int64_t begin, int64_t end,
               A* sums) {
  const int64_t group = block / (job.a_blocks * job.b_blocks),
                a_first = block / job.b_blocks % job.a_blocks * job.a_block;
  const int64_t b_first = block % job.b_blocks * job.b_block, ld = job.taps * job.b_block;
  const int64_t a_count = std::min(job.a_block, job.a.channels - a_first),
                b_count = std::min(job.b_block, job.b.channels - b_first);
  const EvenCut vectors(divide_up(b_count, kLanes<A>), kTileVectors), heights(a_count, tile_rows(vectors.largest()));
  int64_t x_positions = 0, y_positions = 0;
  for (const StepPlan& plan : plans) {
    x_positions = std::max(x_positions, job.images_per_step * plan.x.positions());
    y_positions = std::max(y_positions, job.images_per_step * plan.y.positions());
  }
  PackedSide<A> a(ctx, job, job.a, group * job.a.channels + a_first, a_count, heights, 1,
                  job.a_is_y ? y_positions : x_positions);
  PackedSide<A> b(ctx, job, job.b, group * job.b.channels + b_first, b_count, vectors, kLanes<A>,
                  job.a_is_y ? x_positions : y_positions);
  const auto grids = [&](int64_t step, auto&& use) {
    const int64_t image = step / job.bands * job.images_per_step,
                  images = std::min(job.images_per_step, job.images - image);
    const StepPlan& plan = plans[static_cast<size_t>(images < job.images_per_step ? job.bands : step % job.bands)];
    use(plan, job.a_is_y ? plan.y : plan.x, job.a_is_y ? plan.x : plan.y, image, images);
  };
  const int64_t parts = job.taps * vectors.pieces;
  for (int64_t step = begin; step < end; ++step) {
    const Pairs* pairs = nullptr;
    grids(step, [&](const StepPlan& plan, const Grid& a_grid, const Grid& b_grid, int64_t image, int64_t images) {
      a.pack(a_grid, image, images);
      b.pack(b_grid, image, images);
      pairs = plan.pairs.get();
    });
    for (int64_t part = 0; part < parts; ++part) {
      const int64_t t = part / vectors.pieces, q = part % vectors.pieces;
      const size_t first = pairs->first[static_cast<size_t>(t)];
      const auto count = static_cast<int64_t>(pairs->first[static_cast<size_t>(t) + 1] - first);
      if (step + 1 < end)
        grids(step + 1, [&](const StepPlan&, const Grid& a_grid, const Grid& b_grid, int64_t image, int64_t images) {
          a.prefetch(a_grid, image, images, part, parts);
          b.prefetch(b_grid, image, images, part, parts);
        });
      if (count == 0 && step > begin) continue;
      for (int64_t i = 0; i < heights.pieces; ++i)
        panel_function<A>(heights.size(i), vectors.size(q))(
            a.panel(i), b.panel(q), pairs->list.data() + first, count,
            sums + heights.begin(i) * ld + t * job.b_block + vectors.begin(q) * kLanes<A>, ld, step > begin);
    }
  }
}

/// Adds the slices in order and writes the weight [group][o][tap][c], o being a or b.
template <class A>
void write_weight(const Context& ctx, const Job& job, const A* partial, void* out, bool accumulate) {
  const int64_t outputs = job.a_is_y ? job.a.channels : job.b.channels,
                inputs = job.a_is_y ? job.b.channels : job.a.channels;
  const int64_t row = job.taps * inputs, slice_step = job.blocks() * job.block_size();
  const int64_t together =
      std::max<int64_t>(1, std::min<int64_t>(kLanes<A>, divide_up(1 << 20, std::max<int64_t>(1, row))));
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

/// Work for each useful product when `broadcast` channels meet `lanes` channels: empty lanes, and too few independent
/// sums.
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
  const int64_t a_limit =
      std::clamp<int64_t>(kBlockBytes / (job.taps * job.b_block * kItem), kTileRows, kBlockChannels);
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
  if constexpr (sizeof(A) == 4)
    if (winograd_pays(s)) {
      winograd_weight_grad(ctx, p);
      return Status::ok;
    }
  const Job job = make_job<A>(p);
  const AxisMap height = AxisMap::forward(s, 0), width = AxisMap::forward(s, 1);
  const Plans plans =
      make_plans(height, width, job.images_per_step, s.n % job.images_per_step, job.band_rows, job.a_is_y);
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
