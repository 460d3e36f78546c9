// Convolution and its adjoints against the definition, over random sizes and every float dtype; gradients by
// differences. Main entry: tag [conv].
#include "reference.h"

using namespace anello;
using namespace reference;

namespace {

struct Case {
  Shape x, weight;
  Pair stride, padding, dilation;
  int64_t groups;

  int64_t out(int axis) const {
    const auto i = static_cast<size_t>(axis);
    return (x[1 + axis] + 2 * padding[i] - dilation[i] * (weight[1 + axis] - 1) - 1) / stride[i] + 1;
  }
  Shape y() const { return {x[0], out(0), out(1), weight[0]}; }
};

enum class Kind { small, wide, depthwise, large, winograd };

Case random_case(RandomSizes& random, Kind kind) {
  for (;;) {
    Case c;
    c.groups = kind == Kind::depthwise ? random(2, 40) : random.chance(3) ? random(1, 4) : 1;
    const int64_t most = kind == Kind::wide ? 70 : kind == Kind::large ? 4 : 11;
    const int64_t in = kind == Kind::depthwise ? 1 : random(1, most),
                  out = kind == Kind::depthwise ? 1 : random(1, most);
    const int64_t side = kind == Kind::large ? 260 : 15;
    c.x = {kind == Kind::large ? 2 : random(1, 14), random(side / 2, side), random(1, side), in * c.groups};
    c.weight = {out * c.groups, random(1, 4), random(1, 4), in};
    c.stride = {random(1, 3), random(1, 3)};
    c.padding = {random(0, 3), random(0, 3)};
    c.dilation = {random(1, 2), random(1, 2)};
    if (c.x[1] + 2 * c.padding[0] > c.dilation[0] * (c.weight[1] - 1) &&
        c.x[2] + 2 * c.padding[1] > c.dilation[1] * (c.weight[2] - 1))
      return c;
  }
}

/// Calls f(place in x, place in weight, place in y) for every product of the definition.
template <class F>
void each_product(const Case& c, const F& f) {
  const int64_t in = c.weight[3], out = c.weight[0] / c.groups;
  const Shape y = c.y();
  for (int64_t n = 0; n < y[0]; ++n)
    for (int64_t i = 0; i < y[1]; ++i)
      for (int64_t j = 0; j < y[2]; ++j)
        for (int64_t r = 0; r < c.weight[1]; ++r)
          for (int64_t s = 0; s < c.weight[2]; ++s) {
            const int64_t h = i * c.stride[0] - c.padding[0] + r * c.dilation[0];
            const int64_t w = j * c.stride[1] - c.padding[1] + s * c.dilation[1];
            if (h < 0 || h >= c.x[1] || w < 0 || w >= c.x[2]) continue;
            for (int64_t o = 0; o < y[3]; ++o)
              for (int64_t p = 0; p < in; ++p)
                f(static_cast<size_t>(((n * c.x[1] + h) * c.x[2] + w) * c.x[3] + o / out * in + p),
                  static_cast<size_t>(((o * c.weight[1] + r) * c.weight[2] + s) * in + p),
                  static_cast<size_t>(((n * y[1] + i) * y[2] + j) * y[3] + o));
          }
}

/// A shape that Winograd's algorithm takes: 3x3, stride 1, and enough channels.
Case winograd_case(RandomSizes& random, int64_t images, int64_t most_channels) {
  Case c{{random(1, images), random(4, 21), random(4, 21), random(16, most_channels)}, {}, {1, 1}, {}, {1, 1}, 1};
  c.weight = {random(16, most_channels), 3, 3, c.x[3]};
  c.padding = {random(0, 3), random(0, 3)};
  return c;
}

void check_case(RandomSizes& random, const Case& c, DType dtype) {
  const Tensor x = random_tensor(random, c.x, dtype), weight = random_tensor(random, c.weight, dtype);
  const Tensor bias = random.chance(2) ? random_tensor(random, {c.weight[0]}, dtype) : Tensor();
  const Tensor dy = random_tensor(random, c.y(), dtype);
  const std::vector<double> xs = doubles(x), ws = doubles(weight), dys = doubles(dy);
  std::vector<double> y(dys.size()), dx(xs.size()), dw(ws.size());
  if (bias.defined())
    for (size_t i = 0; i < y.size(); ++i) y[i] = doubles(bias)[i % static_cast<size_t>(c.weight[0])];
  each_product(c, [&](size_t in_x, size_t in_w, size_t in_y) {
    y[in_y] += xs[in_x] * ws[in_w];
    dx[in_x] += dys[in_y] * ws[in_w];
    dw[in_w] += dys[in_y] * xs[in_x];
  });
  INFO("x " << c.x << " weight " << c.weight << " stride " << c.stride[0] << "," << c.stride[1] << " padding "
            << c.padding[0] << "," << c.padding[1] << " dilation " << c.dilation[0] << "," << c.dilation[1]
            << " groups " << c.groups << " " << dtype);
  const Tensor result = conv2d(x, weight, bias, c.stride, c.padding, c.dilation, c.groups);
  REQUIRE(result.shape() == c.y());
  REQUIRE(result.dtype() == dtype);
  require_close(result, y, tolerance(dtype));
  require_close(conv2d_input_grad(dy, weight, c.x, c.stride, c.padding, c.dilation, c.groups), dx, tolerance(dtype));
  require_close(conv2d_weight_grad(dy, x, c.weight, c.stride, c.padding, c.dilation, c.groups), dw, tolerance(dtype));
}

}  // namespace

TEST_CASE("convolution and its adjoints agree with the definition", "[conv]") {
  RandomSizes random(7);
  for (int i = 0; i < 60; ++i)
    for (const Kind kind : {Kind::small, Kind::wide, Kind::depthwise})
      check_case(random, random_case(random, kind), kFloats[random(0, 3)]);
  for (const DType dtype : kFloats) check_case(random, random_case(random, Kind::large), dtype);
}

TEST_CASE("convolution of the shapes that networks use", "[conv]") {
  RandomSizes random(8);
  const Pair one{1, 1}, two{2, 2}, none{0, 0};
  for (const DType dtype : kFloats) {
    check_case(random, {{2, 32, 32, 3}, {24, 2, 2, 3}, one, none, one, 1}, dtype);
    check_case(random, {{3, 31, 31, 24}, {40, 3, 3, 24}, one, one, one, 1}, dtype);
    check_case(random, {{2, 16, 16, 32}, {64, 3, 3, 32}, two, one, one, 1}, dtype);
    check_case(random, {{2, 16, 16, 32}, {64, 1, 1, 32}, two, none, one, 1}, dtype);
    check_case(random, {{13, 4, 4, 96}, {160, 3, 3, 96}, one, one, one, 1}, dtype);
    check_case(random, {{25, 3, 3, 64}, {64, 3, 3, 64}, one, one, one, 1}, dtype);
    check_case(random, {{2, 20, 20, 3}, {16, 7, 7, 3}, two, {3, 3}, one, 1}, dtype);
  }
}

TEST_CASE("3x3 convolutions of many channels stay within the bound that core/cpu/winograd.h states", "[conv]") {
  RandomSizes random(11);
  for (int i = 0; i < 30; ++i) {
    const Case c = winograd_case(random, i % 2 == 0 ? 3 : 40, i % 3 == 0 ? 150 : 50);
    INFO("x " << c.x << " weight " << c.weight << " padding " << c.padding[0] << "," << c.padding[1]);
    const Tensor x = random_tensor(random, c.x, float32), weight = random_tensor(random, c.weight, float32);
    const Tensor dy = random_tensor(random, c.y(), float32), bias = random_tensor(random, {c.weight[0]}, float32);
    // The reference is the direct kernel in float64, which check_case() compares with the definition.
    const Tensor x64 = copy_as(x, float64), weight64 = copy_as(weight, float64), dy64 = copy_as(dy, float64);
    require_close(conv2d(x, weight, bias, {1, 1}, c.padding),
                  doubles(conv2d(x64, weight64, copy_as(bias, float64), {1, 1}, c.padding)), 5e-6);
    require_close(conv2d_input_grad(dy, weight, c.x, {1, 1}, c.padding),
                  doubles(conv2d_input_grad(dy64, weight64, c.x, {1, 1}, c.padding)), 5e-6);
    require_close(conv2d_weight_grad(dy, x, c.weight, {1, 1}, c.padding),
                  doubles(conv2d_weight_grad(dy64, x64, c.weight, {1, 1}, c.padding)), 5e-6);
  }
  for (const DType dtype : kFloats) check_case(random, winograd_case(random, 3, 40), dtype);
}

TEST_CASE("convolution gives the same bits for any number of threads", "[conv]") {
  RandomSizes random(9);
  for (const Kind kind : {Kind::small, Kind::wide, Kind::depthwise, Kind::large, Kind::winograd, Kind::winograd}) {
    const Case c = kind == Kind::winograd ? winograd_case(random, 60, 40) : random_case(random, kind);
    const Tensor x = random_tensor(random, c.x, float32), weight = random_tensor(random, c.weight, float32);
    const Tensor dy = random_tensor(random, c.y(), float32);
    require_same_bits([&] { return conv2d(x, weight, {}, c.stride, c.padding, c.dilation, c.groups); });
    require_same_bits([&] { return conv2d_input_grad(dy, weight, c.x, c.stride, c.padding, c.dilation, c.groups); });
    require_same_bits([&] { return conv2d_weight_grad(dy, x, c.weight, c.stride, c.padding, c.dilation, c.groups); });
  }
}

TEST_CASE("numerics 8: convolution of no images", "[conv]") {
  const Tensor x = zeros({0, 5, 5, 3}).set_requires_grad(), weight = ones({4, 3, 3, 3}).set_requires_grad();
  const Tensor bias = ones({4}).set_requires_grad();
  const Tensor y = conv2d(x, weight, bias, {1, 1}, {1, 1});
  REQUIRE(y.shape() == Shape{0, 5, 5, 4});
  y.backward(zeros({0, 5, 5, 4}));
  REQUIRE(x.grad().shape() == Shape{0, 5, 5, 3});
  REQUIRE(doubles(weight.grad()) == std::vector<double>(108, 0.0));
  REQUIRE(doubles(bias.grad()) == std::vector<double>(4, 0.0));
  REQUIRE(conv2d(zeros({2, 5, 5, 3}), zeros({0, 3, 3, 3})).shape() == Shape{2, 3, 3, 0});
  REQUIRE(doubles(conv2d(zeros({1, 2, 2, 0}), zeros({1, 2, 2, 0}), ones({1}))) == std::vector<double>{1});
}

TEST_CASE("convolution of strided views and mixed dtypes", "[conv]") {
  RandomSizes random(10);
  const Tensor nchw = random_tensor(random, {2, 3, 6, 5}, float32),
               weight = random_tensor(random, {4, 3, 3, 3}, float64);
  const Tensor view = permute(nchw, {0, 2, 3, 1});
  const Tensor y = conv2d(view, weight);
  REQUIRE(y.dtype() == float64);
  require_close(y, doubles(conv2d(copy_as(view, float64), weight)), 1e-12);
}

TEST_CASE("wrong arguments of conv2d name what is wrong", "[conv]") {
  const Tensor x = zeros({2, 8, 8, 3}), weight = zeros({4, 3, 3, 3});
  REQUIRE_THROWS_AS(conv2d(zeros({8, 8, 3}), weight), ShapeError);
  REQUIRE_THROWS_WITH(conv2d(x, zeros({4, 3, 3, 5})), contains_text("[conv2d]") && contains_text("3 channels") &&
                                                          contains_text("(4, 3, 3, 5)") && contains_text("Hint:"));
  REQUIRE_THROWS_AS(conv2d(x, zeros({4, 3, 3, 3}), zeros({5})), ShapeError);
  REQUIRE_THROWS_WITH(conv2d(x, zeros({4, 11, 3, 3}), {}, {1, 1}, {1, 1}),
                      contains_text("11 rows") && contains_text("of 10"));
  REQUIRE_THROWS_AS(conv2d(x, weight, {}, {0, 1}), ValueError);
  REQUIRE_THROWS_AS(conv2d(x, weight, {}, {1, 1}, {-1, 0}), ValueError);
  REQUIRE_THROWS_AS(conv2d(x, weight, {}, {1, 1}, {0, 0}, {1, 0}), ValueError);
  REQUIRE_THROWS_AS(conv2d(x, weight, {}, {1, 1}, {0, 0}, {1, 1}, 2), ShapeError);
  REQUIRE_THROWS_AS(conv2d(zeros({2, 8, 8, 3}, int32), weight), DTypeError);
  REQUIRE_THROWS_AS(conv2d_input_grad(zeros({2, 5, 6, 4}), weight, {2, 8, 8, 3}), ShapeError);
  REQUIRE_THROWS_AS(conv2d_weight_grad(zeros({2, 6, 6, 5}), x, {4, 3, 3, 3}), ShapeError);
}

TEST_CASE("gradients of conv2d to second order", "[conv]") {
  RandomSizes random(11);
  const auto leaf = [&](const Shape& s) { return random_tensor(random, s).set_requires_grad(); };
  GradcheckOptions second;
  second.second_order = true;
  REQUIRE(gradcheck(
      [](const std::vector<Tensor>& t) {
        return std::vector<Tensor>{conv2d(t[0], t[1], t[2], {2, 1}, {1, 0}, {1, 2}, 2)};
      },
      {leaf({2, 4, 4, 4}), leaf({2, 2, 2, 2}), leaf({2})}, second));
  REQUIRE(gradcheck(
      [](const std::vector<Tensor>& t) {
        return std::vector<Tensor>{conv2d_input_grad(t[0], t[1], {2, 4, 5, 2}, {2, 2}, {1, 1})};
      },
      {leaf({2, 2, 3, 3}), leaf({3, 3, 3, 2})}, second));
  REQUIRE(gradcheck(
      [](const std::vector<Tensor>& t) {
        return std::vector<Tensor>{conv2d_weight_grad(t[0], t[1], {3, 2, 2, 2})};
      },
      {leaf({2, 3, 2, 3}), leaf({2, 4, 3, 2})}, second));
}

TEST_CASE("gradients of conv2d go into their destinations", "[conv]") {
  RandomSizes random(12);
  const Tensor x = random_tensor(random, {3, 6, 6, 5}, float32);
  const Tensor weight = random_tensor(random, {7, 3, 3, 5}, float32), bias = random_tensor(random, {7}, float32);
  const Tensor dy = random_tensor(random, {3, 4, 4, 7}, float32);
  weight.set_requires_grad(), bias.set_requires_grad();
  conv2d(x, weight, bias).backward(dy);
  const std::vector<double> dw = doubles(weight.grad()), db = doubles(bias.grad());
  weight.zero_grad(), bias.zero_grad();
  const Tensor weight_place = zeros({7, 3, 3, 5}), bias_place = zeros({7});
  weight.set_grad_destination(weight_place), bias.set_grad_destination(bias_place);
  conv2d(x, weight, bias).backward(dy);
  REQUIRE(doubles(weight_place) == dw);
  REQUIRE(doubles(bias_place) == db);
  conv2d(x, weight, bias).backward(dy);  // accumulates
  std::vector<double> twice = dw;
  for (double& v : twice) v *= 2;
  require_close(weight_place, twice, 1e-6);
}
