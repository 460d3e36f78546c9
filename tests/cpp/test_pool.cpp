// Pooling against the definition, over random sizes and every dtype; gradients by differences.
// Main entry: tag [pool].
#include "reference.h"

#include <limits>

using namespace anello;
using namespace reference;

namespace {

struct Case {
  Shape x;
  Pair kernel, stride, padding;
  bool ceil_mode;

  int64_t out(int axis) const {
    const auto i = static_cast<size_t>(axis);
    const int64_t room = x[1 + axis] + 2 * padding[i] - kernel[i];
    int64_t n = (ceil_mode ? room + stride[i] - 1 : room) / stride[i] + 1;
    if (ceil_mode && (n - 1) * stride[i] >= x[1 + axis] + padding[i]) --n;
    return n;
  }
  Shape y() const { return {x[0], out(0), out(1), x[3]}; }
};

Case random_case(RandomSizes& random) {
  for (;;) {
    Case c{{random(0, 3), random(1, 14), random(1, 14), random(1, 50)},
           {random(1, 4), random(1, 4)},
           {},
           {},
           random.chance(2)};
    for (size_t i = 0; i < 2; ++i) c.stride[i] = random(1, 4), c.padding[i] = random(0, c.kernel[i] / 2);
    if (c.kernel[0] <= c.x[1] + 2 * c.padding[0] && c.kernel[1] <= c.x[2] + 2 * c.padding[1]) return c;
  }
}

/// Calls f(place in y, first row, end row, first column, end column) with the window clipped to the image.
template <class F>
void each_window(const Case& c, const F& f) {
  const Shape y = c.y();
  for (int64_t n = 0; n < y[0]; ++n)
    for (int64_t i = 0; i < y[1]; ++i)
      for (int64_t j = 0; j < y[2]; ++j) {
        const int64_t h = i * c.stride[0] - c.padding[0], w = j * c.stride[1] - c.padding[1];
        for (int64_t q = 0; q < y[3]; ++q) f(n, q, static_cast<size_t>(((n * y[1] + i) * y[2] + j) * y[3] + q), h, w);
      }
}
size_t place(const Case& c, int64_t n, int64_t h, int64_t w, int64_t q) {
  return static_cast<size_t>(((n * c.x[1] + h) * c.x[2] + w) * c.x[3] + q);
}
bool inside(const Case& c, int64_t h, int64_t w) { return h >= 0 && h < c.x[1] && w >= 0 && w < c.x[2]; }

std::ostream& operator<<(std::ostream& out, const Case& c) {
  return out << c.x << " kernel " << c.kernel[0] << "," << c.kernel[1] << " stride " << c.stride[0] << ","
             << c.stride[1] << " padding " << c.padding[0] << "," << c.padding[1] << (c.ceil_mode ? " ceil" : "");
}

}  // namespace

TEST_CASE("max pooling and its gradient agree with the definition", "[pool]") {
  RandomSizes random(1);
  for (int t = 0; t < 120; ++t) {
    const Case c = random_case(random);
    const DType dtype = kFloats[t % 4];
    INFO(c << " " << dtype);
    const Tensor x = random_tensor(random, c.x, dtype).set_requires_grad(), dy = random_tensor(random, c.y(), dtype);
    const std::vector<double> xs = doubles(x), dys = doubles(dy);
    std::vector<double> y(dys.size()), dx(xs.size());
    each_window(c, [&](int64_t n, int64_t q, size_t out, int64_t h, int64_t w) {
      double best = -std::numeric_limits<double>::infinity();
      size_t from = 0;
      for (int64_t r = 0; r < c.kernel[0]; ++r)
        for (int64_t s = 0; s < c.kernel[1]; ++s)
          if (inside(c, h + r, w + s) && xs[place(c, n, h + r, w + s, q)] > best)
            from = place(c, n, h + r, w + s, q), best = xs[from];
      y[out] = best;
      dx[from] += dys[out];
    });
    const Tensor result = max_pool2d(x, c.kernel, c.stride, c.padding, c.ceil_mode);
    REQUIRE(result.shape() == c.y());
    REQUIRE(doubles(result) == y);
    result.backward(dy);
    require_close(x.grad(), dx, tolerance(dtype));
  }
}

TEST_CASE("average pooling and its gradient agree with the definition", "[pool]") {
  RandomSizes random(2);
  for (int t = 0; t < 120; ++t) {
    const Case c = random_case(random);
    const DType dtype = kFloats[t % 4];
    const bool count_padding = random.chance(2);
    INFO(c << " " << dtype << " " << count_padding);
    const Tensor x = random_tensor(random, c.x, dtype).set_requires_grad(), dy = random_tensor(random, c.y(), dtype);
    const std::vector<double> xs = doubles(x), dys = doubles(dy);
    std::vector<double> y(dys.size()), dx(xs.size());
    each_window(c, [&](int64_t n, int64_t q, size_t out, int64_t h, int64_t w) {
      double total = 0, counted = 0;
      for (int64_t r = 0; r < c.kernel[0]; ++r)
        for (int64_t s = 0; s < c.kernel[1]; ++s) {
          const bool in_padding = h + r < c.x[1] + c.padding[0] && w + s < c.x[2] + c.padding[1];
          counted += count_padding ? in_padding : inside(c, h + r, w + s);
          if (inside(c, h + r, w + s)) total += xs[place(c, n, h + r, w + s, q)];
        }
      y[out] = total / counted;
      for (int64_t r = 0; r < c.kernel[0]; ++r)
        for (int64_t s = 0; s < c.kernel[1]; ++s)
          if (inside(c, h + r, w + s)) dx[place(c, n, h + r, w + s, q)] += dys[out] / counted;
    });
    const Tensor result = avg_pool2d(x, c.kernel, c.stride, c.padding, c.ceil_mode, count_padding);
    REQUIRE(result.shape() == c.y());
    require_close(result, y, tolerance(dtype));
    result.backward(dy);
    require_close(x.grad(), dx, tolerance(dtype));
  }
}

TEST_CASE("numerics 5: padding of max pooling is never the maximum, and at most half the kernel", "[pool]") {
  const Tensor x = from_vector<float>({-1, -2}, {1, 2, 1});
  REQUIRE(doubles(max_pool1d(x, 2, 1, 1)) == std::vector<double>{-1, -1, -2});
  REQUIRE(doubles(max_pool1d(copy_as(x, int32), 2, 1, 1)) == std::vector<double>{-1, -1, -2});
  REQUIRE_THROWS_AS(max_pool1d(x, 2, 1, 2), ValueError);
  REQUIRE_THROWS_WITH(max_pool2d(zeros({1, 4, 4, 1}), {2, 3}, {1, 1}, {1, 2}),
                      contains_text("[max_pool2d]") && contains_text("padding is 2") && contains_text("kernel 3"));
  REQUIRE_THROWS_AS(avg_pool2d(zeros({1, 4, 4, 1}), {2, 2}, {1, 1}, {2, 0}), ValueError);
}

TEST_CASE("numerics 10: max pooling keeps NaN", "[pool]") {
  const double nan = std::numeric_limits<double>::quiet_NaN(), inf = std::numeric_limits<double>::infinity();
  for (const DType dtype : kFloats)
    for (const int64_t channels : {1, 40})
      for (const int64_t at : {0, 1, 2, 3}) {
        std::vector<double> values(static_cast<size_t>(4 * channels), 1);
        for (int64_t c = 0; c < channels; ++c) values[static_cast<size_t>(at * channels + c)] = nan;
        const Tensor x = copy_as(from_vector(values, {1, 2, 2, channels}), dtype);
        for (const double v : doubles(max_pool2d(x, {2, 2}))) REQUIRE(std::isnan(v));
        for (const double v : doubles(max_pool2d(x, {3, 3}, {1, 1}, {1, 1}))) REQUIRE(std::isnan(v));
      }
  REQUIRE(doubles(max_pool1d(full({1, 2, 1}, -inf), 2)) == std::vector<double>{-inf});
}

TEST_CASE("pooling of integers, of nothing, and over the whole image", "[pool]") {
  for (const DType dtype : {uint8, int8, int16, int32, int64}) {
    const Tensor y = max_pool2d(copy_as(from_vector<int64_t>({1, 7, 3, 5}, {1, 2, 2, 1}), dtype), {2, 2});
    REQUIRE(y.dtype() == dtype);
    REQUIRE(y.item<int64_t>() == 7);
  }
  REQUIRE_THROWS_AS(avg_pool2d(zeros({1, 2, 2, 1}, int32), {2, 2}), DTypeError);
  REQUIRE(max_pool2d(zeros({0, 4, 4, 2}), {2, 2}).shape() == Shape{0, 2, 2, 2});
  REQUIRE(avg_pool2d(zeros({2, 4, 4, 0}), {2, 2}).shape() == Shape{2, 2, 2, 0});
  REQUIRE(global_avg_pool2d(zeros({0, 4, 4, 2})).shape() == Shape{0, 2});
  REQUIRE(doubles(global_avg_pool2d(from_vector<double>({1, 2, 3, 4, 5, 6}, {1, 3, 1, 2}))) ==
          std::vector<double>{3, 4});
  REQUIRE(doubles(max_pool1d(from_vector<double>({1, 2, 3, 4, 5}, {1, 5, 1}), 2, 0, 0, true)) ==
          std::vector<double>{2, 4, 5});
}

TEST_CASE("pooling gives the same bits for any number of threads", "[pool]") {
  RandomSizes random(3);
  const Tensor x = random_tensor(random, {3, 60, 50, 24}, float32);
  require_same_bits([&] { return max_pool2d(x, {3, 3}, {2, 2}, {1, 1}); });
  require_same_bits([&] { return avg_pool2d(x, {3, 3}, {2, 2}, {1, 1}); });
}

TEST_CASE("wrong arguments of pooling name what is wrong", "[pool]") {
  const Tensor x = zeros({1, 4, 4, 2});
  REQUIRE_THROWS_AS(max_pool2d(zeros({4, 4, 2}), {2, 2}), ShapeError);
  REQUIRE_THROWS_WITH(max_pool2d(x, {5, 2}), contains_text("5 rows") && contains_text("of 4"));
  REQUIRE_THROWS_AS(max_pool2d(x, {0, 2}), ValueError);
  REQUIRE_THROWS_AS(max_pool2d(x, {2, 2}, {-1, 1}), ValueError);
  REQUIRE_THROWS_AS(max_pool1d(x, 2), ShapeError);
  REQUIRE_THROWS_AS(global_avg_pool2d(zeros({4, 2})), ShapeError);
}

TEST_CASE("gradients of pooling to second order", "[pool]") {
  // Distinct values, further apart than the step of the differences.
  std::vector<double> values(2 * 5 * 4 * 3);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i * 37 % values.size()) / 100;
  const auto leaf = [&] { return from_vector(values, {2, 5, 4, 3}).set_requires_grad(); };
  GradcheckOptions second;
  second.second_order = true;
  const auto check_gradients = [&](auto f) {
    REQUIRE(gradcheck([&](const std::vector<Tensor>& t) { return std::vector<Tensor>{square(f(t[0]))}; }, {leaf()},
                      second));
  };
  check_gradients([](const Tensor& x) { return max_pool2d(x, {3, 2}, {2, 1}, {1, 1}, true); });
  check_gradients([](const Tensor& x) { return max_pool1d(reshape(x, {2, 20, 3}), 3, 2, 1); });
  check_gradients([](const Tensor& x) { return avg_pool2d(x, {3, 2}, {2, 1}, {1, 1}, true, true); });
  check_gradients([](const Tensor& x) { return avg_pool2d(x, {3, 2}, {2, 1}, {1, 1}, false, false); });
  check_gradients([](const Tensor& x) { return global_avg_pool2d(x); });
}
