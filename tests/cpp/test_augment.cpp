// Augmentation against a plain reference, pixel by pixel, and the distribution of what it draws.
// Main entry: [datasets].
#include "catch.h"

#include <anello/core/random.h>
#include <anello/datasets/augment.h>

#include <cmath>
#include <numeric>

using namespace anello;
using namespace anello::data;

namespace {

// The elements as they lie in memory.
template <class T>
std::vector<T> values(const Tensor& t) {
  return std::vector<T>(t.data<T>(), t.data<T>() + t.numel());
}

const std::vector<double> kMean{0.4914, 0.4822, 0.4465}, kStd{0.2470, 0.2435, 0.2616};

Tensor random_images(int64_t n, int64_t h, int64_t w, int64_t c) {
  std::vector<uint8_t> v(static_cast<size_t>(n * h * w * c));
  for (size_t i = 0; i < v.size(); ++i) v[i] = static_cast<uint8_t>(philox(99, 0, i)[0]);
  return from_vector(v, {n, h, w, c});
}

// What the pixel of a batch is by the definition of each step; -1 for the colour of a cutout.
int reference_pixel(const Tensor& images, const Augmentation& a, const Augmenter::Draw& d, int64_t n, int64_t y,
                    int64_t x, int64_t c) {
  const int64_t h = images.size(1), w = images.size(2), ch = images.size(3);
  if (a.cutout > 0) {
    const int64_t y0 = d.cut_y - a.cutout / 2, x0 = d.cut_x - a.cutout / 2;
    if (y >= y0 && y < y0 + a.cutout && x >= x0 && x < x0 + a.cutout) return -1;
  }
  if (d.flip) x = w - 1 - x;
  int64_t sy = y + d.top - a.crop_padding, sx = x + d.left - a.crop_padding;
  if (a.padding == Padding::zero && (sy < 0 || sy >= h || sx < 0 || sx >= w)) return 0;
  const auto mirror = [](int64_t i, int64_t size) { return i < 0 ? -i : i >= size ? 2 * (size - 1) - i : i; };
  return images.data<uint8_t>()[((n * h + mirror(sy, h)) * w + mirror(sx, w)) * ch + c];
}

std::vector<int64_t> all(int64_t n) {
  std::vector<int64_t> v(static_cast<size_t>(n));
  std::iota(v.begin(), v.end(), 0);
  return v;
}

}  // namespace

TEST_CASE("augmented batches equal the definition", "[datasets]") {
  const int64_t channels = GENERATE(1, 3, 4);
  const Tensor images = random_images(40, 7, 9, channels);
  const std::vector<double> mean(static_cast<size_t>(channels), 0.45), stddev(static_cast<size_t>(channels), 0.25);
  for (const Padding padding : {Padding::zero, Padding::reflect})
    for (const Flip flip : {Flip::none, Flip::random, Flip::alternating})
      for (const int crop : {0, 1, 4})
        for (const int cutout : {0, 1, 4, 5}) {
          Augmentation a;
          a.padding = padding, a.flip = flip, a.crop_padding = crop, a.cutout = cutout;
          const Augmenter augmenter(a, 7, 9, channels, mean, stddev);
          for (const uint64_t epoch : {0, 3}) {
            const Tensor batch = augmenter.batch(images, all(40), 5, epoch);
            const float* got = batch.data<float>();
            bool same = true;
            for (int64_t n = 0; n < 40; ++n) {
              const Augmenter::Draw d = augmenter.draw(5, epoch, n);
              for (int64_t y = 0; y < 7; ++y)
                for (int64_t x = 0; x < 9; ++x)
                  for (int64_t c = 0; c < channels; ++c) {
                    const int pixel = reference_pixel(images, a, d, n, y, x, c);
                    const float want = pixel < 0 ? 0.0f : static_cast<float>((pixel / 255.0 - 0.45) / 0.25);
                    same = same && *got++ == want;
                  }
            }
            REQUIRE(same);
          }
        }
}

TEST_CASE("batches come in every float dtype and as raw pixels", "[datasets]") {
  const Tensor images = random_images(6, 5, 5, 3);
  const auto batch_of = [&](DType dtype, bool normalize) {
    Augmentation a;
    a.dtype = dtype, a.normalize = normalize, a.crop_padding = 2, a.flip = Flip::random;
    return Augmenter(a, 5, 5, 3, kMean, kStd).batch(images, {5, 0, 3}, 1, 2);
  };
  const Tensor f32 = batch_of(float32, true), raw = batch_of(uint8, true);
  REQUIRE(f32.shape() == Shape{3, 5, 5, 3});
  REQUIRE(raw.dtype() == uint8);
  const auto unit = values<float>(batch_of(float32, false));
  const auto pixels = values<uint8_t>(raw);
  for (size_t i = 0; i < pixels.size(); ++i) REQUIRE(unit[i] == static_cast<float>(pixels[i] / 255.0));
  for (const DType dtype : {float16, bfloat16, float64}) {
    const Tensor t = batch_of(dtype, true);
    REQUIRE(t.dtype() == dtype);
    for (int64_t i = 0; i < t.numel(); ++i) {
      const float v = f32.data<float>()[i];
      if (dtype == float16) REQUIRE(t.data<Float16>()[i].bits == Float16(v).bits);
      if (dtype == bfloat16) REQUIRE(t.data<BFloat16>()[i].bits == BFloat16(v).bits);
      if (dtype == float64) REQUIRE(static_cast<float>(t.data<double>()[i]) == v);
    }
  }
}

TEST_CASE("cutout shows the mean colour", "[datasets]") {
  const Tensor images = random_images(4, 6, 6, 3);
  Augmentation a;
  a.cutout = 12;  // covers at least a quarter, from any centre
  a.dtype = uint8;
  const Augmenter augmenter(a, 6, 6, 3, kMean, kStd);
  const auto d = augmenter.draw(0, 0, 2);
  const Tensor batch = augmenter.batch(images, {2}, 0, 0);
  const uint8_t* centre = batch.data<uint8_t>() + (d.cut_y * 6 + d.cut_x) * 3;
  REQUIRE(int{centre[0]} == 125);  // 0.4914 * 255 = 125.3
  REQUIRE(int{centre[1]} == 123);
  REQUIRE(int{centre[2]} == 114);
}

TEST_CASE("draws are uniform and depend on seed, epoch and index alone", "[datasets]") {
  Augmentation a;
  a.crop_padding = 2, a.flip = Flip::random, a.cutout = 8;
  const Augmenter augmenter(a, 32, 32, 3, kMean, kStd);
  constexpr int n = 10000;
  int top[5] = {}, left[5] = {}, flips = 0, differs = 0;
  for (int i = 0; i < n; ++i) {
    const auto d = augmenter.draw(3, 1, i), again = augmenter.draw(3, 1, i), next = augmenter.draw(3, 2, i);
    REQUIRE((d.top >= 0 && d.top < 5 && d.left >= 0 && d.left < 5));
    REQUIRE((d.cut_y >= 0 && d.cut_y < 32 && d.cut_x >= 0 && d.cut_x < 32));
    REQUIRE((d.top == again.top && d.left == again.left && d.flip == again.flip && d.cut_x == again.cut_x));
    ++top[d.top], ++left[d.left];
    flips += d.flip;
    differs += d.top != next.top || d.left != next.left || d.flip != next.flip;
  }
  for (int i = 0; i < 5; ++i) {  // mean 2000, standard deviation 40
    REQUIRE(std::abs(top[i] - n / 5) < 200);
    REQUIRE(std::abs(left[i] - n / 5) < 200);
  }
  REQUIRE(std::abs(flips - n / 2) < 250);
  REQUIRE(std::abs(differs - n * 49 / 50) < 100);
}

TEST_CASE("alternating flip mirrors the whole set every other epoch", "[datasets]") {
  const Augmenter augmenter(Augmentation::airbench(), 32, 32, 3, kMean, kStd);
  int flips = 0;
  for (int i = 0; i < 4000; ++i) {
    const bool even = augmenter.draw(11, 0, i).flip;
    flips += even;
    for (const uint64_t epoch : {1, 2, 3, 4, 5})
      REQUIRE(augmenter.draw(11, epoch, i).flip == (even != (epoch % 2 == 1)));
  }
  REQUIRE(std::abs(flips - 2000) < 160);
}

TEST_CASE("normalize_images converts a whole set", "[datasets]") {
  const Tensor images = random_images(600, 4, 4, 3);
  const Tensor out = normalize_images(images, kMean, kStd);
  bool same = true;
  for (int64_t i = 0; i < images.numel(); ++i) {
    const auto c = static_cast<size_t>(i % 3);
    same = same && out.data<float>()[i] == static_cast<float>((images.data<uint8_t>()[i] / 255.0 - kMean[c]) / kStd[c]);
  }
  REQUIRE(same);
  REQUIRE(normalize_images(empty({0, 4, 4, 3}, uint8), kMean, kStd).shape() == Shape{0, 4, 4, 3});
}

TEST_CASE("augmentation refuses what cannot be", "[datasets]") {
  const auto make = [](const Augmentation& a) { Augmenter(a, 8, 8, 3, {}, {}); };
  Augmentation a;
  REQUIRE_THROWS_WITH(make(a), contains_text("no mean and stddev") && contains_text("channel_stats"));
  a.mean = {0.5}, a.stddev = {0.5};
  REQUIRE_THROWS_AS(make(a), ShapeError);
  a.mean = {0.5, 0.5, 0.5}, a.stddev = {0.5, 0, 0.5};
  REQUIRE_THROWS_AS(make(a), ValueError);
  a.stddev = a.mean;
  REQUIRE_NOTHROW(make(a));
  a.crop_padding = 8;
  REQUIRE_THROWS_WITH(make(a), contains_text("reflect padding of 8") && contains_text("8 x 8"));
  a.padding = Padding::zero;
  REQUIRE_NOTHROW(make(a));
  a.crop_padding = -1;
  REQUIRE_THROWS_AS(make(a), ValueError);
  a.crop_padding = 0, a.cutout = -3;
  REQUIRE_THROWS_AS(make(a), ValueError);
  a.cutout = 0, a.dtype = int32;
  REQUIRE_THROWS_AS(make(a), DTypeError);
  REQUIRE_THROWS_WITH(flip_from_name("alternate"), contains_text("alternating"));
  REQUIRE_THROWS_WITH(padding_from_name("reflection"), contains_text("reflect"));
  const Tensor images = random_images(2, 8, 8, 3);
  const Augmenter augmenter(Augmentation{}, 8, 8, 3, kMean, kStd);
  REQUIRE_THROWS_AS(augmenter.batch(images, {0, 2}, 0, 0), IndexError);
  REQUIRE_THROWS_AS(augmenter.batch(images, {-1}, 0, 0), IndexError);
}
