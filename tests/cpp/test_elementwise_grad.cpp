// Gradients of elementwise functions, first and second order, and of in-place changes.
// Main entry: tag [elementwise].
#include <anello/anello.h>

#include <functional>
#include <limits>

#include "support.h"

using namespace anello;
using support::leaf;
using support::require_close;
using support::values;

namespace {

using Function = std::function<Tensor(const Tensor&)>;
using Function2 = std::function<Tensor(const Tensor&, const Tensor&)>;

void check_gradient(const char* name, const Function& f, const Tensor& x) {
  INFO(name);
  REQUIRE(gradcheck([&](const std::vector<Tensor>& in) { return std::vector<Tensor>{f(in[0])}; }, {x},
                    {.second_order = true}));
}
void check_gradient(const char* name, const Function2& f, const Tensor& a, const Tensor& b) {
  INFO(name);
  REQUIRE(gradcheck([&](const std::vector<Tensor>& in) { return std::vector<Tensor>{f(in[0], in[1])}; }, {a, b},
                    {.second_order = true}));
}

Tensor tracked(const std::vector<double>& v, DType dtype = float64) {
  return copy_as(from_vector(v, {static_cast<int64_t>(v.size())}), dtype).set_requires_grad();
}

std::vector<double> gradient(const Function& f, const Tensor& x) {
  x.zero_grad();
  sum(f(x)).backward();
  return values(x.grad());
}

}  // namespace

TEST_CASE("unary gradients are those of central differences, twice", "[elementwise]") {
  const Tensor x = leaf({2, 9}, 1), positive = leaf({2, 9}, 2, 0.3, 3);
  const std::vector<std::pair<const char*, Function>> anywhere = {
      {"neg", neg},
      {"abs", [](const Tensor& t) { return abs(t); }},
      {"square", square},
      {"exp", [](const Tensor& t) { return exp(t); }},
      {"expm1", [](const Tensor& t) { return expm1(t); }},
      {"sin", [](const Tensor& t) { return sin(t); }},
      {"cos", [](const Tensor& t) { return cos(t); }},
      {"tanh", [](const Tensor& t) { return tanh(t); }},
      {"erf", [](const Tensor& t) { return erf(t); }},
      {"sigmoid", sigmoid},
      {"relu", [](const Tensor& t) { return square(relu(t)); }},
      {"silu", silu},
      {"leaky_relu", [](const Tensor& t) { return square(leaky_relu(t, 0.2)); }},
      {"elu", [](const Tensor& t) { return elu(t, 0.7); }},
      {"gelu", [](const Tensor& t) { return gelu(t); }},
      {"gelu tanh", [](const Tensor& t) { return gelu(t, "tanh"); }},
      {"softplus", [](const Tensor& t) { return softplus(t, 1.5); }},
      {"clamp", [](const Tensor& t) { return square(clamp(t, -1.1, 0.9)); }},
      {"pow 3", [](const Tensor& t) { return pow(t, 3); }}};
  for (const auto& [name, f] : anywhere) check_gradient(name, f, x);
  const std::vector<std::pair<const char*, Function>> above_zero = {
      {"log", [](const Tensor& t) { return log(t); }},
      {"log1p", [](const Tensor& t) { return log1p(t); }},
      {"sqrt", [](const Tensor& t) { return sqrt(t); }},
      {"rsqrt", rsqrt},
      {"reciprocal", reciprocal},
      {"pow 2.5", [](const Tensor& t) { return pow(t, 2.5); }}};
  for (const auto& [name, f] : above_zero) check_gradient(name, f, positive);
}

TEST_CASE("binary gradients, also of broadcast operands", "[elementwise]") {
  const std::vector<std::pair<const char*, Function2>> functions = {
      {"add", [](const Tensor& a, const Tensor& b) { return square(add(a, b)); }},
      {"sub", [](const Tensor& a, const Tensor& b) { return square(sub(a, b)); }},
      {"mul", [](const Tensor& a, const Tensor& b) { return mul(a, b); }},
      {"div", [](const Tensor& a, const Tensor& b) { return div(a, b); }},
      {"pow", [](const Tensor& a, const Tensor& b) { return pow(a, b); }},
      {"maximum", [](const Tensor& a, const Tensor& b) { return square(maximum(a, b)); }},
      {"minimum", [](const Tensor& a, const Tensor& b) { return square(minimum(a, b)); }},
      {"where", [](const Tensor& a, const Tensor& b) { return square(where(gt(a, 1.2), a, b)); }}};
  for (const auto& [name, f] : functions) {
    check_gradient(name, f, leaf({2, 3}, 3, 0.5, 2), leaf({2, 3}, 4, 0.5, 2));
    check_gradient(name, f, leaf({2, 1}, 5, 0.5, 2), leaf({3}, 6, 0.5, 2));
  }
  const Tensor x = leaf({5}, 7, 0.5, 2);
  check_gradient(
      "numbers",
      [](const Tensor& t) {
        return add(mul(rdiv(2, t), sub(t, 3)), add(rsub(1, div(t, 4)), mul(rpow(1.5, t), maximum(t, 1.1))));
      },
      x);
}

TEST_CASE("a broadcast gradient has the input's shape", "[elementwise]") {
  const Tensor x = zeros({3, 4}), bias = zeros({1, 4}).set_requires_grad(), number = zeros({}).set_requires_grad();
  sum(add(add(x, bias), number)).backward();
  REQUIRE(bias.grad().shape() == Shape{1, 4});
  REQUIRE(values(bias.grad()) == std::vector<double>{3, 3, 3, 3});
  REQUIRE(number.grad().shape() == Shape{});
  REQUIRE(number.grad().item<double>() == 12);
}

TEST_CASE("gradients at kinks, ties and bounds", "[elementwise]") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const DType dtype : {float32, float64}) {
    REQUIRE(gradient(relu, tracked({-1, 0, 2}, dtype)) == std::vector<double>{0, 0, 1});
    REQUIRE(gradient([](const Tensor& x) { return abs(x); }, tracked({-1, 0, 2}, dtype)) ==
            std::vector<double>{-1, 0, 1});
    REQUIRE(gradient([](const Tensor& x) { return clamp(x, 0, 1); }, tracked({-1, 0, 0.5, 1, 2}, dtype)) ==
            std::vector<double>{0, 1, 1, 1, 0});
    for (const Function& f :
         {Function(sign), Function([](const Tensor& x) { return floor(x); }),
          Function([](const Tensor& x) { return ceil(x); }), Function([](const Tensor& x) { return round(x); }),
          Function([](const Tensor& x) { return floor_divide(x, 2); })})
      REQUIRE(gradient(f, tracked({-1.5, 0.3}, dtype)) == std::vector<double>{0, 0});
    REQUIRE(gradient([](const Tensor& x) { return pow(x, 0); }, tracked({0, 2}, dtype)) == std::vector<double>{0, 0});
    REQUIRE(gradient([](const Tensor& x) { return pow(x, 2); }, tracked({0, 2}, dtype)) == std::vector<double>{0, 4});
  }
  const Tensor a = tracked({1, 2, nan}), b = tracked({1, 3, 0});
  sum(maximum(a, b)).backward();
  REQUIRE(values(a.grad()) == std::vector<double>{0.5, 0, 1});
  REQUIRE(values(b.grad()) == std::vector<double>{0.5, 1, 0});
  // 0^y is constant, and its slope in the base 0 * 0^-1 is none either.
  const Tensor base = tracked({0, 0}), exponent = tracked({2, 0});
  sum(pow(base, exponent)).backward();
  REQUIRE(values(base.grad()) == std::vector<double>{0, 0});
  REQUIRE(values(exponent.grad()) == std::vector<double>{0, 0});
  // The untaken side does not turn an infinite gradient into NaN.
  const Tensor x = tracked({-1, 1});
  sum(mul(relu(x), full({2}, std::numeric_limits<double>::infinity(), float64))).backward();
  REQUIRE(values(x.grad())[0] == 0);
}

TEST_CASE("fused and composite gradients agree in every float dtype", "[elementwise]") {
  const std::vector<Function> functions = {[](const Tensor& t) { return gelu(t); }, silu, sigmoid,
                                           [](const Tensor& t) { return tanh(t); },
                                           [](const Tensor& t) { return elu(t, 1); }};
  for (const DType dtype : {float16, bfloat16, float32, float64})
    for (const Function& f : functions) {
      const Tensor x = support::sample({37}, 8, dtype).set_requires_grad();
      const Tensor fused = grad({sum(f(x))}, {x})[0], composite = grad({sum(f(x))}, {x}, {}, false, true)[0];
      REQUIRE((fused.dtype() == dtype && composite.dtype() == dtype));
      require_close(fused, composite, 3 * support::tolerance(dtype));
    }
}

TEST_CASE("a changed saved tensor is an error that names tensor and op", "[elementwise]") {
  const Tensor a = tracked({1, 2, 3}, float32);
  Tensor b = sigmoid(a);
  fill_(index(b, {1}).detach(), 2);
  REQUIRE_THROWS_WITH(sum(b).backward(), contains_text("sigmoid") && contains_text("saved tensor 0, shape (3,)"));
  // Division saves its inputs, not its output: here the same edit is legal.
  b = rdiv(1, add(exp(neg(a)), 1));
  index_set(b, {1}, full({}, 2));
  sum(b).backward();
  require_close(values(a.grad()), {0.19661193, 0, 0.04517666}, 1e-6);
}

TEST_CASE("in-place changes are recorded", "[elementwise]") {
  const auto f = [](const std::vector<Tensor>& in) {
    Tensor x = mul(in[0], 2);
    add_(x, in[1], 3);
    mul_(x, in[1]);
    sub_(x, in[0]);
    div_(x, in[1]);
    mul_(x, x);
    add_(x, 1);
    div_(x, 2);
    return std::vector<Tensor>{x};
  };
  REQUIRE(gradcheck(f, {leaf({2, 3}, 1, 0.5, 2), leaf({3}, 2, 0.5, 2)}, {.second_order = true}));
  const Tensor x = tracked({1, 2}), y = tracked({3, 4});
  Tensor z = mul(x, 2);
  copy_(z, y);
  sum(square(z)).backward();
  REQUIRE(!x.grad().defined());
  REQUIRE(values(y.grad()) == std::vector<double>{6, 8});
  z = mul(y, 2);
  fill_(z, 5);
  REQUIRE(z.requires_grad());
  Tensor untracked = zeros({2}, float64);
  add_(untracked, y);  // from here on it depends on y
  y.zero_grad();
  sum(untracked).backward();
  REQUIRE(values(y.grad()) == std::vector<double>{1, 1});
  REQUIRE_THROWS_WITH(add_(y, 1), contains_text("leaf"));
  const NoGradGuard no_grad;
  add_(y, 1);
  REQUIRE(values(y) == std::vector<double>{4, 5});
}
