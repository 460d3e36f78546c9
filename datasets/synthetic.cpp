// The procedural set: a shape, turned, in front of a shaded background with clutter, drawn with 2x2 samples a pixel.
// Main entry: synthetic().
#include <anello/core/interrupt.h>
#include <anello/core/parallel.h>
#include <anello/core/random.h>
#include <anello/datasets/sampler.h>
#include <anello/datasets/synthetic.h>

#include <algorithm>
#include <array>
#include <cstdlib>

namespace anello::data {

namespace {

constexpr int kSide = 32, kUnit = 16;  // lengths are in sixteenths of a pixel
enum Class { red_disc, blue_disc, ring, square, triangle, plus, rows, columns, checkers, dots };

using Colour = std::array<int, 3>;

// The random numbers of one image, in order.
class Words {
 public:
  Words(uint64_t seed, RandomPurpose purpose, int64_t index) : seed_(seed), purpose_(purpose), index_(index) {}
  uint32_t next() {
    if (used_ == 4) {
      words_ = philox(seed_, random_stream(purpose_, block_++), static_cast<uint64_t>(index_));
      used_ = 0;
    }
    return words_[used_++];
  }
  int between(int low, int high) {
    return low + static_cast<int>(uniform_below(next(), static_cast<uint32_t>(high - low + 1)));
  }

 private:
  uint64_t seed_;
  RandomPurpose purpose_;
  int64_t index_;
  uint64_t block_ = 0;
  std::array<uint32_t, 4> words_{};
  size_t used_ = 4;
};

// Hue in 0..1535 round the colour circle, saturation and value in 0..255.
Colour colour_of(int hue, int saturation, int value) {
  const int sector = hue / 256, rise = hue % 256;
  const int low = value * (255 - saturation) / 255;
  const int up = low + (value - low) * rise / 255, down = low + (value - low) * (255 - rise) / 255;
  switch (sector) {
    case 0:
      return {value, up, low};
    case 1:
      return {down, value, low};
    case 2:
      return {low, value, up};
    case 3:
      return {low, down, value};
    case 4:
      return {up, low, value};
    default:
      return {value, low, down};
  }
}

struct Figure {
  int kind;
  int x, y, radius;   // centre and size
  int cosine, sine;   // of the turn, in 1/4096
  int period, shift;  // of a texture
  bool round;         // outline of a texture: disc or square
  Colour colour, second;

  // False only when the figure is nowhere near this pixel: no figure reaches further than 5/4 of its radius.
  bool may_touch(int px, int py) const {
    const int reach = radius * 5 / 4 + kUnit;
    return std::abs(px - x) <= reach && std::abs(py - y) <= reach;
  }

  // The texture's two colours alternate; 0 outside the figure, 1 or 2 inside.
  int at(int px, int py) const {
    const int dx = px - x, dy = py - y;
    const int u = (dx * cosine + dy * sine) / 4096, v = (dy * cosine - dx * sine) / 4096;
    const int r = radius, au = std::abs(u), av = std::abs(v), square_distance = u * u + v * v;
    const bool in_disc = square_distance <= r * r, in_square = std::max(au, av) <= r * 13 / 16;
    switch (kind) {
      case red_disc:
      case blue_disc:
        return in_disc;
      case ring:
        return in_disc && square_distance * 100 >= r * r * 36;
      case square:
        return in_square;
      case triangle:
        return v <= r * 10 / 16 && v >= -r && au * 16 <= (v + r) * 9;
      case plus:
        return std::min(au, av) * 10 <= r * 3 && std::max(au, av) <= r;
      default:
        break;
    }
    if (!(round ? in_disc : in_square)) return 0;
    // Shifted so that the remainders below are of positive numbers.
    const int a = u + 64 * period + shift, b = v + 64 * period + shift;
    const int column = a / period % 2, row = b / period % 2;
    switch (kind) {
      case rows:
        return 1 + row;
      case columns:
        return 1 + column;
      case checkers:
        return 1 + (row ^ column);
      default: {
        const int cell = 2 * period, p = a % cell - period, q = b % cell - period;
        return 1 + (16 * (p * p + q * q) <= 10 * period * period ? 1 : 0);
      }
    }
  }
};

struct Scene {
  std::array<Colour, 4> corners;  // of the background
  std::array<Figure, 3> figures;  // two of clutter, then the one that counts
  int noise;
};

Figure clutter(Words& w) {
  Figure f{};
  f.kind = red_disc;  // any colour: see below
  f.x = w.between(0, kSide * kUnit);
  f.y = w.between(0, kSide * kUnit);
  f.radius = w.between(1 * kUnit, 5 * kUnit / 2);
  f.cosine = 4096;
  f.colour = colour_of(w.between(0, 1535), w.between(60, 220), w.between(40, 230));
  return f;
}

// A texture has larger cells where checkers and dots need both directions.
Scene scene_of(int label, Words& w) {
  Scene s{};
  const bool bright = w.between(0, 1) == 0;  // a dark figure before a bright ground, or the other way round
  const int hue = w.between(0, 1535);
  for (Colour& c : s.corners)
    c = colour_of((hue + w.between(0, 250)) % 1536, w.between(20, 130),
                  bright ? w.between(150, 245) : w.between(15, 100));
  s.figures[0] = clutter(w);
  s.figures[1] = clutter(w);
  Figure& f = s.figures[2];
  f.kind = label;
  f.radius = w.between(7 * kUnit, 12 * kUnit);
  f.x = w.between(f.radius, kSide * kUnit - f.radius);
  f.y = w.between(f.radius, kSide * kUnit - f.radius);
  // The turn by 2 atan(t / 64) has a rational cosine and sine: up to 21 degrees either way without a trigonometric
  // function.
  const int t = w.between(-12, 12), norm = 64 * 64 + t * t;
  f.cosine = 4096 * (64 * 64 - t * t) / norm;
  f.sine = 4096 * 2 * 64 * t / norm;
  f.period = w.between(5 * kUnit / 2, 4 * kUnit);
  f.shift = w.between(0, 8 * kUnit);
  f.round = w.between(0, 1) == 0;
  int figure_hue = w.between(0, 1535);
  if (label == red_disc) figure_hue = (1536 + w.between(-110, 110)) % 1536;
  if (label == blue_disc) figure_hue = 1024 + w.between(-170, 110);
  const int value = bright ? w.between(30, 110) : w.between(150, 250);
  f.colour = colour_of(figure_hue, w.between(150, 255), value);
  // The texture's other colour has the other brightness.
  f.second = colour_of(w.between(0, 1535), w.between(60, 220), bright ? w.between(150, 250) : w.between(20, 90));
  s.noise = w.between(6, 36);
  return s;
}

Colour ground_at(const Scene& s, int x, int y) {
  const int right = 2 * x + 1, left = 2 * kSide - right, below = 2 * y + 1, above = 2 * kSide - below;
  Colour ground;
  for (size_t c = 0; c < 3; ++c)
    ground[c] = ((s.corners[0][c] * left + s.corners[1][c] * right) * above +
                 (s.corners[2][c] * left + s.corners[3][c] * right) * below) /
                (4 * kSide * kSide);
  return ground;
}

// The colour of a pixel without noise: the mean of four samples, each showing the frontmost figure or the ground.
Colour colour_at(const Scene& s, int x, int y) {
  const Colour ground = ground_at(s, x, y);
  const int middle_x = x * kUnit + kUnit / 2, middle_y = y * kUnit + kUnit / 2;
  std::array<bool, 3> near;
  for (size_t i = 0; i < near.size(); ++i) near[i] = s.figures[i].may_touch(middle_x, middle_y);
  if (!near[0] && !near[1] && !near[2]) return ground;
  Colour sum{};
  for (int sample = 0; sample < 4; ++sample) {
    const int px = x * kUnit + 4 + 8 * (sample % 2), py = y * kUnit + 4 + 8 * (sample / 2);
    const Colour* front = &ground;
    for (size_t i = 0; i < near.size(); ++i) {
      const int part = near[i] ? s.figures[i].at(px, py) : 0;
      if (part != 0) front = part == 1 ? &s.figures[i].colour : &s.figures[i].second;
    }
    for (size_t c = 0; c < 3; ++c) sum[c] += (*front)[c];
  }
  return {sum[0] / 4, sum[1] / 4, sum[2] / 4};
}

void draw(const Scene& s, Words& w, uint8_t* out) {
  uint32_t bits = 0;
  int bytes_left = 0;
  for (int y = 0; y < kSide; ++y)
    for (int x = 0; x < kSide; ++x)
      for (const int clean : colour_at(s, x, y)) {
        if (bytes_left == 0) bits = w.next(), bytes_left = 4;
        const int centred = static_cast<int>(bits & 255u) - 128;
        bits >>= 8;
        --bytes_left;
        *out++ = static_cast<uint8_t>(std::clamp(clean + centred * s.noise / 128, 0, 255));
      }
}

ImageDataset make(int64_t count, uint64_t seed, RandomPurpose purpose) {
  ImageDataset d{empty({count, kSide, kSide, 3}, uint8), empty({count}, int64), {}, {}, {}};
  d.class_names = {"red disc", "blue disc", "ring",    "square",   "triangle",
                   "plus",     "rows",      "columns", "checkers", "dots"};
  uint8_t* const images = d.images.data<uint8_t>();
  int64_t* const labels = d.labels.data<int64_t>();
  constexpr int64_t kBlock = 4096;  // images between two looks at Ctrl-C
  for (int64_t start = 0; start < count; start += kBlock) {
    check_interrupt();
    parallel_for(std::min(kBlock, count - start), 64, [&](int64_t begin, int64_t end) {
      for (int64_t i = start + begin; i < start + end; ++i) {
        Words words(seed, purpose, i);
        labels[i] = i % 10;
        draw(scene_of(static_cast<int>(i % 10), words), words, images + i * kSide * kSide * 3);
      }
    });
  }
  return d;
}

}  // namespace

ImageSplits synthetic(int64_t train_count, int64_t test_count, uint64_t seed) {
  check<ValueError>(train_count >= 1 && test_count >= 0, "synthetic", train_count, " training and ", test_count,
                    " test images cannot be made. Hint: at least one to train on.");
  ImageSplits s{make(train_count, seed, RandomPurpose::synthetic_train),
                make(test_count, seed, RandomPurpose::synthetic_test)};
  const ChannelStats stats = channel_stats(s.train.images);
  s.train.mean = s.test.mean = stats.mean;
  s.train.stddev = s.test.stddev = stats.stddev;
  return s;
}

}  // namespace anello::data
