// Batch normalisation: the formula, its traps (numerics 3 and 4), gradients of both orders, threads.
// Main entry: tag [norm].
#include <anello/anello.h>

#include "support.h"

using namespace anello;
using support::leaf;
using support::require_close;
using support::sample;
using support::values;

namespace {

using Doubles = std::vector<double>;
const std::vector<DType> kFloats = {float16, bfloat16, float32, float64};

/// Mean and biased variance by channel, two passes in float64.
struct Statistics {
  Doubles mean, var;
};
Statistics statistics(const Doubles& x, size_t channels) {
  Statistics s{Doubles(channels, 0), Doubles(channels, 0)};
  const double rows = static_cast<double>(x.size() / channels);
  for (size_t i = 0; i < x.size(); ++i) s.mean[i % channels] += x[i] / rows;
  for (size_t i = 0; i < x.size(); ++i) s.var[i % channels] += std::pow(x[i] - s.mean[i % channels], 2) / rows;
  return s;
}

Tensor normalise(const Tensor& x, const Tensor& weight = {}, const Tensor& bias = {}) {
  return batch_norm(x, weight, bias, {}, {}, true);
}

}  // namespace

TEST_CASE("batch norm follows its formula for any number of rows and channels", "[norm]") {
  for (DType dtype : kFloats) {
    const DType wide = accumulate_type(dtype);
    for (int64_t channels : {1, 3, 10, 16, 64, 100, 513})
      for (int64_t rows : {2, 5, 700}) {
        const Tensor x = sample({rows, 1, channels}, 1, dtype), dy = sample(x.shape(), 2, dtype);
        const Tensor weight = sample({channels}, 3, wide, 0.5, 2), bias = sample({channels}, 4, wide);
        const Tensor running_mean = sample({channels}, 5, wide), running_var = sample({channels}, 6, wide, 0.5, 2);
        const Doubles xv = values(x), gv = values(dy), w = values(weight), b = values(bias);
        const size_t c_count = static_cast<size_t>(channels);
        const double n = static_cast<double>(rows);
        const Statistics s = statistics(xv, c_count);
        Doubles y(xv.size()), dx(xv.size()), dw(c_count), db(c_count), mean = values(running_mean),
                                                                       var = values(running_var);
        for (size_t i = 0; i < xv.size(); ++i) {
          const size_t c = i % c_count;
          const double xhat = (xv[i] - s.mean[c]) / std::sqrt(s.var[c] + 1e-3);
          y[i] = xhat * w[c] + b[c];
          db[c] += gv[i];
          dw[c] += gv[i] * xhat;
        }
        for (size_t i = 0; i < xv.size(); ++i) {
          const size_t c = i % c_count;
          const double rstd = 1 / std::sqrt(s.var[c] + 1e-3), xhat = (xv[i] - s.mean[c]) * rstd;
          dx[i] = w[c] * rstd * (gv[i] - (db[c] + xhat * dw[c]) / n);
        }
        for (size_t c = 0; c < c_count; ++c) {
          mean[c] = 0.7 * mean[c] + 0.3 * s.mean[c];
          var[c] = 0.7 * var[c] + 0.3 * s.var[c] * n / (n - 1);
        }
        INFO(dtype << ", " << rows << " rows, " << channels << " channels");
        x.set_requires_grad(), weight.set_requires_grad(), bias.set_requires_grad();
        const Tensor out = batch_norm(x, weight, bias, running_mean, running_var, true, 0.3, 1e-3);
        REQUIRE(out.dtype() == dtype);
        out.backward(dy);
        const double exact = support::tolerance(wide), rounded = support::tolerance(dtype);
        require_close(values(out), y, 2 * rounded);
        require_close(values(running_mean), mean, exact);
        require_close(values(running_var), var, exact);
        require_close(values(weight.grad()), dw, 10 * exact);
        require_close(values(bias.grad()), db, 10 * exact);
        require_close(values(x.grad()), dx, 4 * rounded);
      }
  }
}

TEST_CASE("evaluation uses the running statistics and leaves them alone", "[norm]") {
  for (DType dtype : kFloats) {
    const DType wide = accumulate_type(dtype);
    const Tensor x = sample({50, 5}, 1, dtype).set_requires_grad(), mean = sample({5}, 2, wide);
    const Tensor var = sample({5}, 3, wide, 0.5, 2);
    const Doubles m = values(mean), v = values(var), xv = values(x);
    const uint64_t version = mean.version();
    const Tensor y = batch_norm(x, {}, {}, mean, var, false, 0.1, 1e-5);
    sum(y).backward();
    Doubles expected(xv.size()), slope(xv.size());
    for (size_t i = 0; i < xv.size(); ++i) {
      slope[i] = 1 / std::sqrt(v[i % 5] + 1e-5);
      expected[i] = (xv[i] - m[i % 5]) * slope[i];
    }
    require_close(values(y), expected, support::tolerance(dtype));
    require_close(values(x.grad()), slope, support::tolerance(dtype));
    REQUIRE(mean.version() == version);
    REQUIRE(values(mean) == m);
    REQUIRE(values(batch_norm(x, {}, {}, mean, var, false)).size() == 250);
  }
  // One row is fine here, and so is none.
  REQUIRE(batch_norm(ones({1, 2}), {}, {}, zeros({2}), ones({2}), false).shape() == Shape{1, 2});
  REQUIRE(batch_norm(ones({0, 2}), {}, {}, zeros({2}), ones({2}), false).shape() == Shape{0, 2});
  REQUIRE_THROWS_AS(batch_norm(ones({2, 2}), {}, {}, {}, {}, false), ValueError);
}

TEST_CASE("numerics 3: unbiased running variance, biased normalisation", "[norm]") {
  const Tensor x = from_vector<float>({1, 3}, {2, 1}), mean = zeros({1}), var = ones({1});
  const uint64_t version = mean.version();
  const Tensor y = batch_norm(x, {}, {}, mean, var, true, 0.1);
  require_close(values(y), {-1, 1}, 1e-5);
  require_close(values(mean), {0.2}, 1e-7);
  require_close(values(var), {1.1}, 1e-7);
  REQUIRE(mean.version() > version);
}

TEST_CASE("numerics 4: one value a channel raises, an empty batch changes nothing", "[norm]") {
  const Tensor mean = full({3}, 0.5), var = full({3}, 2.0);
  REQUIRE_THROWS_AS(batch_norm(ones({1, 3}), {}, {}, mean, var, true), ShapeError);
  REQUIRE_THROWS_WITH(batch_norm(ones({1, 1, 1, 3}), {}, {}, {}, {}, true),
                      contains_text("[batch_norm]") && contains_text("(1, 1, 1, 3)"));
  const Tensor weight = ones({3}).set_requires_grad(), bias = zeros({3}).set_requires_grad();
  const Tensor x = zeros({0, 4, 4, 3}).set_requires_grad();
  const Tensor y = batch_norm(x, weight, bias, mean, var, true);
  REQUIRE(y.shape() == x.shape());
  sum(y).backward();
  REQUIRE(values(mean) == Doubles{0.5, 0.5, 0.5});
  REQUIRE(values(var) == Doubles{2, 2, 2});
  REQUIRE(values(weight.grad()) == Doubles{0, 0, 0});
  REQUIRE(values(bias.grad()) == Doubles{0, 0, 0});
  REQUIRE(x.grad().shape() == x.shape());
  REQUIRE(batch_norm(zeros({4, 0}), {}, {}, {}, {}, true).shape() == Shape{4, 0});
}

TEST_CASE("a large mean does not cancel the variance", "[norm]") {
  // In float32, the mean of squares minus the square of the mean would be noise here.
  const int64_t rows = 20000;
  for (int64_t channels : {1, 3, 64}) {
    const Tensor x = copy_as(sample({rows, channels}, 7, float64, -1, 1) + 4096.0, float32);
    const Statistics s = statistics(values(x), static_cast<size_t>(channels));
    const Tensor mean = zeros({channels}), var = zeros({channels});
    batch_norm(x, {}, {}, mean, var, true, 1.0);
    const double correction = static_cast<double>(rows) / static_cast<double>(rows - 1);
    for (int64_t c = 0; c < channels; ++c) {
      const size_t i = static_cast<size_t>(c);
      REQUIRE(values(mean)[i] == Approx(s.mean[i]).epsilon(1e-7));
      REQUIRE(values(var)[i] == Approx(s.var[i] * correction).epsilon(1e-6));
    }
  }
  // A constant channel has variance 0, whatever the constant.
  const Tensor y = batch_norm(full({1000, 3}, 12345.678), ones({3}), full({3}, 0.25), {}, {}, true);
  REQUIRE(values(y) == Doubles(3000, 0.25));
}

TEST_CASE("batch norm's gradients, first and second order", "[norm]") {
  GradcheckOptions options;
  options.second_order = true;
  const Tensor scale = sample({6, 3}, 9);
  const auto f = [&](bool training) {
    return [&, training](const std::vector<Tensor>& in) {
      const Tensor mean = sample({3}, 10), var = sample({3}, 11, float64, 0.5, 1.5);
      return std::vector<Tensor>{batch_norm(in[0], in[1], in[2], mean, var, training) * scale};
    };
  };
  const std::vector<Tensor> inputs = {leaf({6, 3}, 1), leaf({3}, 2), leaf({3}, 3)};
  REQUIRE(gradcheck(f(true), inputs, options));
  REQUIRE(gradcheck(f(false), inputs, options));
  const auto plain = [&](const std::vector<Tensor>& in) { return std::vector<Tensor>{normalise(in[0]) * scale}; };
  REQUIRE(gradcheck(plain, {leaf({6, 3}, 4)}, options));
  // Only the parameters.
  const Tensor fixed = sample({6, 3}, 5);
  const auto parameters = [&](const std::vector<Tensor>& in) {
    return std::vector<Tensor>{normalise(fixed, in[0], in[1]) * scale};
  };
  REQUIRE(gradcheck(parameters, {leaf({3}, 6), leaf({3}, 7)}, options));
}

TEST_CASE("the fused backward agrees with the composite one", "[norm]") {
  for (DType dtype : kFloats) {
    const Tensor x = sample({40, 5}, 1, dtype).set_requires_grad(), dy = sample({40, 5}, 2, dtype);
    const Tensor weight = sample({5}, 3, accumulate_type(dtype)).set_requires_grad();
    const Tensor y = normalise(x, weight, zeros({5}, accumulate_type(dtype)));
    const auto fused = grad({y}, {x, weight}, {dy}, true), composite = grad({y}, {x, weight}, {dy}, true, true);
    require_close(fused[0], composite[0], 2 * support::tolerance(dtype));
    require_close(fused[1], composite[1], 10 * support::tolerance(accumulate_type(dtype)));
  }
}

TEST_CASE("other layouts and parameter dtypes", "[norm]") {
  const Tensor x = sample({3, 8}, 1, float32), strided = transpose(x, 0, 1);
  require_close(normalise(strided), normalise(contiguous_data(strided)), 0);
  // A model in 16 bits: parameters and running statistics too; computed in float32.
  const Tensor half = sample({64, 3}, 2, bfloat16), mean = zeros({3}, bfloat16), var = ones({3}, bfloat16);
  const Tensor weight = full({3}, 2, bfloat16).set_requires_grad();
  const Tensor y = batch_norm(half, weight, {}, mean, var, true, 1.0);
  sum(y).backward();
  REQUIRE(weight.grad().dtype() == bfloat16);
  require_close(values(mean), statistics(values(half), 3).mean, support::tolerance(bfloat16));
}

TEST_CASE("batch norm gives the same bits for any number of threads", "[norm]") {
  for (DType dtype : kFloats)
    for (int64_t channels : {3, 16, 130}) {
      const DType wide = accumulate_type(dtype);
      const Tensor x = sample({5000, channels}, 1, dtype), dy = sample(x.shape(), 2, dtype);
      support::require_same_bits([&] {
        const Tensor in = clone(x).set_requires_grad(), weight = ones({channels}, wide).set_requires_grad();
        const Tensor mean = zeros({channels}, wide), var = ones({channels}, wide);
        const Tensor y = batch_norm(in, weight, {}, mean, var, true);
        y.backward(dy);
        return std::vector<Tensor>{y.detach(), mean, var, in.grad(), weight.grad()};
      });
    }
}

TEST_CASE("batch norm names what does not fit", "[norm]") {
  const Tensor x = ones({4, 3});
  REQUIRE_THROWS_WITH(batch_norm(x, ones({4}), {}, {}, {}, true),
                      contains_text("weight") && contains_text("(4,)") && contains_text("(4, 3)"));
  REQUIRE_THROWS_AS(batch_norm(x, {}, {}, zeros({2}), ones({3}), true), ShapeError);
  REQUIRE_THROWS_AS(batch_norm(copy_as(x, int32), {}, {}, {}, {}, true), DTypeError);
  REQUIRE_THROWS_AS(batch_norm(full({}, 1.0), {}, {}, {}, {}, true), ShapeError);
}
