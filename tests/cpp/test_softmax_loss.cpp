// Softmax and losses: formulas, traps (numerics 1, 2 and 8), gradients of both orders, threads.
// Main entry: tag [softmax_loss].
#include <anello/anello.h>

#include <limits>

#include "support.h"

using namespace anello;
using support::leaf;
using support::require_close;
using support::sample;
using support::values;

namespace {

using Doubles = std::vector<double>;
const std::vector<DType> kFloats = {float16, bfloat16, float32, float64};
const double kInf = std::numeric_limits<double>::infinity();
const double kNan = std::numeric_limits<double>::quiet_NaN();

GradcheckOptions second_order() {
  GradcheckOptions options;
  options.second_order = true;
  return options;
}
void check_gradients(const std::function<Tensor(const std::vector<Tensor>&)>& f, const std::vector<Tensor>& inputs) {
  REQUIRE(gradcheck([&](const std::vector<Tensor>& in) { return std::vector<Tensor>{f(in)}; }, inputs, second_order()));
}

/// log p of a row, in float64.
Doubles log_probabilities(const double* x, size_t n) {
  double top = -kInf, total = 0;
  for (size_t c = 0; c < n; ++c) top = std::max(top, x[c]);
  for (size_t c = 0; c < n; ++c) total += std::exp(x[c] - top);
  Doubles out(n);
  for (size_t c = 0; c < n; ++c) out[c] = x[c] - top - std::log(total);
  return out;
}

/// The documented formula of cross-entropy with labels: each row's loss and its share of the mean's divisor.
struct Reference {
  Doubles rows;
  double sum = 0, divisor = 0;
};
Reference reference(const Tensor& logits, const std::vector<int64_t>& labels, Doubles weight, double smoothing,
                    int64_t ignore_index) {
  Reference r;
  const size_t n = static_cast<size_t>(logits.shape().back());
  if (weight.empty()) weight.assign(n, 1);
  const Doubles x = values(logits);
  for (size_t i = 0; i < labels.size(); ++i) {
    double loss = 0;
    if (labels[i] != ignore_index) {
      const Doubles log_p = log_probabilities(&x[i * n], n);
      const size_t y = static_cast<size_t>(labels[i]);
      loss = -(1 - smoothing) * weight[y] * log_p[y];
      for (size_t c = 0; c < n; ++c) loss -= smoothing / static_cast<double>(n) * weight[c] * log_p[c];
      r.divisor += weight[y];
    }
    r.rows.push_back(loss);
    r.sum += loss;
  }
  return r;
}

CrossEntropyOptions options(Reduction reduction, double smoothing = 0, const Tensor& weight = {},
                            int64_t ignore = -100) {
  return {weight, ignore, smoothing, reduction};
}

}  // namespace

TEST_CASE("softmax and log_softmax along any dim, every float dtype", "[softmax_loss]") {
  for (DType dtype : kFloats)
    for (const Shape& shape : {Shape{3, 1}, Shape{5, 37}, Shape{2, 3, 300}, Shape{4, 70, 2}, Shape{2, 5, 150}})
      for (int dim = 0; dim < shape.size(); ++dim) {
        const Tensor x = sample(shape, 1, dtype, -4, 4);
        // Bring dim last, where the formula is plain.
        const Tensor last = contiguous(transpose(x, dim, -1));
        const Doubles v = values(last);
        const size_t n = static_cast<size_t>(shape[dim]);
        Doubles log_p(v.size()), p(v.size());
        for (size_t at = 0; at < v.size(); at += n) {
          const Doubles row = log_probabilities(&v[at], n);
          for (size_t c = 0; c < n; ++c) log_p[at + c] = row[c], p[at + c] = std::exp(row[c]);
        }
        INFO(dtype << " " << shape << " along " << dim);
        require_close(values(transpose(softmax(x, dim), dim, -1)), p, support::tolerance(dtype));
        require_close(values(transpose(log_softmax(x, dim - shape.size()), dim, -1)), log_p, support::tolerance(dtype));
      }
}

TEST_CASE("numerics 1: large values, infinities and NaN", "[softmax_loss]") {
  for (DType dtype : {float32, float64}) {
    const auto row = [&](Doubles v) { return copy_as(from_vector(v), dtype); };
    require_close(values(log_softmax(row({1000, 1000, 0}), 0)),
                  {-0.693147180559945, -0.693147180559945, -1000.693147180559945}, support::tolerance(dtype));
    require_close(values(softmax(row({0, -kInf, 0}), 0)), {0.5, 0, 0.5}, 0);
    require_close(values(log_softmax(row({0, -kInf}), 0)), {0, -kInf}, 0);
    require_close(values(softmax(row({-kInf, -kInf}), 0)), {kNan, kNan}, 0);
    require_close(values(softmax(row({kNan, 1}), 0)), {kNan, kNan}, 0);
    require_close(values(softmax(row({kInf, 1}), 0)), {kNan, kNan}, 0);
    require_close(values(softmax(row({-1e4, 1e4}), 0)), {0, 1}, 0);
  }
  REQUIRE(softmax(zeros({0, 3}), 1).shape() == Shape{0, 3});
  REQUIRE(softmax(zeros({3, 0}), 1).shape() == Shape{3, 0});
  REQUIRE(values(softmax(full({}, 5.0), 0)) == Doubles{1});
  REQUIRE_THROWS_AS(softmax(ones({2, 2}), 2), ShapeError);
  REQUIRE_THROWS_AS(softmax(ones({2}, int32), 0), DTypeError);
}

TEST_CASE("gradients of softmax, fused and composite", "[softmax_loss]") {
  const Tensor scale = sample({2, 3, 4}, 5);
  for (int dim : {0, 1, 2}) {
    check_gradients([&](const auto& in) { return softmax(in[0], dim) * scale; }, {leaf({2, 3, 4}, 1)});
    check_gradients([&](const auto& in) { return log_softmax(in[0], dim) * scale; }, {leaf({2, 3, 4}, 2)});
  }
  for (DType dtype : kFloats)
    for (int dim : {0, 1}) {
      const Tensor x = sample({33, 140}, 1, dtype).set_requires_grad(), dy = sample({33, 140}, 2, dtype);
      for (const Tensor& y : {softmax(x, dim), log_softmax(x, dim)}) {
        const Tensor fused = grad({y}, {x}, {dy}, true)[0], composite = grad({y}, {x}, {dy}, true, true)[0];
        require_close(fused, composite, 2 * support::tolerance(dtype));
      }
    }
}

TEST_CASE("softmax gives the same bits for any number of threads", "[softmax_loss]") {
  for (DType dtype : kFloats) {
    const Tensor x = sample({300, 200}, 1, dtype), dy = sample({300, 200}, 2, dtype);
    support::require_same_bits([&] {
      std::vector<Tensor> results;
      for (int dim : {0, 1}) {
        const Tensor in = clone(x).set_requires_grad(), y = log_softmax(in, dim) * softmax(in, dim);
        y.backward(dy);
        results.push_back(y.detach());
        results.push_back(in.grad());
      }
      return results;
    });
  }
}

TEST_CASE("cross-entropy follows its formula in every combination", "[softmax_loss]") {
  const std::vector<int64_t> labels = {0, 6, -100, 3, 2, 2, -100, 5, 1};
  for (DType dtype : kFloats)
    for (double smoothing : {0.0, 0.1})
      for (bool weighted : {false, true})
        for (int64_t ignore : {int64_t{-100}, int64_t{2}}) {
          std::vector<int64_t> y = labels;
          if (ignore == 2) std::replace(y.begin(), y.end(), int64_t{-100}, int64_t{4});
          const Tensor logits = sample({9, 7}, 1, dtype, -5, 5), target = from_vector(y);
          const Tensor weight = weighted ? sample({7}, 2, float64, 0.2, 2) : Tensor();
          const Reference r = reference(logits, y, weighted ? values(weight) : Doubles(), smoothing, ignore);
          const auto loss = [&](Reduction how) {
            return values(cross_entropy(logits, target, options(how, smoothing, weight, ignore)));
          };
          INFO(dtype << ", smoothing " << smoothing << ", weighted " << weighted << ", ignore " << ignore);
          const double allowed = support::tolerance(dtype);
          require_close(loss(Reduction::none), r.rows, allowed);
          require_close(loss(Reduction::sum), {r.sum}, allowed);
          require_close(loss(Reduction::mean), {r.sum / r.divisor}, allowed);
          // The same through log-probabilities.
          const Tensor log_p = log_softmax(cast(logits, float64), -1);
          require_close(values(nll_loss(log_p, target, options(Reduction::mean, smoothing, weight, ignore))),
                        {r.sum / r.divisor}, 1e-9);
        }
}

TEST_CASE("numerics 2: ignored rows count neither in the sum nor in the mean", "[softmax_loss]") {
  const Tensor logits = from_vector<double>({1, 2, 3, .4}, {2, 2});
  const Tensor loss = cross_entropy(logits, from_vector<int64_t>({-100, 1}), options(Reduction::mean, 0.1));
  REQUIRE(loss.shape() == Shape{});
  REQUIRE(loss.item<double>() == Approx(2.541645).epsilon(1e-6));
}

TEST_CASE("numerics 8: nothing counted gives loss 0 with gradient 0", "[softmax_loss]") {
  for (DType dtype : kFloats)
    for (Reduction how : {Reduction::mean, Reduction::sum, Reduction::none}) {
      const Tensor logits = sample({3, 4}, 1, dtype).set_requires_grad();
      const Tensor loss = cross_entropy(logits, full({3}, -100, int64), options(how, 0.1));
      REQUIRE(values(loss) == Doubles(how == Reduction::none ? 3 : 1, 0));
      sum(loss).backward();
      REQUIRE(values(logits.grad()) == Doubles(12, 0));
    }
  const Tensor none = zeros({0, 4}).set_requires_grad();
  const Tensor loss = cross_entropy(none, zeros({0}, int64));
  REQUIRE(loss.item<double>() == 0);
  loss.backward();
  REQUIRE(none.grad().shape() == Shape{0, 4});
}

TEST_CASE("probability targets", "[softmax_loss]") {
  for (DType dtype : kFloats) {
    const Tensor logits = sample({5, 20}, 1, dtype), p = softmax(sample({5, 20}, 2, dtype), -1);
    const Tensor weight = sample({20}, 3, float32, 0.5, 2);
    const Doubles x = values(logits), q = values(p), w = values(weight);
    double expected = 0;
    for (size_t i = 0; i < 5; ++i) {
      const Doubles log_p = log_probabilities(&x[i * 20], 20);
      for (size_t c = 0; c < 20; ++c) expected -= w[c] * (0.9 * q[i * 20 + c] + 0.1 / 20) * log_p[c] / 5;
    }
    require_close(values(cross_entropy(logits, p, options(Reduction::mean, 0.1, weight))), {expected},
                  support::tolerance(dtype));
  }
  // One-hot probabilities are labels, and a probability of 0 of an impossible class is not NaN.
  const Tensor logits = from_vector<double>({0.5, -kInf, 1}, {1, 3}).set_requires_grad();
  const Tensor loss = cross_entropy(logits, one_hot(from_vector<int64_t>({2}), 3, float64));
  REQUIRE(loss.item<double>() == cross_entropy(logits, from_vector<int64_t>({2})).item<double>());
  loss.backward();
  REQUIRE(values(logits.grad())[1] == 0);
  REQUIRE(cross_entropy(sample({2, 3}, 1, bfloat16), sample({2, 3}, 2, float32, 0, 1)).dtype() == float32);
}

TEST_CASE("a small loss is not lost beside large logits", "[softmax_loss]") {
  // log(1 + e^-10) = 4.5e-5 is below float32's step at 1000.
  const Tensor logits = from_vector<float>({1000, 990}, {1, 2}).set_requires_grad();
  const Tensor loss = cross_entropy(logits, zeros({1}, int64));
  REQUIRE(loss.item<double>() == Approx(4.539889921686465e-05).epsilon(5e-3));
  loss.backward();
  REQUIRE(values(logits.grad())[1] == Approx(4.539786870243439e-05).epsilon(1e-5));
}

TEST_CASE("gradients of cross-entropy and nll_loss, first and second order", "[softmax_loss]") {
  const Tensor labels = from_vector<int64_t>({2, -100, 0, 1}), weight = sample({3}, 4, float64, 0.5, 2);
  const Tensor rows = sample({4}, 5);
  for (Reduction how : {Reduction::mean, Reduction::sum, Reduction::none})
    for (double smoothing : {0.0, 0.2}) {
      const CrossEntropyOptions o = options(how, smoothing, weight);
      const Tensor scale = how == Reduction::none ? rows : full({}, 1.5, float64);
      check_gradients([&](const auto& in) { return cross_entropy(in[0], labels, o) * scale; }, {leaf({4, 3}, 1)});
      check_gradients([&](const auto& in) { return square(nll_loss(in[0], labels, o)) * scale; }, {leaf({4, 3}, 2)});
      check_gradients([&](const auto& in) { return cross_entropy(in[0], in[1], o) * scale; },
                      {leaf({4, 3}, 1), leaf({4, 3}, 3, 0.1, 1)});
    }
  for (DType dtype : kFloats) {
    const Tensor x = sample({50, 40}, 1, dtype).set_requires_grad();
    const Tensor p = softmax(sample({50, 40}, 2, dtype), -1);
    std::vector<int64_t> y(50);
    for (size_t i = 0; i < y.size(); ++i) y[i] = i % 9 == 0 ? -100 : static_cast<int64_t>(i % 40);
    for (const Tensor& loss : {cross_entropy(x, from_vector(y), options(Reduction::mean, 0.1)),
                               cross_entropy(x, p, options(Reduction::mean, 0.1)), nll_loss(x, from_vector(y))}) {
      const Tensor fused = grad({loss}, {x}, {}, true)[0], composite = grad({loss}, {x}, {}, true, true)[0];
      require_close(fused * 50.0, composite * 50.0, 2 * support::tolerance(dtype));
    }
  }
}

TEST_CASE("more dims: one label a row, classes last", "[softmax_loss]") {
  const Tensor logits = sample({2, 3, 4}, 1), labels = from_vector<int64_t>({0, 1, 2, 3, 0, 1}, {2, 3});
  const Tensor each = cross_entropy(logits, labels, options(Reduction::none));
  REQUIRE(each.shape() == Shape{2, 3});
  require_close(reshape(each, {6}),
                cross_entropy(reshape(logits, {6, 4}), reshape(labels, {6}), options(Reduction::none)), 0);
  REQUIRE(cross_entropy(sample({4}, 2), full({}, 1, int32)).shape() == Shape{});
}

TEST_CASE("cross-entropy says what is wrong", "[softmax_loss]") {
  const Tensor x = ones({3, 10});
  REQUIRE_THROWS_AS(cross_entropy(x, from_vector<int64_t>({0, 12, 1})), IndexError);
  REQUIRE_THROWS_WITH(cross_entropy(x, from_vector<int64_t>({0, 12, 1})),
                      contains_text("[cross_entropy] label 12 at row 1") && contains_text("[0, 10)"));
  REQUIRE_THROWS_WITH(nll_loss(x, from_vector<int64_t>({0, -1, 1})), contains_text("[nll_loss] label -1"));
  REQUIRE_THROWS_AS(cross_entropy(x, zeros({4}, int64)), ShapeError);
  REQUIRE_THROWS_AS(cross_entropy(x, zeros({3, 10}, int64)), ShapeError);
  REQUIRE_THROWS_AS(cross_entropy(x, zeros({3})), ShapeError);  // float labels are not labels
  REQUIRE_THROWS_AS(cross_entropy(zeros({3, 10}, int64), zeros({3}, int64)), DTypeError);
  REQUIRE_THROWS_AS(cross_entropy(x, zeros({3}, bool_)), DTypeError);
  REQUIRE_THROWS_AS(cross_entropy(x, zeros({3}, int64), options(Reduction::mean, 1.5)), ValueError);
  REQUIRE_THROWS_AS(cross_entropy(x, zeros({3}, int64), options(Reduction::mean, 0, ones({9}))), ShapeError);
  REQUIRE_THROWS_AS(cross_entropy(x, zeros({3}, int64), options(Reduction::mean, 0, ones({10}).set_requires_grad())),
                    ValueError);
  REQUIRE(reduction_from_name("sum") == Reduction::sum);
  REQUIRE_THROWS_AS(reduction_from_name("men"), ValueError);
  REQUIRE_THROWS_WITH(reduction_from_name("men"), contains_text("'mean'"));
}

TEST_CASE("cross-entropy gives the same bits for any number of threads", "[softmax_loss]") {
  std::vector<int64_t> labels(3000);
  for (size_t i = 0; i < labels.size(); ++i) labels[i] = static_cast<int64_t>(i % 50);
  for (DType dtype : kFloats) {
    const Tensor x = sample({3000, 50}, 1, dtype), target = from_vector(labels);
    support::require_same_bits([&] {
      const Tensor in = clone(x).set_requires_grad(), loss = cross_entropy(in, target, options(Reduction::mean, 0.1));
      loss.backward();
      return std::vector<Tensor>{loss.detach(), in.grad()};
    });
  }
}

TEST_CASE("mse, l1 and binary cross-entropy", "[softmax_loss]") {
  for (DType dtype : kFloats) {
    const Tensor x = sample({4, 5}, 1, dtype), t = sample({4, 5}, 2, dtype, 0, 1);
    const Doubles a = values(x), b = values(t);
    Doubles square_error, distance, entropy;
    for (size_t i = 0; i < a.size(); ++i) {
      square_error.push_back((a[i] - b[i]) * (a[i] - b[i]));
      distance.push_back(std::abs(a[i] - b[i]));
      entropy.push_back(b[i] * std::log1p(std::exp(-a[i])) + (1 - b[i]) * std::log1p(std::exp(a[i])));
    }
    const auto check_loss = [&](auto&& loss, const Doubles& each) {
      double total = 0;
      for (double v : each) total += v;
      require_close(values(loss(Reduction::none)), each, support::tolerance(dtype));
      require_close(values(loss(Reduction::sum)), {total}, support::tolerance(dtype));
      require_close(values(loss(Reduction::mean)), {total / 20}, support::tolerance(dtype));
      REQUIRE(loss(Reduction::mean).dtype() == dtype);
    };
    check_loss([&](Reduction r) { return mse_loss(x, t, r); }, square_error);
    check_loss([&](Reduction r) { return l1_loss(x, t, r); }, distance);
    check_loss([&](Reduction r) { return binary_cross_entropy_with_logits(x, t, r); }, entropy);
  }
  // No overflow, and no cancellation on the right side of a large logit.
  const Tensor large = from_vector<float>({100, -100, 20}), t = from_vector<float>({1, 0, 1});
  const Doubles loss = values(binary_cross_entropy_with_logits(large, t, Reduction::none));
  REQUIRE(loss[0] == Approx(3.7200759760208356e-44).margin(2e-45));
  REQUIRE(loss[2] == Approx(2.061153620314381e-09).epsilon(1e-5));
  // The gradient at 0 is sigmoid(0) - t.
  const Tensor zero = zeros({2}, float64).set_requires_grad();
  binary_cross_entropy_with_logits(zero, from_vector<double>({0, 1}), Reduction::sum).backward();
  REQUIRE(values(zero.grad()) == Doubles{0.5, -0.5});
  const std::vector<Tensor> inputs = {leaf({3, 2}, 1), leaf({3, 2}, 2, 0.1, 0.9)};
  check_gradients([](const auto& in) { return mse_loss(in[0], in[1]); }, inputs);
  check_gradients([](const auto& in) { return l1_loss(in[0], in[1], Reduction::sum); }, inputs);
  check_gradients([](const auto& in) { return binary_cross_entropy_with_logits(in[0], in[1]); }, inputs);
  REQUIRE_THROWS_WITH(mse_loss(ones({3, 1}), ones({3})), contains_text("(3, 1)") && contains_text("(3,)"));
}
