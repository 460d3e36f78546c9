// Schedules, gradient clipping and weight averages: formulas worked by hand, errors, saving and loading.
// Main entry: tag [optim].
#include "catch.h"

#include <anello/optim/adam.h>
#include <anello/optim/averaging.h>
#include <anello/optim/clip.h>
#include <anello/optim/schedule.h>
#include <anello/optim/sgd.h>

#include <cmath>
#include <limits>
#include <memory>

#include "optim_helpers.h"

using namespace anello;
using namespace anello::optim;

namespace {
/// The rates of the first group over the steps 0 .. n - 1.
std::vector<double> rates(Schedule& schedule, int n) {
  std::vector<double> list;
  for (int i = 0; i < n; ++i) {
    if (i > 0) schedule.step();
    list.push_back(schedule.last_lr()[0]);
  }
  return list;
}
void require_close(const std::vector<double>& got, const std::vector<double>& expected) {
  REQUIRE(got.size() == expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    INFO(i);
    REQUIRE(got[i] == Approx(expected[i]).epsilon(1e-12).margin(1e-15));
  }
}
}  // namespace

TEST_CASE("schedules follow their formulas", "[optim]") {
  SGD sgd({parameter({1})}, {.lr = 1, .momentum = 0.9});
  SECTION("multi-step") {
    MultiStepLR s(sgd, {4, 2}, 0.1);
    require_close(rates(s, 6), {1, 1, 0.1, 0.1, 0.01, 0.01});
  }
  SECTION("linear to zero, and it stays there") {
    LinearLR s(sgd, 1, 0, 4);
    require_close(rates(s, 6), {1, 0.75, 0.5, 0.25, 0, 0});
  }
  SECTION("linear, as in PyTorch unless told") {
    LinearLR s(sgd);
    require_close(rates(s, 7), {1.0 / 3, 1.0 / 3 + 2.0 / 15, 0.6, 1.0 / 3 + 0.4, 1.0 / 3 + 8.0 / 15, 1, 1});
  }
  SECTION("cosine") {
    CosineAnnealingLR s(sgd, 4, 0.2);
    const double h = std::sqrt(0.5);
    require_close(rates(s, 5), {1, 0.6 + 0.4 * h, 0.6, 0.6 - 0.4 * h, 0.2});
  }
  SECTION("lambda") {
    LambdaLR s(sgd, [](int64_t t) { return 1.0 / (1 + static_cast<double>(t)); });
    require_close(rates(s, 4), {1, 0.5, 1.0 / 3, 0.25});
  }
  SECTION("warm-up goes before, and the schedule starts after it") {
    MultiStepLR s(sgd, {2}, 0.1, {.steps = 2, .start_factor = 0.5});
    require_close(rates(s, 6), {0.5, 0.75, 1, 1, 0.1, 0.1});
  }
  SECTION("one cycle, linear: top at 0.3 * 10 - 1 = 2, end at 9; momentum goes the other way") {
    OneCycleLR s(
        sgd,
        {.max_lr = {1.0}, .total_steps = 10, .anneal_strategy = "linear", .div_factor = 10, .final_div_factor = 100});
    REQUIRE(sgd.param_groups()[0].options.at("momentum") == 0.95);
    std::vector<double> expected = {0.1, 0.55, 1};
    for (int i = 1; i <= 7; ++i) expected.push_back(1 + (0.001 - 1) * i / 7);
    std::vector<double> got = {s.last_lr()[0]}, momenta;
    for (int i = 1; i < 10; ++i) {
      s.step();
      got.push_back(s.last_lr()[0]);
      momenta.push_back(sgd.param_groups()[0].options.at("momentum"));
    }
    require_close(got, expected);
    REQUIRE(momenta[0] == Approx(0.9));
    REQUIRE(momenta[1] == Approx(0.85));
    REQUIRE(momenta[8] == Approx(0.95));
    s.step();  // after the last batch
    REQUIRE(s.last_lr()[0] == got.back());
    REQUIRE_THROWS_WITH(s.step(), contains_text("total_steps 10"));
    REQUIRE(s.step_count() == 10);
  }
  SECTION("one cycle, cosine: half way down is the middle") {
    OneCycleLR s(sgd, {.max_lr = {1.0}, .total_steps = 11, .pct_start = 1.0 / 11, .final_div_factor = 1});
    std::vector<double> got = rates(s, 11);
    REQUIRE(got[0] == 1);  // pct_start total_steps - 1 = 0: the top is at once
    REQUIRE(got[5] == Approx((1 + 0.04) / 2));
    REQUIRE(got[10] == Approx(0.04));
  }
}

TEST_CASE("schedules: groups, Adam's momentum, and what is refused", "[optim]") {
  SGD sgd({{{parameter({1})}, {{"lr", 1}}}, {{parameter({1})}, {{"lr", 2}}}}, {});
  LambdaLR both(sgd,
                std::vector<std::function<double(int64_t)>>{[](int64_t) { return 0.5; }, [](int64_t) { return 0.25; }});
  REQUIRE(both.last_lr() == std::vector<double>{0.5, 0.5});
  REQUIRE_THROWS_WITH(OneCycleLR(sgd, {.max_lr = {1.0}, .total_steps = 5}), contains_text("no momentum"));
  REQUIRE_THROWS_AS(OneCycleLR(sgd, {.max_lr = {1.0, 1, 1}, .total_steps = 5}), ValueError);
  REQUIRE_THROWS_WITH(OneCycleLR(sgd, {.max_lr = {1.0}, .total_steps = 5, .anneal_strategy = "cosine"}),
                      contains_text("'cos'"));
  REQUIRE_THROWS_AS(OneCycleLR(sgd, {.max_lr = {1.0}}), ValueError);
  REQUIRE_THROWS_AS(CosineAnnealingLR(sgd, 0), ValueError);
  REQUIRE_THROWS_AS(LinearLR(sgd, -1), ValueError);
  Adam adam({parameter({1})});
  OneCycleLR cycle(adam, {.max_lr = {1.0}, .total_steps = 5});
  REQUIRE(adam.param_groups()[0].options.at("beta1") == 0.95);
}

TEST_CASE("MultiStep [4] saved at epoch 2: lr is 10 first at epoch 4, and the run is the unbroken one", "[optim]") {
  const auto run = [](bool broken) {
    const Tensor p = parameter({1}, float32);
    const auto make_optimizer = [&] { return std::make_unique<SGD>(std::vector<Tensor>{p}, SGDOptions{.lr = 100}); };
    auto optimizer = make_optimizer();
    auto schedule = std::make_unique<MultiStepLR>(*optimizer, std::vector<int64_t>{4}, 0.1);
    std::vector<double> seen;
    for (int epoch = 0; epoch < 7; ++epoch) {
      if (broken && epoch == 2) {
        const State first = optimizer->state_dict(), second = schedule->state_dict();
        schedule.reset();
        optimizer = make_optimizer();
        optimizer->load_state_dict(first);
        schedule = std::make_unique<MultiStepLR>(*optimizer, std::vector<int64_t>{4}, 0.1);
        schedule->load_state_dict(second);
      }
      seen.push_back(schedule->last_lr()[0]);
      step_with(*optimizer, p, {1e-3 * epoch + 1e-4});
      schedule->step();
    }
    seen.push_back(value(p));
    return seen;
  };
  const std::vector<double> whole = run(false);
  REQUIRE(whole == run(true));
  for (size_t epoch = 0; epoch < 7; ++epoch) REQUIRE(whole[epoch] == Approx(epoch < 4 ? 100 : 10));
}

TEST_CASE("a schedule refuses the state of another", "[optim]") {
  SGD sgd({parameter({1})}, {.lr = 1});
  LinearLR linear(sgd, 1, 0, 10);
  CosineAnnealingLR cosine(sgd, 10);
  REQUIRE_THROWS_WITH(linear.load_state_dict(cosine.state_dict()), contains_text("CosineAnnealingLR"));
}

TEST_CASE("clip_grad_norm_ scales to the norm and tells what it was", "[optim]") {
  const Tensor a = parameter({0}), b = parameter({0, 0}, float32), none = parameter({0});
  a.set_grad(from_vector<double>({3}));
  b.set_grad(from_vector<float>({0, 4}));
  REQUIRE(clip_grad_norm_({a, b, none}, 10) == Approx(5));
  REQUIRE(value(a.grad()) == 3);  // already small enough
  REQUIRE(clip_grad_norm_({a, b, none, a}, 1) == Approx(5));
  REQUIRE(value(a.grad()) == Approx(3 / (5 + 1e-6)));
  REQUIRE(values(b.grad())[1] == Approx(4 / (5 + 1e-6)));
  REQUIRE(clip_grad_norm_({none}, 1) == 0);
  REQUIRE_THROWS_AS(clip_grad_norm_({a}, -1), ValueError);
  b.set_grad(from_vector<float>({std::numeric_limits<float>::infinity(), 1}));
  REQUIRE_THROWS_WITH(clip_grad_norm_({a, b}, 1, true), contains_text("inf"));
  REQUIRE(values(b.grad())[1] == 1);
  REQUIRE(std::isinf(clip_grad_norm_({a, b}, 1)));
}

TEST_CASE("clip_grad_norm_ does not overflow in float16", "[optim]") {
  const Tensor p = parameter(std::vector<double>(64, 0), float16);
  p.set_grad(full({64}, 60000, float16));
  REQUIRE(clip_grad_norm_({p}, 8) == Approx(480000).epsilon(1e-3));
  REQUIRE(value(p.grad()) == Approx(1).epsilon(1e-3));
}

TEST_CASE("clip_grad_value_ limits each element and keeps NaN", "[optim]") {
  const Tensor p = parameter({0, 0, 0});
  p.set_grad(from_vector<double>({-5, 0.5, std::nan("")}));
  clip_grad_value_({p}, 1);
  REQUIRE(values(p.grad())[0] == -1);
  REQUIRE(values(p.grad())[1] == 0.5);
  REQUIRE(std::isnan(values(p.grad())[2]));
}

TEST_CASE("weight averages: decay, equal mean, swap, integers, saving", "[optim]") {
  const Tensor w = parameter({1, 2}, float32), count = from_vector<int64_t>({5});
  SECTION("decay") {
    WeightAverage average({{"w", w}, {"n", count}}, {.decay = 0.9});
    fill(w, 11);
    fill(count, 6);
    average.update();
    REQUIRE(values(average.averages().at("w"))[0] == Approx(0.9 * 1 + 0.1 * 11));
    REQUIRE(value(average.averages().at("n")) == 6);
    average.swap();
    REQUIRE(values(w)[0] == Approx(2));
    REQUIRE(w.requires_grad());
    average.swap();
    REQUIRE(values(w)[0] == 11);
    const State saved = average.state_dict();
    WeightAverage other({{"w", w}, {"n", count}}, {.decay = 0.9});
    other.load_state_dict(saved);
    REQUIRE(other.update_count() == 1);
    REQUIRE(values(other.averages().at("w"))[0] == Approx(2));
    other.copy_to_values();
    REQUIRE(values(w)[0] == Approx(2));
    REQUIRE_THROWS_AS(WeightAverage({{"x", w}}).load_state_dict(saved), Error);
    REQUIRE_THROWS_AS(other.add({{"w", w}}), ValueError);
  }
  SECTION("equal mean") {
    WeightAverage average({{"w", w}}, {.equal = true});
    for (double v : {3, 6, 12}) {
      fill(w, v);
      average.update();
    }
    REQUIRE(values(average.averages().at("w"))[0] == Approx(7));
  }
  SECTION("warm-up: decay 2 / 11 at the first update") {
    WeightAverage average({{"w", w}}, {.decay = 0.999, .warmup = true});
    fill(w, 12);
    average.update();
    REQUIRE(values(average.averages().at("w"))[0] == Approx(12 - 11 * 2.0 / 11));
  }
}
