// Reductions: values against plain loops in float64, accuracy, layouts, special cases, gradients.
// Main entry: tag [reduce]; the 2 GiB case has the tag [.slow] and runs only when asked for.
#include <anello/anello.h>

#include <functional>
#include <limits>

#include "support.h"

using namespace anello;
using support::leaf;
using support::require_close;
using support::sample;
using support::values;

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity(), kNan = std::numeric_limits<double>::quiet_NaN();
using Dims = std::vector<int64_t>;

/// The values that make each result, in row-major order of the results.
std::vector<std::vector<double>> groups(const Tensor& x, const Dims& dims) {
  std::vector<bool> reduced(static_cast<size_t>(x.dim()), dims.empty());
  for (int64_t d : dims) reduced[static_cast<size_t>(d < 0 ? d + x.dim() : d)] = true;
  int64_t results = 1;
  for (int d = 0; d < x.dim(); ++d)
    if (!reduced[static_cast<size_t>(d)]) results *= x.shape()[d];
  std::vector<std::vector<double>> out(static_cast<size_t>(results));
  const std::vector<double> flat = values(x);
  for (int64_t i = 0; i < x.numel(); ++i) {
    int64_t rest = i, place = 0, stride = 1;
    for (int d = x.dim() - 1; d >= 0; --d) {
      const int64_t k = rest % x.shape()[d];
      rest /= x.shape()[d];
      if (reduced[static_cast<size_t>(d)]) continue;
      place += k * stride;
      stride *= x.shape()[d];
    }
    out[static_cast<size_t>(place)].push_back(flat[static_cast<size_t>(i)]);
  }
  return out;
}

std::vector<double> expected(const Tensor& x, const Dims& dims,
                             const std::function<double(const std::vector<double>&)>& f) {
  std::vector<double> out;
  for (const auto& group : groups(x, dims)) out.push_back(f(group));
  return out;
}

double total(const std::vector<double>& v) {
  long double s = 0;
  for (double x : v) s += x;
  return static_cast<double>(s);
}
double largest(const std::vector<double>& v) { return *std::max_element(v.begin(), v.end()); }
double smallest(const std::vector<double>& v) { return *std::min_element(v.begin(), v.end()); }
double variance(const std::vector<double>& v) {
  const double mean = total(v) / static_cast<double>(v.size());
  long double s = 0;
  for (double x : v) s += (x - mean) * (x - mean);
  return static_cast<double>(s) / static_cast<double>(v.size() - 1);
}

struct Case {
  Shape shape;
  Dims dims;
};
const std::vector<Case>& cases() {
  static const std::vector<Case> list = {
      {{1000}, {}},         {{3, 5}, {0}},          {{3, 5}, {1}},          {{3, 5}, {-1, 0}},  {{2, 3, 4}, {1}},
      {{2, 3, 4}, {0, 2}},  {{70, 300}, {0}},       {{300, 70}, {1}},       {{5, 2, 700}, {1}}, {{4000, 3}, {0}},
      {{3, 1, 600}, {2}},   {{2, 3, 4, 5}, {0, 2}}, {{2, 3, 4, 5}, {1, 3}}, {{7, 1, 9}, {1}},   {{400, 20, 20}, {0, 1}},
      {{2, 40000, 5}, {1}}, {{1, 200000}, {1}},     {{130, 1025}, {0}},     {{9, 255}, {1}},    {{9, 257}, {1}}};
  return list;
}

Tensor vec(const std::vector<double>& v, DType dtype = float64) {
  return copy_as(from_vector(v, {static_cast<int64_t>(v.size())}), dtype);
}

}  // namespace

TEST_CASE("reductions agree with plain loops for many shapes and layouts", "[reduce]") {
  for (const Case& c : cases())
    for (const DType dtype : {float64, float32, bfloat16, int32})
      for (const bool turned : {false, true}) {
        Shape back = c.shape;
        std::swap(back[0], back[back.size() - 1]);
        const Tensor x = turned ? transpose(sample(back, 1, dtype, -9, 9), 0, -1) : sample(c.shape, 1, dtype, -9, 9);
        INFO(c.shape << " dims " << c.dims.size() << ' ' << name(dtype) << " turned " << turned);
        const double close = support::tolerance(dtype == int32 ? float32 : dtype);
        REQUIRE(sum(x, c.dims).dtype() == (dtype == int32 ? int64 : dtype));
        require_close(values(sum(x, c.dims)), expected(x, c.dims, total), dtype == int32 ? 0 : close);
        require_close(values(mean(x, c.dims)),
                      expected(x, c.dims, [](const auto& v) { return total(v) / static_cast<double>(v.size()); }),
                      close);
        require_close(values(max(x, c.dims)), expected(x, c.dims, largest), 0);
        require_close(values(min(x, c.dims)), expected(x, c.dims, smallest), 0);
        if (c.shape != Shape{7, 1, 9}) require_close(values(var(x, c.dims)), expected(x, c.dims, variance), close);
        require_close(values(norm(x, c.dims)),
                      expected(x, c.dims,
                               [](const auto& v) {
                                 double s = 0;
                                 for (double e : v) s += e * e;
                                 return std::sqrt(s);
                               }),
                      close);
        require_close(values(logsumexp(x, c.dims.empty() ? Dims{0} : c.dims)),
                      expected(x, c.dims,
                               [](const auto& v) {
                                 double s = 0;
                                 const double top = largest(v);
                                 for (double e : v) s += std::exp(e - top);
                                 return top + std::log(s);
                               }),
                      close);
        require_close(values(any(gt(x, 8.9), c.dims)),
                      expected(x, c.dims, [](const auto& v) { return largest(v) > 8.9; }), 0);
        require_close(values(all(gt(x, -8.9), c.dims)),
                      expected(x, c.dims, [](const auto& v) { return smallest(v) > -8.9; }), 0);
      }
}

TEST_CASE("products", "[reduce]") {
  const Tensor x = sample({6, 50, 4}, 2, float64, 0.8, 1.2);
  const auto product = [](const std::vector<double>& v) {
    double p = 1;
    for (double e : v) p *= e;
    return p;
  };
  for (const Dims& dims : {Dims{}, Dims{1}, Dims{0, 2}}) {
    require_close(values(prod(x, dims)), expected(x, dims, product), 1e-12);
    const Tensor single = copy_as(x, float32);
    require_close(values(prod(single, dims)), expected(single, dims, product), 1e-6);
  }
  REQUIRE(prod(from_vector<int32_t>({2, 3, 7})).item<int64_t>() == 42);
  REQUIRE(prod(from_vector<int32_t>({2, 3, 7})).dtype() == int64);
}

TEST_CASE("shapes and dims of reductions", "[reduce]") {
  const Tensor x = zeros({2, 3, 4});
  REQUIRE(sum(x).shape() == Shape{});
  REQUIRE(sum(x, {}, true).shape() == Shape{1, 1, 1});
  REQUIRE(mean(x, {1}).shape() == Shape{2, 4});
  REQUIRE(max(x, {0, -1}, true).shape() == Shape{1, 3, 1});
  REQUIRE(argmax(x, 1).shape() == Shape{2, 4});
  REQUIRE(argmax(x, -1, true).shape() == Shape{2, 3, 1});
  REQUIRE(sum(full({}, 3)).item<double>() == 3);
  REQUIRE(argmax(full({}, 3), 0).item<int64_t>() == 0);
  REQUIRE_THROWS_WITH(sum(x, {3}), contains_text("3"));
  REQUIRE_THROWS_AS(sum(x, {1, -2}), ShapeError);
  REQUIRE_THROWS_AS(argmax(x, 3), ShapeError);
}

TEST_CASE("reductions of nothing", "[reduce]") {
  const Tensor x = zeros({0, 3});
  REQUIRE(sum(x).item<double>() == 0);
  REQUIRE(values(sum(x, {0})) == std::vector<double>{0, 0, 0});
  REQUIRE(sum(x, {1}).shape() == Shape{0});
  REQUIRE(values(prod(x, {0})) == std::vector<double>{1, 1, 1});
  REQUIRE(std::isnan(mean(x).item<double>()));
  REQUIRE(values(any(x, {0})) == std::vector<double>{0, 0, 0});
  REQUIRE(values(all(x, {0})) == std::vector<double>{1, 1, 1});
  REQUIRE(values(logsumexp(x, {0})) == std::vector<double>{-kInf, -kInf, -kInf});
  REQUIRE(values(norm(x, {0})) == std::vector<double>{0, 0, 0});
  REQUIRE(std::isnan(values(var(x, {0}))[0]));
  REQUIRE(max(x, {1}).shape() == Shape{0});
  REQUIRE_THROWS_WITH(max(x), contains_text("[max]") && contains_text("(0, 3)"));
  REQUIRE_THROWS_AS(min(x, {0}), ShapeError);
  REQUIRE_THROWS_AS(argmax(x, 0), ShapeError);
  REQUIRE_THROWS_AS(argmin(x, 0), ShapeError);
  const Tensor y = zeros({0, 3}).set_requires_grad();
  add(sum(y), sum(prod(y, {0}))).backward();
  REQUIRE(y.grad().shape() == Shape{0, 3});
}

TEST_CASE("float32 sums stay accurate, whatever the length", "[reduce]") {
  const int64_t n = 3'000'001;
  const Tensor x = add(mul(sample({n}, 3, float32, 0, 1), 1e-3), 1);
  const double exact = total(values(x));
  REQUIRE(std::fabs(sum(x).item<double>() - exact) <= exact * 0x1p-24);
  REQUIRE(std::fabs(mean(x).item<double>() * static_cast<double>(n) - exact) <= 1.5 * exact * 0x1p-24);
  const Tensor columns = reshape(slice(x, 0, 0, 3'000'000), {1'000'000, 3});
  const std::vector<double> sums = values(sum(columns, {0})), right = expected(columns, {0}, total);
  for (size_t i = 0; i < 3; ++i) REQUIRE(std::fabs(sums[i] - right[i]) <= right[i] * 0x1p-24);
  // Two passes: a large mean does not drown the variance.
  REQUIRE(var(x).item<double>() == Approx(variance(values(x))).epsilon(1e-5));
  // 16-bit sums do not stop growing at 256.
  REQUIRE(sum(full({5000}, 1, bfloat16)).item<double>() == 4992);  // 5000 rounded to 8 bits
  REQUIRE(sum(full({60000}, 1, float16)).item<double>() == 60000);
  REQUIRE(sum(full({300}, true, bool_)).item<int64_t>() == 300);
  REQUIRE(sum(full({3}, std::numeric_limits<int32_t>::max(), int32)).item<int64_t>() == 3 * int64_t{2147483647});
}

TEST_CASE("NaN wins in max, min and their places; the first of equals stays", "[reduce]") {
  for (const DType dtype : {bfloat16, float32, float64}) {
    for (const int64_t n : {3, 40, 100'000}) {
      INFO(name(dtype) << ' ' << n);
      Tensor x = sample({n}, 4, dtype);
      fill(slice(x, 0, n / 2, n / 2 + 1), kNan);
      REQUIRE(std::isnan(max(x).item<double>()));
      REQUIRE(std::isnan(min(x).item<double>()));
      REQUIRE(argmax(x, 0).item<int64_t>() == n / 2);
      REQUIRE(argmin(x, 0).item<int64_t>() == n / 2);
      x = zeros({n, 3}, dtype);
      fill(slice(x, 0, n / 3, n), 1);
      REQUIRE(values(argmax(x, 0)) == std::vector<double>(3, static_cast<double>(n / 3)));
      REQUIRE(values(argmin(x, 0)) == std::vector<double>(3, 0));
      REQUIRE(argmax(contiguous(select(x, 1, 0)), 0).item<int64_t>() == n / 3);
    }
  }
  REQUIRE(max(vec({-kInf, -kInf})).item<double>() == -kInf);
  REQUIRE(argmax(vec({-kInf, -kInf}), 0).item<int64_t>() == 0);
  REQUIRE(max(from_vector<int64_t>({std::numeric_limits<int64_t>::min()})).item<int64_t>() ==
          std::numeric_limits<int64_t>::min());
  REQUIRE(values(argmax(reshape(vec({1, 5, 2, 7, 0, 7}), {2, 3}), 1)) == std::vector<double>{1, 0});
  REQUIRE(values(argmin(reshape(vec({1, 5, 2, 7, 0, 7}), {2, 3}), 0)) == std::vector<double>{0, 1, 0});
  REQUIRE((any(vec({0, kNan})).item<bool>() && !any(vec({0, -0.0})).item<bool>() && all(vec({kNan, -1})).item<bool>()));
}

TEST_CASE("logsumexp at infinity", "[reduce]") {
  const Tensor x = vec({-kInf, -kInf}).set_requires_grad();
  const Tensor y = logsumexp(x, {0});
  REQUIRE(y.item<double>() == -kInf);
  y.backward();
  REQUIRE(values(x.grad()) == std::vector<double>{0, 0});
  REQUIRE(logsumexp(vec({kInf, 0}), {0}).item<double>() == kInf);
  REQUIRE(logsumexp(vec({1000, 1000}), {0}).item<double>() == Approx(1000 + std::log(2.0)));
  REQUIRE(logsumexp(vec({-1000, -kInf}), {0}).item<double>() == -1000);
  REQUIRE(std::isnan(logsumexp(vec({kNan, 0}), {0}).item<double>()));
}

TEST_CASE("gradients of reductions are those of central differences, twice", "[reduce]") {
  using Function = std::function<Tensor(const Tensor&, const Dims&)>;
  const std::vector<std::pair<const char*, Function>> functions = {
      {"sum", [](const Tensor& x, const Dims& d) { return square(sum(x, d)); }},
      {"mean", [](const Tensor& x, const Dims& d) { return square(mean(x, d, true)); }},
      {"prod", [](const Tensor& x, const Dims& d) { return prod(x, d); }},
      {"var", [](const Tensor& x, const Dims& d) { return var(x, d); }},
      {"var 0", [](const Tensor& x, const Dims& d) { return var(x, d, 0, true); }},
      {"max", [](const Tensor& x, const Dims& d) { return square(max(x, d)); }},
      {"min", [](const Tensor& x, const Dims& d) { return square(min(x, d, true)); }},
      {"logsumexp",
       [](const Tensor& x, const Dims& d) {
         return logsumexp(x, d.empty() ? Dims{0, 1, 2} : d);
       }},
      {"norm", [](const Tensor& x, const Dims& d) { return norm(x, d); }}};
  for (const auto& [name, f] : functions)
    for (const Dims& dims : {Dims{}, Dims{1}, Dims{0, 2}, Dims{-1}}) {
      INFO(name << " over " << dims.size());
      const auto call = [&, &g = f](const std::vector<Tensor>& in) { return std::vector<Tensor>{g(in[0], dims)}; };
      REQUIRE(gradcheck(call, {leaf({2, 3, 4}, 9)}, {.second_order = true}));
    }
}

TEST_CASE("gradients where a formula divides by zero", "[reduce]") {
  const Tensor x = vec({2, 0, 3, 0, 5, 7}).set_requires_grad();
  prod(x).backward();
  REQUIRE(values(x.grad()) == std::vector<double>{0, 0, 0, 0, 0, 0});
  x.zero_grad();
  sum(prod(reshape(x, {2, 3}), {1})).backward();
  REQUIRE(values(x.grad()) == std::vector<double>{0, 6, 0, 35, 0, 0});
  x.zero_grad();
  sum(prod(reshape(x, {2, 3}), {0})).backward();  // columns (2, 0), (0, 5), (3, 7)
  REQUIRE(values(x.grad()) == std::vector<double>{0, 5, 7, 2, 0, 3});
  const auto f = [](const std::vector<Tensor>& in) { return std::vector<Tensor>{prod(mul(in[0], vec({1, 0, 1, 1})))}; };
  REQUIRE(gradcheck(f, {leaf({4}, 10, 0.5, 2)}, {.second_order = true}));
  const Tensor zero = zeros({3}, float64).set_requires_grad();
  norm(zero).backward();
  REQUIRE(values(zero.grad()) == std::vector<double>{0, 0, 0});
}

TEST_CASE("ties share the gradient of max evenly", "[reduce]") {
  const Tensor x = vec({1, 3, 3, 0, 3, 2}).set_requires_grad();
  max(x).backward();
  require_close(values(x.grad()), {0, 1 / 3.0, 1 / 3.0, 0, 1 / 3.0, 0}, 1e-15);
  x.zero_grad();
  sum(min(reshape(x, {2, 3}), {1})).backward();
  REQUIRE(values(x.grad()) == std::vector<double>{1, 0, 0, 1, 0, 0});
  const Tensor nan = vec({1, kNan}).set_requires_grad();
  max(nan).backward();
  REQUIRE(values(nan.grad()) == std::vector<double>{0, 1});
}

TEST_CASE("reductions have the same bits for any number of threads", "[reduce]") {
  const Tensor rows = sample({3, 250'000}, 1, float32), columns = sample({90'000, 7}, 2, float32),
               wide = sample({200, 3000}, 3, bfloat16);
  support::require_same_bits([&] {
    return std::vector<Tensor>{sum(rows),       sum(rows, {1}),     sum(columns, {0}),
                               sum(wide, {0}),  var(columns, {0}),  max(rows, {1}),
                               argmax(rows, 1), argmax(columns, 0), prod(add(mul(rows, 1e-6), 1)),
                               norm(wide, {1}), mean(wide)};
  });
}

TEST_CASE("a sum over 2^31 + 8 elements counts them all", "[.slow][reduce]") {
  const int64_t n = (int64_t{1} << 31) + 8;
  REQUIRE(sum(ones({n}, int8)).item<int64_t>() == n);
}
