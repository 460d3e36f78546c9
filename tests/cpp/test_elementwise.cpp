// Elementwise functions: values against the C library, special values, layouts, promotion, in-place changes.
// Main entry: tag [elementwise]. Gradients are in test_elementwise_grad.cpp.
#include <anello/anello.h>

#include <functional>
#include <limits>

#include "support.h"

using namespace anello;
using support::require_close;
using support::sample;
using support::values;

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity(), kNan = std::numeric_limits<double>::quiet_NaN();

struct UnaryCase {
  const char* name;
  std::function<Tensor(const Tensor&)> f;
  std::function<double(double)> expected;
  double low = -6, high = 6;
};

double phi(double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); }

const std::vector<UnaryCase>& unary_cases() {
  static const std::vector<UnaryCase> cases = {
      {"neg", neg, [](double x) { return -x; }},
      {"abs", [](const Tensor& x) { return abs(x); }, [](double x) { return std::fabs(x); }},
      {"sign", sign, [](double x) { return x > 0   ? 1.0
                                           : x < 0 ? -1.0
                                                   : x; }},
      {"square", square, [](double x) { return x * x; }},
      {"floor", [](const Tensor& x) { return floor(x); }, [](double x) { return std::floor(x); }},
      {"ceil", [](const Tensor& x) { return ceil(x); }, [](double x) { return std::ceil(x); }},
      {"round", [](const Tensor& x) { return round(x); }, [](double x) { return std::nearbyint(x); }},
      {"exp", [](const Tensor& x) { return exp(x); }, [](double x) { return std::exp(x); }},
      {"expm1", [](const Tensor& x) { return expm1(x); }, [](double x) { return std::expm1(x); }},
      {"log", [](const Tensor& x) { return log(x); }, [](double x) { return std::log(x); }, 0.01, 9},
      {"log1p", [](const Tensor& x) { return log1p(x); }, [](double x) { return std::log1p(x); }, -0.9, 9},
      {"sqrt", [](const Tensor& x) { return sqrt(x); }, [](double x) { return std::sqrt(x); }, 0, 9},
      {"rsqrt", rsqrt, [](double x) { return 1 / std::sqrt(x); }, 0.01, 9},
      {"reciprocal", reciprocal, [](double x) { return 1 / x; }},
      {"sin", [](const Tensor& x) { return sin(x); }, [](double x) { return std::sin(x); }, -300, 300},
      {"cos", [](const Tensor& x) { return cos(x); }, [](double x) { return std::cos(x); }, -300, 300},
      {"tanh", [](const Tensor& x) { return tanh(x); }, [](double x) { return std::tanh(x); }},
      {"erf", [](const Tensor& x) { return erf(x); }, [](double x) { return std::erf(x); }},
      {"sigmoid", sigmoid, [](double x) { return 1 / (1 + std::exp(-x)); }},
      {"relu", relu, [](double x) { return x > 0 ? x : 0; }},
      {"silu", silu, [](double x) { return x / (1 + std::exp(-x)); }},
      {"leaky_relu", [](const Tensor& x) { return leaky_relu(x, 0.2); }, [](double x) { return x > 0 ? x : 0.2 * x; }},
      {"elu", [](const Tensor& x) { return elu(x, 0.7); }, [](double x) { return x > 0 ? x : 0.7 * std::expm1(x); }},
      {"softplus", [](const Tensor& x) { return softplus(x, 2); },
       [](double x) { return std::log1p(std::exp(2 * x)) / 2; }},
      {"clamp", [](const Tensor& x) { return clamp(x, -1, 2.5); },
       [](double x) { return x < -1    ? -1
                             : x > 2.5 ? 2.5
                                       : x; }},
      {"pow 2.5", [](const Tensor& x) { return pow(x, 2.5); }, [](double x) { return std::pow(x, 2.5); }, 0, 9},
      {"pow -1", [](const Tensor& x) { return pow(x, -1); }, [](double x) { return 1 / x; }},
      {"pow 3", [](const Tensor& x) { return pow(x, 3); }, [](double x) { return x * x * x; }},
  };
  return cases;
}

/// Units in the last place of float32 at a value.
double ulp(double value) {
  int exponent;
  std::frexp(value, &exponent);
  return std::ldexp(1.0, std::max(exponent - 24, -149));
}

Tensor vec(const std::vector<double>& v, DType dtype = float32) {
  return copy_as(from_vector(v, {static_cast<int64_t>(v.size())}), dtype);
}

}  // namespace

TEST_CASE("unary functions agree with the C library in float32 and float64", "[elementwise]") {
  for (const UnaryCase& c : unary_cases()) {
    INFO(c.name);
    const Tensor x = sample({1003}, 1, float32, c.low, c.high);  // a partial register at the end
    const std::vector<double> in = values(x), single = values(c.f(x)), doubles = values(c.f(copy_as(x, float64)));
    for (size_t i = 0; i < in.size(); ++i) {
      const double expected = c.expected(in[i]);
      INFO("x = " << in[i] << ": " << single[i] << " and " << doubles[i] << ", expected " << expected);
      // pow 3 rounds twice; tanh and sigmoid are within 2.5 units.
      if (!(std::fabs(single[i] - expected) <= 4 * ulp(expected))) REQUIRE(single[i] == expected);
      if (!(std::fabs(doubles[i] - expected) <= 1e-14 * std::fabs(expected))) REQUIRE(doubles[i] == expected);
    }
  }
}

TEST_CASE("gelu is exact in both precisions, and its tanh form is the paper's", "[elementwise]") {
  const Tensor x = sample({999}, 2, float64, -8, 8);
  const std::vector<double> in = values(x), exact = values(gelu(x)), single = values(gelu(copy_as(x, float32))),
                            approximate = values(gelu(x, "tanh"));
  for (size_t i = 0; i < in.size(); ++i) {
    INFO(in[i]);
    const double v = in[i];
    REQUIRE(std::fabs(exact[i] - v * phi(v)) <= 1e-15 * (1 + std::fabs(v)));
    REQUIRE(std::fabs(single[i] - v * phi(v)) <= 3e-7 * (1 + std::fabs(v)));
    const double u = std::sqrt(2 / M_PI) * (v + 0.044715 * v * v * v);
    REQUIRE(std::fabs(approximate[i] - 0.5 * v * (1 + std::tanh(u))) <= 1e-14 * (1 + std::fabs(v)));
  }
  REQUIRE_THROWS_WITH(gelu(x, "tan"), contains_text("tanh"));
}

TEST_CASE("16-bit floats compute in float32 and round once", "[elementwise]") {
  for (const DType dtype : {float16, bfloat16})
    for (const UnaryCase& c : unary_cases()) {
      INFO(c.name << ' ' << name(dtype));
      const Tensor x = sample({131}, 3, dtype, c.low, c.high);
      const Tensor y = c.f(x);
      REQUIRE(y.dtype() == dtype);
      REQUIRE(values(y) == values(copy_as(c.f(copy_as(x, float32)), dtype)));
    }
}

TEST_CASE("extreme arguments neither overflow nor lose what a float holds", "[elementwise]") {
  for (const DType dtype : {float32, float64}) {
    INFO(name(dtype));
    const double eps = dtype == float32 ? 1e-6 : 1e-14;
    require_close(values(sigmoid(vec({-1000, 1000, 0}, dtype))), {0, 1, 0.5}, 0);
    require_close(values(softplus(vec({1000, -1000}, dtype))), {1000, 0}, 0);
    REQUIRE(values(softplus(vec({-50}, dtype)))[0] == Approx(std::exp(-50.0)).epsilon(eps).margin(0));
    REQUIRE(values(sigmoid(vec({-80}, dtype)))[0] == Approx(std::exp(-80.0)).epsilon(eps).margin(0));
    REQUIRE(values(expm1(vec({1e-12}, dtype)))[0] == Approx(std::expm1(1e-12)).epsilon(eps).margin(0));
    REQUIRE(values(log1p(vec({1e-12}, dtype)))[0] == Approx(std::log1p(1e-12)).epsilon(eps).margin(0));
    REQUIRE(values(tanh(vec({1e-12}, dtype)))[0] == Approx(1e-12).epsilon(eps).margin(0));
    require_close(values(tanh(vec({-100, 100, kInf, -kInf}, dtype))), {-1, 1, 1, -1}, 0);
    require_close(values(erf(vec({-100, 100, kInf, -kInf}, dtype))), {-1, 1, 1, -1}, 0);
    require_close(values(exp(vec({kInf, -kInf, 1000, -1000}, dtype))), {kInf, 0, kInf, 0}, 0);
    require_close(values(expm1(vec({kInf, -kInf, 1000, -1000}, dtype))), {kInf, -1, kInf, -1}, 0);
    require_close(values(log(vec({0, -1, kInf}, dtype))), {-kInf, kNan, kInf}, 0);
    require_close(values(log1p(vec({-1, -2, kInf}, dtype))), {-kInf, kNan, kInf}, 0);
    REQUIRE(values(sin(vec({1e5}, dtype)))[0] == Approx(std::sin(1e5)).epsilon(1e-6));
    require_close(values(sin(vec({kInf}, dtype))), {kNan}, 0);
    require_close(values(round(vec({0.5, 1.5, 2.5, -0.5, -1.5, 1e9}, dtype))), {0, 2, 2, 0, -2, 1e9}, 0);
    require_close(values(floor(vec({-0.1, 0.9, -1}, dtype))), {-1, 0, -1}, 0);
    require_close(values(ceil(vec({-0.9, 0.1, 1}, dtype))), {0, 1, 1}, 0);
  }
  REQUIRE(std::signbit(values(floor(vec({-0.0})))[0]));
  REQUIRE(values(log(vec({1e-40})))[0] == Approx(std::log(1e-40)).epsilon(1e-5));  // subnormal
}

TEST_CASE("NaN is kept by every function", "[elementwise]") {
  for (const DType dtype : {float16, bfloat16, float32, float64}) {
    const Tensor x = vec({kNan, 1}, dtype);
    for (const UnaryCase& c : unary_cases()) {
      INFO(c.name << ' ' << name(dtype));
      REQUIRE(std::isnan(values(c.f(x))[0]));
    }
    REQUIRE(std::isnan(values(gelu(x))[0]));
    const Tensor other = vec({1, kNan}, dtype);
    for (const Tensor& y : {maximum(x, other), minimum(x, other), maximum(other, x), minimum(other, x)})
      REQUIRE((std::isnan(values(y)[0]) && std::isnan(values(y)[1])));
    REQUIRE(std::isnan(values(maximum(x, 0))[0]));
    REQUIRE(values(isnan(x)) == std::vector<double>{1, 0});
  }
  REQUIRE(values(clamp(vec({kNan}), -kInf, 1))[0] != values(clamp(vec({kNan}), -kInf, 1))[0]);
}

TEST_CASE("an element's result does not depend on its place or layout", "[elementwise]") {
  const Tensor x = sample({64, 37}, 5, float32, 0.1, 3);
  for (const UnaryCase& c : unary_cases()) {
    INFO(c.name);
    const std::vector<double> whole = values(c.f(x));
    const std::vector<double> turned = values(transpose(c.f(transpose(x, 0, 1)), 0, 1));
    REQUIRE(whole == turned);
    const std::vector<double> part = values(c.f(slice(x, 1, 5, 30, 3)));
    for (size_t i = 0, r = 0; r < 64; ++r)
      for (size_t k = 5; k < 30; k += 3) REQUIRE(part[i++] == whole[r * 37 + k]);
  }
}

TEST_CASE("integers keep their dtype or become float32", "[elementwise]") {
  const Tensor x = from_vector<int32_t>({-3, 0, 2});
  for (const Tensor& y : {neg(x), abs(x), sign(x), square(x), floor(x), ceil(x), round(x), relu(x), clamp(x, -1, 1)})
    REQUIRE(y.dtype() == int32);
  REQUIRE(values(relu(x)) == std::vector<double>{0, 0, 2});
  REQUIRE(values(clamp(x, -kInf, 1)) == std::vector<double>{-3, 0, 1});
  REQUIRE(clamp(x, -0.5, 1).dtype() == float32);
  REQUIRE(exp(x).dtype() == float32);
  REQUIRE(sigmoid(from_vector<bool>({true})).dtype() == float32);
  REQUIRE(pow(x, 2).dtype() == int32);
  REQUIRE(values(pow(x, 2)) == std::vector<double>{9, 0, 4});
  REQUIRE(pow(x, 0.5).dtype() == float32);
  REQUIRE(values(neg(from_vector<int8_t>({-128}))) == std::vector<double>{-128});  // wraps
}

TEST_CASE("conversion truncates, saturates, and rounds to nearest even once", "[elementwise]") {
  const Tensor x = vec({-1e30, -129.9, -1.9, -0.5, 0, 0.5, 1.9, 127.9, 300, 1e30, kNan, kInf}, float64);
  REQUIRE(copy_as(x, int8).to_vector<int8_t>() ==
          std::vector<int8_t>{-128, -128, -1, 0, 0, 0, 1, 127, 127, 127, 0, 127});
  REQUIRE(copy_as(x, uint8).to_vector<uint8_t>() == std::vector<uint8_t>{0, 0, 0, 0, 0, 0, 1, 127, 255, 255, 0, 255});
  const int64_t low = std::numeric_limits<int64_t>::min(), high = std::numeric_limits<int64_t>::max();
  REQUIRE(copy_as(x, int64).to_vector<int64_t>() ==
          std::vector<int64_t>{low, -129, -1, 0, 0, 0, 1, 127, 300, high, 0, high});
  REQUIRE(values(copy_as(x, bool_)) == std::vector<double>{1, 1, 1, 1, 0, 1, 1, 1, 1, 1, 1, 1});
  REQUIRE(copy_as(from_vector<int32_t>({300, -1}), uint8).to_vector<uint8_t>() ==
          std::vector<uint8_t>{44, 255});  // wraps
  // 1 + 2^-11 + 2^-30 in float16: above the tie, so up; rounding to float32 first would make it a tie, and even.
  REQUIRE(values(copy_as(vec({1 + 0x1p-11 + 0x1p-30}, float64), float16))[0] == 1 + 0x1p-10);
  REQUIRE(values(copy_as(vec({1 + 0x1p-8 + 0x1p-40}, float64), bfloat16))[0] == 1 + 0x1p-7);
  for (const DType from : {bool_, uint8, int8, int16, int32, int64, float16, bfloat16, float32, float64})
    for (const DType to : {bool_, uint8, int8, int16, int32, int64, float16, bfloat16, float32, float64}) {
      const Tensor base = copy_as(copy_as(reshape(arange(0, 77), {7, 11}), from), to);  // small integers survive
      INFO(name(from) << " to " << name(to));
      if (to != bool_ && from != bool_) REQUIRE(values(base) == values(arange(0, 77)));
    }
}

TEST_CASE("copies of any layout are exact", "[elementwise]") {
  for (const DType dtype : {bool_, uint8, int16, float16, float32, float64}) {
    INFO(name(dtype));
    const Tensor x = copy_as(remainder(reshape(arange(0, 6 * 70 * 45), {6, 70, 45}), 2), dtype);
    const std::vector<double> in = values(x);
    const std::vector<std::vector<int64_t>> orders = {{2, 1, 0}, {0, 2, 1}, {1, 0, 2}, {2, 0, 1}};
    for (const auto& order : orders) {
      const Tensor turned = permute(x, order), copy = contiguous(turned);
      REQUIRE(copy.is_contiguous());
      const std::vector<double> out = values(copy);
      const int64_t strides[] = {70 * 45, 45, 1};
      size_t at = 0;
      for (int64_t a = 0; a < turned.shape()[0]; ++a)
        for (int64_t b = 0; b < turned.shape()[1]; ++b)
          for (int64_t c = 0; c < turned.shape()[2]; ++c)
            if (out[at++] !=
                in[static_cast<size_t>(a * strides[order[0]] + b * strides[order[1]] + c * strides[order[2]])])
              FAIL("element " << at - 1);
    }
  }
}

TEST_CASE("two operands of any layout and broadcast agree with a plain loop", "[elementwise]") {
  struct Case {
    Shape a, b;
  };
  const std::vector<Case> cases = {{{5, 7}, {5, 7}},       {{5, 7}, {7}},
                                   {{5, 1}, {1, 7}},       {{}, {3}},
                                   {{2, 3, 4}, {3, 1}},    {{40, 30, 3}, {30, 1}},
                                   {{2, 1, 1500}, {3, 1}}, {{1500}, {1500}},
                                   {{3, 5, 1}, {1, 1, 9}}, {{2, 2, 2, 2}, {2, 1, 2}},
                                   {{1, 1}, {1}},          {{0, 3}, {1, 3}},
                                   {{33, 1025}, {33, 1}},  {{700, 2, 3}, {1, 2, 1}}};
  for (const Case& c : cases)
    for (const bool turned : {false, true}) {
      const auto make = [&](const Shape& shape, uint64_t seed, DType dtype) {
        if (!turned || shape.size() < 2) return sample(shape, seed, dtype);
        Shape back = shape;
        std::swap(back[0], back[shape.size() - 1]);
        return transpose(sample(back, seed, dtype), 0, -1);  // strides out of order
      };
      for (const auto& [ta, tb] : std::vector<std::pair<DType, DType>>{
               {float32, float32}, {float64, float32}, {bfloat16, bfloat16}, {int32, float16}}) {
        const Tensor a = make(c.a, 1, ta), b = make(c.b, 2, tb);
        const Shape shape = broadcast_shapes("test", c.a, c.b);
        INFO(c.a << ' ' << c.b << ' ' << turned << ' ' << name(ta) << ' ' << name(tb));
        const Tensor wide_a = copy_as(expand_view(a, shape), float64), wide_b = copy_as(expand_view(b, shape), float64);
        const double *pa = wide_a.data<double>(), *pb = wide_b.data<double>();
        std::vector<double> sum, product, less;
        for (int64_t i = 0; i < wide_a.numel(); ++i) {
          sum.push_back(pa[i] + pb[i]), product.push_back(pa[i] * pb[i]), less.push_back(pa[i] < pb[i]);
        }
        const DType dtype = promote_types(ta, tb);
        REQUIRE(add(a, b).dtype() == dtype);
        REQUIRE(add(a, b).shape() == shape);
        require_close(values(add(a, b)), sum, support::tolerance(dtype));
        require_close(values(mul(a, b)), product, support::tolerance(dtype));
        if (ta == tb) require_close(values(lt(a, b)), less, 0);
      }
    }
  REQUIRE_THROWS_WITH(add(zeros({2, 3}), zeros({4})), contains_text("(2, 3)") && contains_text("(4,)"));
}

TEST_CASE("integer division follows Python", "[elementwise]") {
  const std::vector<int64_t> a = {7, -7, 7, -7, 0, 6, -6}, b = {2, 2, -2, -2, 5, 3, 3};
  REQUIRE(floor_divide(from_vector(a), from_vector(b)).to_vector<int64_t>() ==
          std::vector<int64_t>{3, -4, -4, 3, 0, 2, -2});
  REQUIRE(remainder(from_vector(a), from_vector(b)).to_vector<int64_t>() ==
          std::vector<int64_t>{1, 1, -1, -1, 0, 0, 0});
  REQUIRE_THROWS_AS(floor_divide(from_vector(a), 0), ValueError);
  REQUIRE_THROWS_WITH(remainder(from_vector(a), zeros({7}, int64)), contains_text("zero"));
  const int64_t low = std::numeric_limits<int64_t>::min();
  REQUIRE(floor_divide(from_vector<int64_t>({low}), -1).item<int64_t>() == low);  // wraps, does not trap
  REQUIRE(remainder(from_vector<int64_t>({low}), -1).item<int64_t>() == 0);
  REQUIRE(div(from_vector<int32_t>({1}), from_vector<int32_t>({2})).dtype() == float32);
  REQUIRE(values(div(from_vector<int32_t>({1}), from_vector<int32_t>({2})))[0] == 0.5);
  REQUIRE(pow(from_vector<int64_t>({3, -2, 0, 7}), from_vector<int64_t>({4, 3, 0, 0})).to_vector<int64_t>() ==
          std::vector<int64_t>{81, -8, 1, 1});
  REQUIRE_THROWS_WITH(pow(from_vector<int64_t>({2}), from_vector<int64_t>({-1})), contains_text("negative"));
}

TEST_CASE("float division follows Python", "[elementwise]") {
  for (const DType dtype : {float32, float64}) {
    const Tensor a = vec({7, -7, 7, -7, 1, -1, 5.5, kNan}, dtype), b = vec({2, 2, -2, -2, 0.25, kInf, -2, 1}, dtype);
    require_close(values(floor_divide(a, b)), {3, -4, -4, 3, 4, -1, -3, kNan}, 0);
    require_close(values(remainder(a, b)), {1, 1, -1, -1, 0, kInf, -0.5, kNan}, 0);
    require_close(values(floor_divide(vec({1, -1, 0}, dtype), 0)), {kInf, -kInf, kNan}, 0);
  }
  REQUIRE(values(floor_divide(vec({1}, float64), 0.1))[0] == 9);  // 1 // 0.1 in Python
}

TEST_CASE("numbers are weak and integers exact", "[elementwise]") {
  REQUIRE(add(zeros({1}, float16), 2.5).dtype() == float16);
  REQUIRE(add(zeros({1}, int8), 2).dtype() == int8);
  REQUIRE(add(zeros({1}, int8), 2.5).dtype() == float32);
  REQUIRE(add(zeros({1}, bool_), 2).dtype() == int64);
  REQUIRE(div(zeros({1}, int64), 2).dtype() == float32);
  REQUIRE(values(rsub(1, vec({0.25})))[0] == 0.75);
  REQUIRE(values(rdiv(1, vec({4})))[0] == 0.25);
  REQUIRE(values(rpow(2, vec({3})))[0] == 8);
  const int64_t big = (int64_t{1} << 53) + 1;
  REQUIRE(add(from_vector<int64_t>({0}), big).item<int64_t>() == big);
  REQUIRE(values(eq(from_vector<int64_t>({big}), big - 1))[0] == 0);
  REQUIRE(values(gt(from_vector<uint8_t>({0}), -1))[0] == 1);
  REQUIRE(values(sub(vec({5}), 2))[0] == 3);
  REQUIRE(values(maximum(vec({-5, 5}), 2)) == std::vector<double>{2, 5});
  REQUIRE_THROWS_AS(sub(zeros({1}, bool_), zeros({1}, bool_)), DTypeError);
}

TEST_CASE("comparisons, logic and selection", "[elementwise]") {
  const Tensor a = vec({1, 2, kNan, 0}), b = vec({1, 3, 0, -1});
  REQUIRE(eq(a, b).dtype() == bool_);
  REQUIRE(values(eq(a, b)) == std::vector<double>{1, 0, 0, 0});
  REQUIRE(values(ne(a, b)) == std::vector<double>{0, 1, 1, 1});
  REQUIRE(values(lt(a, b)) == std::vector<double>{0, 1, 0, 0});
  REQUIRE(values(le(a, b)) == std::vector<double>{1, 1, 0, 0});
  REQUIRE(values(gt(a, b)) == std::vector<double>{0, 0, 0, 1});
  REQUIRE(values(ge(a, b)) == std::vector<double>{1, 0, 0, 1});
  REQUIRE(values(logical_and(a, b)) == std::vector<double>{1, 1, 0, 0});
  REQUIRE(values(logical_or(a, b)) == std::vector<double>{1, 1, 1, 1});
  REQUIRE(values(logical_xor(a, b)) == std::vector<double>{0, 0, 1, 1});
  REQUIRE(values(logical_not(a)) == std::vector<double>{0, 0, 0, 1});
  const Tensor chosen = where(gt(b, 0), a, zeros({2, 1}, float64));
  REQUIRE(chosen.dtype() == float64);
  REQUIRE(values(chosen) == std::vector<double>{1, 2, 0, 0, 1, 2, 0, 0});
  REQUIRE_THROWS_WITH(where(a, a, b), contains_text("bool"));
}

TEST_CASE("in place: values, views, versions and what is refused", "[elementwise]") {
  Tensor x = vec({1, 2, 3, 4});
  const uint64_t version = x.version();
  add_(x, vec({1}), 2);
  mul_(x, 2);
  sub_(x, vec({1, 1, 1, 1}));
  div_(x, 2);
  REQUIRE(values(x) == std::vector<double>{2.5, 3.5, 4.5, 5.5});
  REQUIRE(x.version() == version + 4);
  x = reshape(copy_as(arange(0, 6), float32), {2, 3});
  add_(transpose(x, 0, 1), vec({10, 20}));  // a view that is written through
  REQUIRE(values(x) == std::vector<double>{10, 11, 12, 23, 24, 25});
  x = vec({1, 2, 3, 4});
  add_(slice(x, 0, 1, 4), slice(x, 0, 0, 3));  // overlapping: as if the right side had been read first
  REQUIRE(values(x) == std::vector<double>{1, 3, 5, 7});
  copy_(slice(x, 0, 0, 3), slice(x, 0, 1, 4));
  REQUIRE(values(x) == std::vector<double>{3, 5, 7, 7});
  mul_(x, x);
  REQUIRE(values(x) == std::vector<double>{9, 25, 49, 49});
  zero_(x);
  fill_(slice(x, 0, 1, 3), 2);
  REQUIRE(values(x) == std::vector<double>{0, 2, 2, 0});
  const Tensor half = full({1}, 1, float16);
  add_(half, vec({0.5}));  // a wider operand does not change the dtype
  REQUIRE((half.dtype() == float16 && values(half)[0] == 1.5));

  const Tensor whole = from_vector<int32_t>({1, 2});
  REQUIRE_THROWS_AS(add_(whole, vec({0.5})), DTypeError);
  REQUIRE_THROWS_AS(mul_(whole, 0.5), DTypeError);
  REQUIRE_THROWS_AS(div_(whole, 2), DTypeError);
  REQUIRE_THROWS_AS(fill_(whole, 0.5), DTypeError);
  for (const auto& [dtype, low, high] : {std::tuple{uint8, 0, 255}, {int8, -128, 127}, {int16, -32768, 32767}}) {
    REQUIRE(full({1}, low, dtype).to_vector<int64_t>()[0] == low);
    REQUIRE(full({1}, high, dtype).to_vector<int64_t>()[0] == high);
    REQUIRE_THROWS_WITH(full({1}, low - 1, dtype), contains_text("does not fit in"));
    REQUIRE_THROWS_WITH(fill_(zeros({1}, dtype), high + 1), contains_text("does not fit in"));
    REQUIRE_THROWS_WITH(full({1}, std::nan(""), dtype), contains_text("does not fit in"));
  }
  REQUIRE(full({1}, INT64_MIN, int64).item<int64_t>() == INT64_MIN);
  REQUIRE_THROWS_AS(full({1}, 1e19, int64), ValueError);
  REQUIRE_THROWS_AS(add_(zeros({2}, bool_), 1), DTypeError);
  REQUIRE_THROWS_WITH(add_(whole, zeros({2, 2}, int32)), contains_text("(2, 2)"));
  REQUIRE_THROWS_AS(add_(whole, zeros({3}, int32)), ShapeError);
  float memory[2] = {1, 2};
  const Tensor fixed = from_memory(
      memory, {2}, float32, [] {}, {}, cpu, false);
  REQUIRE_THROWS_WITH(add_(fixed, 1), contains_text("read-only"));
  const Tensor column = zeros({3, 1});
  REQUIRE_THROWS_WITH(add_(broadcast_to(column, {3, 2}), 1), contains_text("dim 1 of shape (3, 2) is broadcast"));
  REQUIRE_THROWS_WITH(fill_(broadcast_to(column, {3, 2}), 1), contains_text("is broadcast"));
  REQUIRE_THROWS_WITH(index_set(broadcast_to(zeros({1, 2}), {3, 2}), {1}, ones({2})), contains_text("is broadcast"));
  REQUIRE_THROWS_WITH(normal_into(broadcast_to(column, {3, 2}), 0, 1), contains_text("is broadcast"));
  REQUIRE_THROWS_WITH(copy_into(as_strided(zeros({4}), {3, 2}, {1, 1}, 0), zeros({3, 2})),
                      contains_text("is broadcast"));
  copy_into(as_strided(zeros({8}), {3, 2}, {1, 4}, 0), zeros({3, 2}));  // sparse and permuted, each place once
  REQUIRE_THROWS_WITH(batch_norm(rand({4, 2}), {}, {}, broadcast_to(zeros({1}), {2}), ones({2}), true, 0.1, 1e-5),
                      contains_text("is broadcast"));
  add_(broadcast_to(column, {3, 1}), 1);  // one element a place
  REQUIRE(column.to_vector<float>() == std::vector<float>{1, 1, 1});
  REQUIRE_THROWS_WITH(copy_(fixed, zeros({2})), contains_text("read-only"));
  REQUIRE_THROWS_WITH(fill_(fixed, 1), contains_text("read-only"));
}

TEST_CASE("bad arguments of elementwise functions", "[elementwise]") {
  REQUIRE_THROWS_WITH(clamp(vec({1}), 2, 1), contains_text("2") && contains_text("1"));
  REQUIRE_THROWS_AS(clamp(vec({1}), kNan, 1), ValueError);
  REQUIRE_THROWS_AS(softplus(vec({1}), 0), ValueError);
  REQUIRE_THROWS_AS(add(Tensor(), vec({1})), Error);
}

TEST_CASE("empty tensors give empty results", "[elementwise]") {
  for (const Shape& shape : {Shape{0}, Shape{3, 0}, Shape{0, 2, 5}}) {
    const Tensor x = zeros(shape).set_requires_grad();
    for (const UnaryCase& c : unary_cases()) REQUIRE(c.f(x).shape() == shape);
    const Tensor y = sum(mul(gelu(x), add(x, 1)));
    REQUIRE(y.item<double>() == 0);
    y.backward();
    REQUIRE(x.grad().shape() == shape);
  }
}

TEST_CASE("elementwise results have the same bits for any number of threads", "[elementwise]") {
  const Tensor a = sample({300, 700}, 1, float32), b = sample({700}, 2, float32), c = sample({700, 300}, 3, float32);
  support::require_same_bits([&] {
    const Tensor x = copy_as(a, float32);
    add_(transpose(x, 0, 1), c);
    return std::vector<Tensor>{gelu(a), add(a, b), mul(a, transpose(c, 0, 1)), x,
                               copy_as(transpose(a, 0, 1), bfloat16)};
  });
}
