// Random numbers: known answers, which word an element takes, distributions, dropout.
// Main entry: tag [random].
#include <anello/anello.h>

#include <algorithm>
#include <numeric>

#include "support.h"

using namespace anello;
using support::values;

namespace {

struct Moments {
  double mean = 0, variance = 0, third = 0, fourth = 0;
};
Moments moments(const std::vector<double>& v) {
  Moments m;
  const double n = static_cast<double>(v.size());
  for (double x : v) m.mean += x / n;
  for (double x : v) {
    const double d = x - m.mean;
    m.variance += d * d / n, m.third += d * d * d / n, m.fourth += d * d * d * d / n;
  }
  return m;
}

/// Largest distance between the empirical distribution and a distribution function (Kolmogorov-Smirnov), times sqrt(n).
template <class F>
double kolmogorov(std::vector<double> v, const F& cdf) {
  std::sort(v.begin(), v.end());
  double worst = 0;
  const double n = static_cast<double>(v.size());
  for (size_t i = 0; i < v.size(); ++i) {
    const double c = cdf(v[i]);
    worst = std::max({worst, std::fabs(c - static_cast<double>(i) / n), std::fabs(c - static_cast<double>(i + 1) / n)});
  }
  return worst * std::sqrt(n);
}

}  // namespace

TEST_CASE("Philox gives the known answers of its authors", "[random]") {
  using Words = std::array<uint32_t, 4>;
  REQUIRE(philox(Words{0, 0, 0, 0}, {0, 0}) == Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  const uint32_t f = 0xffffffff;
  REQUIRE(philox(Words{f, f, f, f}, {f, f}) == Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  REQUIRE(philox(Words{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}) ==
          Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
  static_assert(philox(0, 0, 0)[0] == 0x6627e8d5);
}

TEST_CASE("an element is a function of seed, draw and place", "[random]") {
  manual_seed(42);
  const Tensor a = rand({1003}), b = rand({5}, float64);
  const auto word = [](uint64_t draw, uint64_t w) { return philox(42, draw, w / 4)[w % 4]; };
  for (uint64_t i = 0; i < 1003; ++i) REQUIRE(a.data<float>()[i] == uniform_float(word(0, i)));
  for (uint64_t i = 0; i < 5; ++i) REQUIRE(b.data<double>()[i] == uniform_double(word(1, 2 * i), word(1, 2 * i + 1)));
  const Tensor c = randint(-3, 1000, {77}), d = randint(0, int64_t{1} << 40, {77}), n = randn({77}),
               m = randn({7}, float64);
  for (uint64_t i = 0; i < 77; ++i) {
    REQUIRE(c.data<int64_t>()[i] == -3 + static_cast<int64_t>(uniform_below(word(2, i), 1003)));
    const uint64_t bits = (uint64_t{word(3, 2 * i)} << 32) | word(3, 2 * i + 1);
    REQUIRE(d.data<int64_t>()[i] == static_cast<int64_t>(bits >> 24));
    const uint64_t even = i / 2 * 2;
    const double r = std::sqrt(-2 * std::log((word(4, even) + 0.5) * 0x1p-32)),
                 angle = 2 * M_PI * uniform_float(word(4, even + 1));
    REQUIRE(n.data<float>()[i] ==
            Approx(r * (i % 2 == 0 ? std::cos(angle) : std::sin(angle))).margin(2e-6).epsilon(2e-6));
  }
  for (uint64_t i = 0; i < 7; ++i) {
    const auto uniform = [&](uint64_t k) { return uniform_double(word(5, 2 * k), word(5, 2 * k + 1)); };
    const uint64_t even = i / 2 * 2;
    const double r = std::sqrt(-2 * std::log(1 - uniform(even))), angle = 2 * M_PI * uniform(even + 1);
    REQUIRE(m.data<double>()[i] == Approx(r * (i % 2 == 0 ? std::cos(angle) : std::sin(angle))));
  }
  REQUIRE(default_generator().position() == 6);
  manual_seed(42);
  REQUIRE(values(rand({1003})) == values(a));
  REQUIRE(values(slice(a, 0, 0, 10)) != values(rand({10})));  // the next draw is another one
  default_generator().set_state(42, 0);
  REQUIRE(values(rand({10})) == values(slice(a, 0, 0, 10)));  // the length does not matter
}

TEST_CASE("uniform numbers are uniform and below their bound in every dtype", "[random]") {
  manual_seed(1);
  for (const DType dtype : {float16, bfloat16, float32, float64}) {
    INFO(name(dtype));
    const std::vector<double> v = values(rand({200'000}, dtype));
    REQUIRE(*std::min_element(v.begin(), v.end()) >= 0);
    REQUIRE(*std::max_element(v.begin(), v.end()) < 1);
    const double step = dtype == bfloat16 ? 0x1p-8 : dtype == float16 ? 0x1p-11 : 0;  // u is floor(u * 2^bits) / 2^bits
    const Moments m = moments(v);
    REQUIRE(m.mean + step / 2 == Approx(0.5).margin(0.0025));
    REQUIRE(m.variance == Approx(1 / 12.0).margin(0.001));
    if (step == 0) REQUIRE(kolmogorov(v, [](double x) { return x; }) < 1.95);  // 0.1% level
  }
  const Tensor t = zeros({3, 50});
  uniform_into(transpose(t, 0, 1), -2, 5);
  const std::vector<double> v = values(t);
  REQUIRE((*std::min_element(v.begin(), v.end()) >= -2 && *std::max_element(v.begin(), v.end()) <= 5));
  REQUIRE(moments(v).variance > 2);
}

TEST_CASE("normal numbers have the moments and the distribution of a normal", "[random]") {
  manual_seed(2);
  for (const DType dtype : {float32, float64}) {
    const std::vector<double> v = values(randn({400'001}, dtype));
    const Moments m = moments(v);
    REQUIRE(m.mean == Approx(0).margin(0.006));
    REQUIRE(m.variance == Approx(1).margin(0.01));
    REQUIRE(m.third == Approx(0).margin(0.02));
    REQUIRE(m.fourth == Approx(3).margin(0.1));
    REQUIRE(kolmogorov(v, [](double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); }) < 1.95);
    double product = 0;
    for (size_t i = 0; i + 1 < v.size(); ++i) product += v[i] * v[i + 1];
    REQUIRE(std::fabs(product) / static_cast<double>(v.size()) < 0.006);  // neighbours are uncorrelated
  }
  const Tensor t = zeros({100'000}, bfloat16);
  normal_into(t, 3, 2);
  REQUIRE(moments(values(t)).mean == Approx(3).margin(0.03));
  REQUIRE(moments(values(t)).variance == Approx(4).margin(0.08));
  normal_into(t, 1.5, 0);
  REQUIRE(values(t) == std::vector<double>(100'000, 1.5));
}

TEST_CASE("integers and permutations", "[random]") {
  manual_seed(3);
  const Tensor dice = randint(1, 7, {60'000}, int8);
  REQUIRE(dice.dtype() == int8);
  std::vector<int> counts(7, 0);
  for (double v : values(dice)) ++counts.at(static_cast<size_t>(v));
  double chi = 0;
  for (int face = 1; face <= 6; ++face)
    chi += (counts[static_cast<size_t>(face)] - 1e4) * (counts[static_cast<size_t>(face)] - 1e4) / 1e4;
  REQUIRE(counts[0] == 0);
  REQUIRE(chi < 20.5);  // 0.1% level of 5 degrees of freedom
  const int64_t low = std::numeric_limits<int64_t>::min(), high = std::numeric_limits<int64_t>::max();
  const std::vector<int64_t> any = randint(low, high, {1000}).to_vector<int64_t>();
  REQUIRE(std::count_if(any.begin(), any.end(), [](int64_t v) { return v < 0; }) > 400);
  REQUIRE_THROWS_AS(randint(3, 3, {1}), ValueError);
  REQUIRE_THROWS_WITH(randint(0, 300, {1}, int8), contains_text("int8"));

  std::vector<int64_t> order = randperm(1000).to_vector<int64_t>(), again = randperm(1000).to_vector<int64_t>();
  REQUIRE(order != again);
  double fixed = 0;
  for (size_t i = 0; i < order.size(); ++i) fixed += order[i] == static_cast<int64_t>(i);
  REQUIRE(fixed < 10);
  std::sort(order.begin(), order.end());
  for (size_t i = 0; i < order.size(); ++i) REQUIRE(order[i] == static_cast<int64_t>(i));
  REQUIRE(randperm(0).numel() == 0);
  REQUIRE_THROWS_AS(randperm(-1), ValueError);
  std::vector<int> first(4, 0);
  for (int i = 0; i < 4000; ++i) ++first[static_cast<size_t>(randperm(4).data<int64_t>()[0])];
  for (int count : first) REQUIRE(std::abs(count - 1000) < 120);
}

TEST_CASE("bad arguments of random functions", "[random]") {
  REQUIRE_THROWS_WITH(rand({2}, int32), contains_text("randint"));
  REQUIRE_THROWS_AS(uniform_into(zeros({2}), 1, 0), ValueError);
  REQUIRE_THROWS_AS(normal_into(zeros({2}), 0, -1), ValueError);
  REQUIRE(rand({0, 3}).numel() == 0);
}

TEST_CASE("dropout keeps its share, scales it, and draws the same mask in backward", "[random]") {
  manual_seed(4);
  for (const DType dtype : {float16, bfloat16, float32, float64}) {
    const Tensor x = full({100'000}, 2, dtype).set_requires_grad();
    const Tensor y = dropout(x, 0.25);
    y.backward(full({100'000}, 3, dtype));
    const std::vector<double> out = values(y), grad = values(x.grad());
    double kept = 0;
    const double scale = values(full({1}, 8.0 / 3, dtype))[0], scale_grad = values(full({1}, 4, dtype))[0];
    for (size_t i = 0; i < out.size(); ++i) {
      kept += out[i] != 0;
      if (out[i] != 0 ? std::fabs(out[i] - scale) > 1e-2 || std::fabs(grad[i] - scale_grad) > 2e-2 : grad[i] != 0)
        FAIL(i);
    }
    REQUIRE(kept / 1e5 == Approx(0.75).margin(0.005));
  }
  const Tensor x = support::leaf({6, 5}, 1);
  REQUIRE(dropout(x, 0.5, false).is(x));
  REQUIRE(dropout(x, 0).is(x));
  REQUIRE(values(dropout(x, 1)) == std::vector<double>(30, 0));
  REQUIRE(values(dropout(x, 0.5)) != values(dropout(x, 0.5)));
  const auto f = [](const std::vector<Tensor>& in) {
    manual_seed(5);
    return std::vector<Tensor>{square(dropout(transpose(in[0], 0, 1), 0.4))};
  };
  REQUIRE(gradcheck(f, {x}, {.second_order = true}));
  REQUIRE_THROWS_AS(dropout(x, 1.5), ValueError);
  REQUIRE_THROWS_AS(dropout(zeros({2}, int32), 0.5), DTypeError);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (double v : values(dropout(full({100}, nan), 0.5))) REQUIRE((std::isnan(v) || v == 0));
}

TEST_CASE("random numbers have the same bits for any number of threads", "[random]") {
  const Tensor x = support::sample({300, 500}, 1, float32);
  support::require_same_bits([&] {
    manual_seed(6);
    return std::vector<Tensor>{rand({123'457}), randn({123'457}), randn({50'001}, float64), randint(0, 10, {100'000}),
                               dropout(x, 0.3)};
  });
}
