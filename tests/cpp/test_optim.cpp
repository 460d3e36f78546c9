// Optimizers: formulas worked by hand, groups, errors, saving and loading.
// Main entry: tag [optim].
#include "catch.h"

#include <anello/autograd/functions.h>
#include <anello/optim/adam.h>
#include <anello/optim/muon.h>
#include <anello/optim/sgd.h>

#include <cmath>
#include <memory>

#include "optim_helpers.h"

using namespace anello;
using namespace anello::optim;

TEST_CASE("SGD follows its formula", "[optim]") {
  const Tensor p = parameter({1});
  SECTION("plain") {
    SGD sgd({p}, {.lr = 0.1});
    step_with(sgd, p, {2});
    REQUIRE(value(p) == Approx(0.8));
    REQUIRE(sgd.state_dict().tensors.empty());  // no momentum, no memory
  }
  SECTION("momentum: v = g, then 0.9 v + g") {
    SGD sgd({p}, {.lr = 0.1, .momentum = 0.9});
    step_with(sgd, p, {1});  // v = 1, p = 0.9
    step_with(sgd, p, {2});  // v = 2.9, p = 0.61
    REQUIRE(value(p) == Approx(0.61));
  }
  SECTION("Nesterov: p -= lr (g + 0.9 v)") {
    SGD sgd({p}, {.lr = 0.1, .momentum = 0.9, .nesterov = true});
    step_with(sgd, p, {1});  // v = 1, p = 1 - 0.19 = 0.81
    REQUIRE(value(p) == Approx(0.81));
    step_with(sgd, p, {2});  // v = 2.9, p = 0.81 - 0.1 (2 + 2.61) = 0.349
    REQUIRE(value(p) == Approx(0.349));
  }
  SECTION("dampening spares the first step") {
    SGD sgd({p}, {.lr = 0.1, .momentum = 0.5, .dampening = 0.5});
    step_with(sgd, p, {1});  // v = 1
    step_with(sgd, p, {1});  // v = 0.5 + 0.5
    REQUIRE(value(p) == Approx(0.8));
  }
  SECTION("weight decay is part of the gradient; maximize turns it round") {
    SGD sgd({p}, {.lr = 0.1, .weight_decay = 0.5});
    step_with(sgd, p, {2});  // g = 2.5
    REQUIRE(value(p) == Approx(0.75));
    const Tensor q = parameter({1});
    SGD up({q}, {.lr = 0.1, .maximize = true});
    step_with(up, q, {2});
    REQUIRE(value(q) == Approx(1.2));
  }
  SECTION("momentum switched on later starts with v = g") {
    SGD sgd({p}, {.lr = 0.1});
    step_with(sgd, p, {1});
    sgd.param_groups()[0].options.set("momentum", 0.9);
    step_with(sgd, p, {1});  // v = 1
    REQUIRE(value(p) == Approx(0.8));
    step_with(sgd, p, {1});  // v = 1.9
    REQUIRE(value(p) == Approx(0.61));
  }
}

TEST_CASE("Adam's first step is lr, bias-corrected", "[optim]") {
  const Tensor p = parameter({1, 1, 1});
  Adam adam({p}, {.lr = 1e-3});
  step_with(adam, p, {0.1, -5, 0});
  REQUIRE(values(p)[0] - 1 == Approx(-1.0e-3).epsilon(1e-6));
  REQUIRE(values(p)[1] - 1 == Approx(1.0e-3).epsilon(1e-6));
  REQUIRE(values(p)[2] == 1);
}

TEST_CASE("Adam in float16 with gradient 0 changes nothing", "[optim]") {
  for (DType dtype : {float16, bfloat16, float32, float64}) {
    const Tensor p = parameter({1, -2}, dtype);
    Adam adam({p}, {.eps = 1e-8});
    for (int i = 0; i < 3; ++i) step_with(adam, p, {0, 0});
    REQUIRE(values(p) == std::vector<double>{1, -2});
  }
}

TEST_CASE("Adam's second step, weight decay and amsgrad by hand", "[optim]") {
  const double b1 = 0.9, b2 = 0.999, lr = 0.01, eps = 1e-8;
  const auto adam_step = [&](double m, double v, int t) {
    return lr * m / (1 - std::pow(b1, t)) / (std::sqrt(v / (1 - std::pow(b2, t))) + eps);
  };
  const double g1 = 2, g2 = -1;
  const double m1 = (1 - b1) * g1, v1 = (1 - b2) * g1 * g1;
  const double m2 = b1 * m1 + (1 - b1) * g2, v2 = b2 * v1 + (1 - b2) * g2 * g2;
  SECTION("two steps") {
    const Tensor p = parameter({1});
    Adam adam({p}, {.lr = lr});
    step_with(adam, p, {g1});
    step_with(adam, p, {g2});
    REQUIRE(value(p) == Approx(1 - adam_step(m1, v1, 1) - adam_step(m2, v2, 2)).epsilon(1e-12));
  }
  SECTION("L2: the gradient gains weight_decay p") {
    const Tensor p = parameter({1});
    Adam adam({p}, {.lr = lr, .weight_decay = 0.1});
    step_with(adam, p, {g1});
    const double g = g1 + 0.1;
    REQUIRE(value(p) == Approx(1 - adam_step((1 - b1) * g, (1 - b2) * g * g, 1)).epsilon(1e-12));
  }
  SECTION("AdamW: the parameter shrinks by itself, 0.01 unless told") {
    const Tensor p = parameter({1});
    AdamW adam({p}, {.lr = lr, .weight_decay = 0.1});
    step_with(adam, p, {g1});
    REQUIRE(value(p) == Approx(1 - lr * 0.1 - adam_step(m1, v1, 1)).epsilon(1e-12));
    REQUIRE(AdamW({parameter({1})}).defaults().at("weight_decay") == 0.01);
    REQUIRE(Adam({parameter({1})}).defaults().at("weight_decay") == 0);
  }
  SECTION("amsgrad divides by the largest v") {
    const Tensor p = parameter({1});
    Adam adam({p}, {.lr = lr, .beta2 = 0.5, .amsgrad = true});
    step_with(adam, p, {2});  // v = 2
    step_with(adam, p, {0});  // v = 1, the largest stays 2
    const double first = lr * 2 / (std::sqrt(2 / 0.5) + eps);
    const double second = lr * (0.9 * 0.2) / (1 - 0.81) / (std::sqrt(2 / 0.75) + eps);
    REQUIRE(value(p) == Approx(1 - first - second).epsilon(1e-12));
    REQUIRE(adam.state_dict().tensors.contains("0.max_exp_avg_sq"));
  }
}

TEST_CASE("optimizer state is float32 for 16-bit parameters", "[optim]") {
  const Tensor p = parameter({1}, bfloat16);
  Adam adam({p});
  step_with(adam, p, {1e-3});  // v = 1e-9 would be lost in float16
  const State state = adam.state_dict();
  REQUIRE(state.tensors.at("0.exp_avg_sq").dtype() == float32);
  REQUIRE(value(state.tensors.at("0.exp_avg_sq")) == Approx(1e-9).epsilon(0.01));
}

TEST_CASE("groups have options of their own; parameters without gradient are left alone", "[optim]") {
  const Tensor a = parameter({1}), b = parameter({1}), c = parameter({1});
  SGD sgd({{{a, c}, {}}, {{b}, {{"lr", 0.5}}}}, {.lr = 0.1});
  a.set_grad(ones({1}, float64));
  b.set_grad(ones({1}, float64));
  sgd.step();
  REQUIRE(value(a) == Approx(0.9));
  REQUIRE(value(b) == Approx(0.5));
  REQUIRE(value(c) == 1);
  sgd.zero_grad();
  REQUIRE_FALSE(a.grad().defined());
}

TEST_CASE("zero_grad keeps a gradient destination", "[optim]") {
  const Tensor p = parameter({1}), memory = zeros({1}, float64);
  p.set_grad_destination(memory);
  SGD sgd({p});
  sgd.zero_grad();
  REQUIRE(p.grad_destination().is(memory));
}

TEST_CASE("many parameters, other strides and dtypes in one step", "[optim]") {
  const Tensor whole = copy_as(from_vector<double>({1, 2, 3, 4, 5, 6}, {2, 3}), float32);
  const Tensor turned = as_strided(whole, {3, 2}, {1, 3}, 0);  // a transposed parameter
  turned.set_requires_grad();
  turned.set_grad(copy_as(from_vector<double>({1, 2, 3, 4, 5, 6}, {3, 2}), float32));
  const Tensor half = parameter({1, 2}, float16), wide = parameter({1, 2}, float64), empty_one = parameter({}, float32);
  for (const Tensor& p : {half, wide}) p.set_grad(ones({2}, p.dtype()));
  empty_one.set_grad(zeros({0}));
  const uint64_t before = wide.version();
  SGD sgd({turned, half, wide, empty_one}, {.lr = 0.5, .momentum = 0.9});
  sgd.step();
  REQUIRE(values(turned) == std::vector<double>{0.5, 3, 0.5, 3, 0.5, 3});
  REQUIRE(values(half) == std::vector<double>{0.5, 1.5});
  REQUIRE(values(wide) == std::vector<double>{0.5, 1.5});
  REQUIRE(wide.version() > before);
}

TEST_CASE("what an optimizer refuses", "[optim]") {
  const Tensor p = parameter({1});
  REQUIRE_THROWS_WITH(SGD({p, p}), contains_text("given twice"));
  SGD sgd({p});
  REQUIRE_THROWS_AS(sgd.add_param_group({p}), ValueError);
  REQUIRE_THROWS_AS(SGD(std::vector<Tensor>{}), ValueError);
  REQUIRE_THROWS_WITH(sgd.add_param_group({parameter({1})}, {{"momentun", 0.9}}), contains_text("'momentum'"));
  REQUIRE(sgd.param_groups().size() == 1);
  REQUIRE_THROWS_AS(SGD({p}, {.lr = -1}), ValueError);
  REQUIRE_THROWS_AS(SGD({p}, {.lr = std::nan("")}), ValueError);
  REQUIRE_THROWS_WITH(SGD({p}, {.nesterov = true}), contains_text("nesterov needs momentum"));
  REQUIRE_THROWS_WITH(Adam({p}, {.beta1 = 1}), contains_text("beta1 is 1"));
  REQUIRE_THROWS_AS(Adam({p}, {.eps = -1}), ValueError);
  REQUIRE_THROWS_AS(SGD({zeros({1}, int64)}), ValueError);
  REQUIRE_THROWS_AS(SGD({Tensor()}), ValueError);
  REQUIRE_THROWS_WITH(Muon({p}), contains_text("two dims"));
  REQUIRE_THROWS_WITH(sgd.param_groups()[0].options.at("lrr"), contains_text("'lr'"));
  sgd.param_groups()[0].options.set("lr", -1);
  p.set_grad(ones({1}, float64));
  REQUIRE_THROWS_AS(sgd.step(), ValueError);
  REQUIRE(value(p) == 1);
}

TEST_CASE("a saved and loaded optimizer goes on bit for bit", "[optim]") {
  const auto run = [](bool broken) {
    const Tensor a = parameter({1, 2}, float32), b = parameter({3}, float32);
    const auto make = [&] {
      return std::make_unique<AdamW>(std::vector<ParamGroup>{{{a}, {}}, {{b}, {{"lr", 0.05}}}});
    };
    auto optimizer = make();
    for (int i = 0; i < 6; ++i) {
      if (broken && i == 3) {
        const State state = optimizer->state_dict();
        optimizer = make();
        optimizer->load_state_dict(state);
      }
      a.set_grad(copy_as(from_vector<double>({std::sin(i), std::cos(i)}), float32));
      if (i % 2 == 0)
        b.set_grad(copy_as(from_vector<double>({std::sin(2.0 * i)}), float32));
      else
        b.zero_grad();
      optimizer->step();
    }
    return std::pair{a.to_vector<float>(), b.to_vector<float>()};
  };
  REQUIRE(run(true) == run(false));
}

TEST_CASE("an optimizer's state that does not fit changes nothing", "[optim]") {
  const Tensor p = parameter({1, 2});
  SGD sgd({p}, {.lr = 0.1, .momentum = 0.9});
  step_with(sgd, p, {1, 1});
  const State good = sgd.state_dict();
  REQUIRE(good.tensors.at("0.momentum_buffer").shape() == Shape{2});
  const auto refuse = [&](const State& bad) {
    REQUIRE_THROWS_AS(sgd.load_state_dict(bad), Error);
    REQUIRE(sgd.param_groups()[0].options.at("lr") == 0.1);
    REQUIRE(values(sgd.state_dict().tensors.at("0.momentum_buffer")) == std::vector<double>{1, 1});
  };
  State bad = Adam({parameter({1, 2})}).state_dict();
  refuse(bad);
  bad = good;
  bad.tensors.set("0.momentum_buffer", ones({3}, float64));
  refuse(bad);
  bad = good;
  bad.tensors.set("7.momentum_buffer", ones({2}, float64));
  refuse(bad);
  bad = good;
  bad.values["group0.lr"] = -3.0;
  refuse(bad);
  bad = good;
  bad.values["group_sizes"] = std::vector<int64_t>{2};
  refuse(bad);
  bad = good;
  bad.values["steps"] = std::vector<int64_t>{};
  refuse(bad);
  bad = good;
  bad.values.erase("group0.momentum");
  refuse(bad);
}

TEST_CASE("orthogonalize: singular values go where the polynomial sends them", "[optim]") {
  // On a diagonal matrix the iteration works on each singular value alone: s -> a s + b s^3 + c s^5.
  const double a = 3.4445, b = -4.7750, c = 2.0315, eps = 1e-7;
  const auto expected = [&](double s, int steps) {
    s /= 5 + eps;  // the Frobenius norm of diag(3, 4)
    for (int i = 0; i < steps; ++i) s = a * s + b * s * s * s + c * s * s * s * s * s;
    return s;
  };
  for (int steps : {1, 3, 5}) {
    const auto x = orthogonalize(from_vector<double>({3, 0, 0, 0, 4, 0}, {2, 3}), steps).to_vector<double>();
    REQUIRE(x[0] == Approx(expected(3, steps)).epsilon(1e-12));
    REQUIRE(x[4] == Approx(expected(4, steps)).epsilon(1e-12));
    REQUIRE(std::abs(x[1]) + std::abs(x[2]) + std::abs(x[3]) + std::abs(x[5]) == 0);
    // A tall matrix goes through its transpose.
    const auto y = orthogonalize(from_vector<double>({3, 0, 0, 4, 0, 0}, {3, 2}), steps).to_vector<double>();
    REQUIRE(y[0] == Approx(x[0]));
    REQUIRE(y[3] == Approx(x[4]));
  }
  REQUIRE(values(orthogonalize(zeros({2, 2}, float64))) == std::vector<double>(4, 0));
  REQUIRE_THROWS_AS(orthogonalize(zeros({2})), ShapeError);
}

TEST_CASE("Muon: momentum, Nesterov, normalised weights", "[optim]") {
  const Tensor p = copy_as(from_vector<double>({3, 0, 0, 0, 4, 0}, {2, 1, 1, 3}), float64);  // two filters of three
  p.set_requires_grad();
  const Tensor g = from_vector<double>({1, 0, 0, 0, 2, 0}, {2, 3});
  Muon muon({p}, {.lr = 0.1, .momentum = 0.6, .nesterov = true, .normalize = true});
  step_with(muon, p, values(g));
  // First: v = g, the direction is 1.6 g, of which only the shape counts. |p| = 5 becomes sqrt(2).
  const auto u = values(orthogonalize(g * 1.6));
  REQUIRE(values(p)[0] == Approx(3 * std::sqrt(2.0) / 5 - 0.1 * u[0]).epsilon(1e-9));
  REQUIRE(values(p)[4] == Approx(4 * std::sqrt(2.0) / 5 - 0.1 * u[4]).epsilon(1e-9));
  // Second, with another gradient: v = 0.6 g + h, direction h + 0.6 v.
  const std::vector<double> before = values(p);
  const double size = std::sqrt(before[0] * before[0] + before[4] * before[4]);
  const Tensor h = from_vector<double>({-1, 0, 0, 0, 1, 0}, {2, 3});
  step_with(muon, p, values(h));
  const Tensor v = g * 0.6 + h;
  const auto w = values(orthogonalize(h + v * 0.6));
  REQUIRE(values(p)[0] == Approx(before[0] * std::sqrt(2.0) / size - 0.1 * w[0]).epsilon(1e-9));
  REQUIRE(values(p)[4] == Approx(before[4] * std::sqrt(2.0) / size - 0.1 * w[4]).epsilon(1e-9));
}
