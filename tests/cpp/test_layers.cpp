// The layers: values worked by hand, options, what is refused, their text, and starting values.
// Main entry: tag [layers].
#include "catch.h"

#include <anello/autograd/functions.h>
#include <anello/core/random.h>
#include <anello/layers/activation.h>
#include <anello/layers/container.h>
#include <anello/layers/conv.h>
#include <anello/layers/dropout.h>
#include <anello/layers/init.h>
#include <anello/layers/linear.h>
#include <anello/layers/loss.h>
#include <anello/layers/norm.h>
#include <anello/layers/pool.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>

using namespace anello;

namespace {
using Values = std::vector<double>;
Values values(const Tensor& t) { return t.to_vector<double>(); }
Tensor tensor(const Values& v, const Shape& shape) { return copy_as(from_vector(v, shape), float32); }
void require_close(const Tensor& got, const Values& expected, double tolerance = 1e-6) {
  const Values list = values(got);
  REQUIRE(list.size() == expected.size());
  for (size_t i = 0; i < list.size(); ++i) {
    INFO(i);
    REQUIRE(list[i] == Approx(expected[i]).epsilon(tolerance).margin(tolerance));
  }
}
double largest(const Tensor& t) {
  double most = 0;
  for (double v : values(t)) most = std::max(most, std::abs(v));
  return most;
}
double deviation(const Tensor& t) {
  double sum = 0, squares = 0;
  const Values list = values(t);
  for (double v : list) sum += v, squares += v * v;
  const double n = static_cast<double>(list.size()), mean = sum / n;
  return std::sqrt(squares / n - mean * mean);
}
}  // namespace

TEST_CASE("Linear", "[layers]") {
  nn::Linear layer(3, 2);
  copy_into(layer.weight, tensor({1, 2, 3, 4, 5, 6}, {2, 3}));
  copy_into(layer.bias, tensor({10, 20}, {2}));
  require_close(layer(tensor({1, 0, -1, 2, 1, 0}, {2, 3})), {8, 18, 14, 33});
  REQUIRE(layer(zeros({4, 5, 3})).shape() == Shape{4, 5, 2});
  REQUIRE_FALSE(nn::Linear(3, 2, false).bias.defined());
  REQUIRE(nn::Linear(3, 2, false).extra_repr() == "in_features=3, out_features=2, bias=False");
  REQUIRE_THROWS_AS(nn::Linear(0, 2), ValueError);
  REQUIRE_THROWS_AS(layer(zeros({2, 4})), ShapeError);
}

TEST_CASE("Linear and Conv2d start uniform in +-1 / sqrt(fan in)", "[layers]") {
  manual_seed(3);
  nn::Linear linear(100, 400);
  nn::Conv2d conv(16, 200, 3, {.groups = 2});
  for (const auto& [t, bound] : {std::pair{linear.weight, 0.1},
                                 {linear.bias, 0.1},
                                 {conv.weight, 1 / std::sqrt(72.0)},
                                 {conv.bias, 1 / std::sqrt(72.0)}}) {
    REQUIRE(largest(t) <= bound);
    REQUIRE(largest(t) > 0.95 * bound);
    REQUIRE(deviation(t) == Approx(bound / std::sqrt(3.0)).epsilon(0.1));
  }
  manual_seed(3);
  REQUIRE(values(nn::Linear(100, 400).weight) == values(linear.weight));
}

TEST_CASE("Conv2d: shapes, same padding, padding modes", "[layers]") {
  REQUIRE(nn::Conv2d(3, 8, 3, {.stride = 2, .padding = 1})(zeros({2, 9, 8, 3})).shape() == Shape{2, 5, 4, 8});
  REQUIRE(nn::Conv2d(4, 8, {3, 1}, {.dilation = {2, 1}, .groups = 4})(zeros({1, 9, 8, 4})).shape() ==
          Shape{1, 5, 8, 8});
  REQUIRE(nn::Conv2d(4, 8, 3, {.groups = 4}).weight.shape() == Shape{8, 3, 3, 1});
  REQUIRE(nn::Conv2d(3, 8, 3, {.padding = "same"})(zeros({2, 5, 7, 3})).shape() == Shape{2, 5, 7, 8});
  REQUIRE(nn::Conv2d(3, 8, 3, {.padding = "valid"})(zeros({2, 5, 7, 3})).shape() == Shape{2, 3, 5, 8});

  SECTION("an even kernel pads one more at the end") {
    nn::Conv2d conv(1, 1, {1, 2}, {.padding = "same", .bias = false});
    copy_into(conv.weight, tensor({1, 10}, {1, 1, 2, 1}));
    require_close(conv(tensor({1, 2, 3}, {1, 1, 3, 1})), {21, 32, 3});
  }
  SECTION("modes") {
    const auto run = [](const char* mode) {
      nn::Conv2d conv(1, 1, {1, 3}, {.padding = {0, 1}, .bias = false, .padding_mode = mode});
      copy_into(conv.weight, tensor({100, 10, 1}, {1, 1, 3, 1}));
      return values(conv(tensor({1, 2, 3}, {1, 1, 3, 1})));
    };
    REQUIRE(run("zeros") == Values{12, 123, 230});
    REQUIRE(run("reflect") == Values{212, 123, 232});
    REQUIRE(run("replicate") == Values{112, 123, 233});
    REQUIRE(run("circular") == Values{312, 123, 231});
  }
}

TEST_CASE("Conv2d: what is refused, and its text", "[layers]") {
  REQUIRE_THROWS_WITH(nn::Conv2d(3, 8, 3, {.padding = "some"}), contains_text("'same'"));
  REQUIRE_THROWS_WITH(nn::Conv2d(3, 8, 3, {.padding_mode = "reflekt"}), contains_text("'reflect'"));
  REQUIRE_THROWS_WITH(nn::Conv2d(3, 8, 3, {.stride = 2, .padding = "same"}), contains_text("stride 1"));
  REQUIRE_THROWS_WITH(nn::Conv2d(3, 8, 3, {.groups = 2}), contains_text("groups 2"));
  REQUIRE_THROWS_AS(nn::Conv2d(3, 8, 0), ValueError);
  REQUIRE_THROWS_AS(nn::Conv2d(3, 8, 3, {.stride = 0}), ValueError);
  REQUIRE_THROWS_AS(nn::Conv2d(3, 8, 3, {.padding = -1}), ValueError);
  REQUIRE_THROWS_AS(nn::Conv2d(3, 8, 3, {.dilation = {1, 0}}), ValueError);
  nn::Conv2d conv(3, 8, 3, {.stride = {2, 1}, .padding = 1, .bias = false});
  REQUIRE(conv.extra_repr() == "3, 8, kernel_size=(3, 3), stride=(2, 1), padding=(1, 1), bias=False");
  REQUIRE_THROWS_WITH(conv(zeros({2, 3, 32, 32})), contains_text("channels last") && contains_text("permute"));
  REQUIRE_THROWS_AS(conv(zeros({2, 32, 3})), ShapeError);
}

TEST_CASE("BatchNorm: one channel, values 1 and 3", "[layers]") {
  nn::BatchNorm1d norm(1);
  require_close(norm(tensor({1, 3}, {2, 1})), {-1, 1}, 1e-5);
  REQUIRE(values(norm.running_mean)[0] == Approx(0.2));
  REQUIRE(values(norm.running_var)[0] == Approx(1.1));  // 0.9 * 1 + 0.1 * 2, unbiased
  REQUIRE(norm.num_batches_tracked.item<int64_t>() == 1);
  norm.eval();
  require_close(norm(tensor({1}, {1, 1})), {0.8 / std::sqrt(1.1 + 1e-5)});
  REQUIRE(norm.num_batches_tracked.item<int64_t>() == 1);
  norm.reset_running_stats();
  require_close(norm(tensor({1}, {1, 1})), {1}, 1e-5);
}

TEST_CASE("BatchNorm: too little to normalise", "[layers]") {
  nn::BatchNorm2d norm(2);
  REQUIRE_THROWS_AS(norm(zeros({1, 1, 1, 2})), ShapeError);
  REQUIRE(norm(zeros({0, 4, 4, 2})).shape() == Shape{0, 4, 4, 2});
  REQUIRE(values(norm.running_mean) == Values{0, 0});
  REQUIRE(values(norm.running_var) == Values{1, 1});
  REQUIRE(norm.num_batches_tracked.item<int64_t>() == 0);
  norm.eval();
  REQUIRE(norm(zeros({1, 1, 1, 2})).shape() == Shape{1, 1, 1, 2});
}

TEST_CASE("BatchNorm: options", "[layers]") {
  const Tensor x = tensor({1, 3}, {2, 1}), y = tensor({5, 9}, {2, 1});
  SECTION("without momentum the statistics are the mean over batches") {
    nn::BatchNorm1d norm(1, {.momentum = std::nullopt});
    norm(x);
    norm(y);
    REQUIRE(values(norm.running_mean)[0] == Approx(4.5));
    REQUIRE(values(norm.running_var)[0] == Approx(5));  // (2 + 8) / 2
  }
  SECTION("without running statistics evaluation uses the batch") {
    nn::BatchNorm1d norm(1, {.track_running_stats = false});
    norm.eval();
    require_close(norm(x), {-1, 1}, 1e-5);
    REQUIRE(norm.named_buffers().empty());
  }
  SECTION("without affine there is nothing to learn") {
    REQUIRE(nn::BatchNorm2d(3, {.affine = false}).parameters().empty());
  }
  SECTION("scale and shift") {
    nn::BatchNorm1d norm(1);
    fill(norm.weight, 2);
    fill(norm.bias, 10);
    require_close(norm(x), {8, 12}, 1e-4);
  }
  REQUIRE(nn::BatchNorm2d(3).extra_repr() == "3, eps=1e-05, momentum=0.1, affine=True, track_running_stats=True");
  REQUIRE_THROWS_AS(nn::BatchNorm2d(0), ValueError);
  REQUIRE_THROWS_AS(nn::BatchNorm2d(3, {.momentum = 1.5}), ValueError);
  nn::BatchNorm2d norm(3);
  REQUIRE_THROWS_WITH(norm(zeros({2, 3, 8, 8})), contains_text("channels last"));
  const TensorMap state = norm.state_dict();
  for (const char* name : {"weight", "bias", "running_mean", "running_var", "num_batches_tracked"})
    REQUIRE(state.contains(name));
}

TEST_CASE("BatchNorm with a frozen scale learns its shift alone", "[layers]") {
  nn::BatchNorm1d norm(1);
  norm.weight.set_requires_grad(false);
  const Tensor x = tensor({1, 3}, {2, 1});
  norm(x).backward(ones({2, 1}));
  REQUIRE(values(norm.bias.grad()) == Values{2});
  REQUIRE_FALSE(norm.weight.grad().defined());
}

TEST_CASE("pooling layers", "[layers]") {
  const Tensor x = tensor({1, 2, 3, 4, 5, 6, 7, 8, 9}, {1, 3, 3, 1});
  require_close(nn::MaxPool2d(2, {.stride = 1})(x), {5, 6, 8, 9});
  require_close(nn::MaxPool2d(2)(x), {5});
  require_close(nn::MaxPool2d(2, {.ceil_mode = true})(x), {5, 6, 8, 9});
  require_close(nn::AvgPool2d({1, 3})(x), {2, 5, 8});
  require_close(nn::AvgPool2d(2, {.padding = 1})(x), {0.25, 1.25, 2.75, 7});
  require_close(nn::AvgPool2d(2, {.padding = 1, .count_include_pad = false})(x), {1, 2.5, 5.5, 7});
  require_close(nn::GlobalAvgPool2d()(x), {5});
  REQUIRE(nn::GlobalAvgPool2d()(zeros({2, 4, 4, 7})).shape() == Shape{2, 7});
  // Padding is -inf, never 0.
  require_close(nn::MaxPool1d(2, {.stride = 1, .padding = 1})(tensor({-1, -2}, {1, 2, 1})), {-1, -1, -2});
  REQUIRE_THROWS_AS(nn::MaxPool1d(2, {.padding = 2}), ValueError);
  REQUIRE_THROWS_AS(nn::MaxPool2d(3, {.padding = 2}), ValueError);
  REQUIRE_THROWS_AS(nn::AvgPool2d(0), ValueError);
  REQUIRE_THROWS_AS(nn::MaxPool2d(2, {.stride = 0}), ValueError);
  REQUIRE(nn::MaxPool2d(3, {.stride = 2}).extra_repr() == "kernel_size=(3, 3), stride=(2, 2), padding=(0, 0)");
  REQUIRE(nn::MaxPool1d(3).extra_repr() == "kernel_size=3, stride=3, padding=0");
}

TEST_CASE("activation layers follow their formulas", "[layers]") {
  const Values points = {-2, -0.5, 0, 1.5};
  const Tensor x = tensor(points, {4});
  const auto expect = [&](nn::Module&& layer, double (*f)(double)) {
    INFO(layer.repr());
    Values expected;
    for (double p : points) expected.push_back(f(p));
    require_close(layer(x), expected);
  };
  expect(nn::ReLU(), [](double v) { return std::max(v, 0.0); });
  expect(nn::LeakyReLU(0.2), [](double v) { return v > 0 ? v : 0.2 * v; });
  expect(nn::ELU(2), [](double v) { return v > 0 ? v : 2 * std::expm1(v); });
  expect(nn::GELU(), [](double v) { return v * 0.5 * (1 + std::erf(v / std::sqrt(2.0))); });
  expect(nn::GELU("tanh"), [](double v) {
    return 0.5 * v * (1 + std::tanh(std::sqrt(2 / std::acos(-1.0)) * (v + 0.044715 * v * v * v)));
  });
  expect(nn::SiLU(), [](double v) { return v / (1 + std::exp(-v)); });
  expect(nn::Sigmoid(), [](double v) { return 1 / (1 + std::exp(-v)); });
  expect(nn::Tanh(), [](double v) { return std::tanh(v); });
  expect(nn::Softplus(2), [](double v) { return std::log1p(std::exp(2 * v)) / 2; });
  expect(nn::Identity(), [](double v) { return v; });
  double sum = 0;
  for (double p : points) sum += std::exp(p);
  Values soft, log_soft;
  for (double p : points) soft.push_back(std::exp(p) / sum), log_soft.push_back(p - std::log(sum));
  require_close(nn::Softmax(-1)(x), soft);
  require_close(nn::LogSoftmax(0)(x), log_soft);
  REQUIRE_THROWS_WITH(nn::GELU("tan"), contains_text("'tanh'"));
  REQUIRE(nn::GELU().repr() == "GELU(approximate='none')");
  REQUIRE(nn::LeakyReLU().repr() == "LeakyReLU(negative_slope=0.01)");
}

TEST_CASE("Dropout and Flatten", "[layers]") {
  nn::Dropout dropout(0.25);
  const Tensor x = ones({10000});
  manual_seed(1);
  const Values y = values(dropout(x));
  const auto kept = std::count_if(y.begin(), y.end(), [](double v) { return v != 0; });
  REQUIRE(kept == Approx(7500).epsilon(0.03));
  for (double v : y) REQUIRE((v == 0 || v == Approx(1 / 0.75)));
  REQUIRE(values(dropout(x)) != y);  // another draw
  dropout.eval();
  REQUIRE(values(dropout(x)) == values(x));
  REQUIRE(largest(nn::Dropout(1)(x)) == 0);
  REQUIRE_THROWS_AS(nn::Dropout(1.5), ValueError);
  REQUIRE_THROWS_AS(nn::Dropout(std::nan("")), ValueError);
  REQUIRE(nn::Flatten()(zeros({2, 3, 4, 5})).shape() == Shape{2, 60});
  REQUIRE(nn::Flatten(0, 1)(zeros({2, 3, 4})).shape() == Shape{6, 4});
}

TEST_CASE("losses", "[layers]") {
  const Tensor x = tensor({1, 4}, {2}), y = tensor({3, 3}, {2});
  REQUIRE(nn::MSELoss()(x, y).item<double>() == Approx(2.5));
  REQUIRE(nn::L1Loss(Reduction::sum)(x, y).item<double>() == Approx(3));
  require_close(nn::MSELoss(Reduction::none)(x, y), {4, 1});
  // log(1 + e^-1) for a yes at logit 1, log(1 + e^4) for a no at logit 4
  REQUIRE(nn::BCEWithLogitsLoss()(x, tensor({1, 0}, {2})).item<double>() ==
          Approx((std::log1p(std::exp(-1.0)) + std::log1p(std::exp(4.0))) / 2));
  const Tensor logits = tensor({1, 2, 3, 0.4}, {2, 2}), labels = from_vector<int64_t>({-100, 1});
  REQUIRE(nn::CrossEntropyLoss({.label_smoothing = 0.1})(logits, labels).item<double>() ==
          Approx(2.541645).epsilon(1e-6));
  nn::CrossEntropyLoss weighted({.weight = tensor({1, 3}, {2})});
  REQUIRE(weighted.state_dict().contains("weight"));
  weighted.to(float64);
  REQUIRE(weighted(cast(logits, float64), labels).dtype() == float64);  // the weights moved along
  REQUIRE(nn::NLLLoss()(log_softmax(logits, 1), labels).item<double>() ==
          Approx(nn::CrossEntropyLoss()(logits, labels).item<double>()));
  REQUIRE_THROWS_AS(nn::CrossEntropyLoss({.label_smoothing = 2}), ValueError);
  REQUIRE_THROWS_AS(nn::NLLLoss({.label_smoothing = 0.1}), ValueError);
  REQUIRE(nn::CrossEntropyLoss({.label_smoothing = 0.1}).repr() ==
          "CrossEntropyLoss(reduction='mean', label_smoothing=0.1)");
}

TEST_CASE("starting values: fans and gains", "[layers]") {
  REQUIRE(nn::init::fan(zeros({8, 3, 5, 4})).in == 60);
  REQUIRE(nn::init::fan(zeros({8, 3, 5, 4})).out == 120);
  REQUIRE(nn::init::fan(zeros({8, 3})).in == 3);
  REQUIRE_THROWS_AS(nn::init::fan(zeros({8})), ShapeError);
  REQUIRE(nn::init::gain("relu") == Approx(std::sqrt(2.0)));
  REQUIRE(nn::init::gain("leaky_relu", 1) == Approx(1));
  REQUIRE(nn::init::gain("tanh") == Approx(5.0 / 3));
  REQUIRE_THROWS_WITH(nn::init::gain("rely"), contains_text("'relu'"));
  REQUIRE_THROWS_WITH(nn::init::kaiming_normal_(zeros({2, 2}), 0, "fan_inn"), contains_text("'fan_in'"));
}

TEST_CASE("starting values: distributions", "[layers]") {
  manual_seed(5);
  const Tensor w = zeros({64, 3, 3, 32});  // fan in 288, fan out 576
  nn::init::kaiming_normal_(w, 0, "fan_out", "relu");
  REQUIRE(deviation(w) == Approx(std::sqrt(2.0 / 576)).epsilon(0.03));
  nn::init::kaiming_uniform_(w, 0, "fan_in", "relu");
  REQUIRE(largest(w) <= std::sqrt(6.0 / 288));
  REQUIRE(deviation(w) == Approx(std::sqrt(2.0 / 288)).epsilon(0.03));
  nn::init::xavier_uniform_(w);
  REQUIRE(largest(w) <= std::sqrt(6.0 / 864));
  nn::init::xavier_normal_(w, 2);
  REQUIRE(deviation(w) == Approx(2 * std::sqrt(2.0 / 864)).epsilon(0.03));
  nn::init::normal_(w, 3, 0.5);
  REQUIRE(deviation(w) == Approx(0.5).epsilon(0.03));
  nn::init::uniform_(w, 2, 3);
  REQUIRE(largest(w) < 3);
  REQUIRE_THROWS_AS(nn::init::uniform_(w, 3, 2), ValueError);
  REQUIRE_THROWS_AS(nn::init::normal_(w, 0, -1), ValueError);
  nn::init::ones_(w);
  REQUIRE(largest(w - 1.0) == 0);
  nn::init::constant_(w, 0.25);
  REQUIRE(largest(w) == 0.25);
  nn::init::kaiming_normal_(zeros({0, 3}));  // nothing to do
}

TEST_CASE("starting values: identity", "[layers]") {
  const Tensor m = ones({2, 3});
  nn::init::eye_(m);
  REQUIRE(values(m) == Values{1, 0, 0, 0, 1, 0});
  nn::Conv2d conv(3, 5, 3, {.padding = 1, .bias = false});
  nn::init::dirac_(conv.weight);
  const Tensor x = rand({1, 4, 4, 3}), y = conv(x);
  REQUIRE(values(slice(y, 3, 0, 3)) == values(x));
  REQUIRE(largest(slice(y, 3, 3, 5)) == 0);
  nn::Conv2d grouped(4, 4, {1, 3}, {.padding = {0, 1}, .groups = 2, .bias = false});
  nn::init::dirac_(grouped.weight, 2);
  const Tensor z = rand({1, 2, 4, 4});
  REQUIRE(values(grouped(z)) == values(z));
  // Only the first filters of a slice; the rest keeps its draw.
  nn::Conv2d wide(2, 6, 3, {.bias = false});
  const Values before = values(slice(wide.weight, 0, 2, 6));
  nn::init::dirac_(slice(wide.weight.detach(), 0, 0, 2));
  REQUIRE(values(slice(wide.weight, 0, 2, 6)) == before);
  REQUIRE(values(wide.weight)[4 * 2] == 1);
  REQUIRE_THROWS_AS(nn::init::dirac_(zeros({3, 3})), ShapeError);
  REQUIRE_THROWS_AS(nn::init::dirac_(zeros({3, 3, 3, 3}), 2), ValueError);
}
