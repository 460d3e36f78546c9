// The fused optimizer kernels against their formulas, written out one element at a time.
// Main entry: tag [optim_kernels].
#include <anello/core/kernels/optim.h>
#include <anello/core/registry.h>

#include <limits>

#include "support.h"

using namespace anello;
using support::require_close;
using support::sample;
using support::values;

namespace {

/// Parameters of several sizes: empty, one, odd, more than a block, more than a task.
const std::vector<int64_t> kSizes = {0, 1, 7, 1500, 33001};

struct List {
  std::vector<Tensor> params, grads, states[3];
  std::vector<OptimTensor> tensors;
};
List make_list(DType dtype, DType grad_dtype, int64_t step, int states) {
  List list;
  for (size_t i = 0; i < kSizes.size(); ++i) {
    list.params.push_back(sample({kSizes[i]}, 10 + i, dtype));
    list.grads.push_back(sample({kSizes[i]}, 20 + i, grad_dtype));
    OptimTensor t{list.params[i].raw_data(), list.grads[i].raw_data(), {nullptr, nullptr, nullptr}, kSizes[i], step};
    for (int s = 0; s < states; ++s) {
      list.states[s].push_back(
          sample({kSizes[i]}, 30 + i + 10 * static_cast<uint64_t>(s), accumulate_type(dtype), 0.1, 1));
      t.state[s] = list.states[s][i].raw_data();
    }
    list.tensors.push_back(t);
  }
  return list;
}
int64_t count(const List& list) { return static_cast<int64_t>(list.tensors.size()); }

const std::vector<DType> kFloats = {float16, bfloat16, float32, float64};

}  // namespace

TEST_CASE("sgd: momentum, dampening, Nesterov, weight decay, maximize", "[optim_kernels]") {
  for (DType dtype : kFloats)
    for (int64_t step : {1, 2})
      for (double momentum : {0.0, 0.9})
        for (bool nesterov : {false, true})
          for (bool maximize : {false, true}) {
            const double lr = 0.1, dampening = nesterov ? 0 : 0.3, decay = 0.01;
            List list = make_list(dtype, dtype, step, 1);
            std::vector<std::vector<double>> p, v;
            for (size_t i = 0; i < kSizes.size(); ++i) {
              p.push_back(values(list.params[i]));
              v.push_back(values(list.states[0][i]));
              const auto grad = values(list.grads[i]);
              for (size_t k = 0; k < grad.size(); ++k) {
                const double g = (maximize ? -grad[k] : grad[k]) + decay * p[i][k];
                if (momentum == 0) {
                  p[i][k] -= lr * g;
                  continue;
                }
                v[i][k] = step == 1 ? g : momentum * v[i][k] + (1 - dampening) * g;
                p[i][k] -= lr * (nesterov ? g + momentum * v[i][k] : v[i][k]);
              }
            }
            launch<kSgd>(cpu, dtype,
                         {list.tensors.data(), count(list), dtype, lr, momentum, dampening, decay, nesterov, maximize});
            for (size_t i = 0; i < kSizes.size(); ++i) {
              require_close(values(list.params[i]), p[i], support::tolerance(dtype));
              require_close(values(list.states[0][i]), v[i], support::tolerance(accumulate_type(dtype)));
            }
          }
}

TEST_CASE("adam and adamw: bias correction, amsgrad, both kinds of decay", "[optim_kernels]") {
  for (DType dtype : kFloats)
    for (int64_t step : {1, 5})
      for (bool decoupled : {false, true})
        for (bool amsgrad : {false, true}) {
          const double lr = 0.01, beta1 = 0.9, beta2 = 0.99, eps = 1e-8, decay = 0.1;
          List list = make_list(dtype, float32, step, amsgrad ? 3 : 2);
          std::vector<std::vector<double>> p;
          for (size_t i = 0; i < kSizes.size(); ++i) {
            p.push_back(values(list.params[i]));
            const auto grad = values(list.grads[i]), m = values(list.states[0][i]), v = values(list.states[1][i]);
            const auto u = amsgrad ? values(list.states[2][i]) : v;
            for (size_t k = 0; k < grad.size(); ++k) {
              if (decoupled) p[i][k] *= 1 - lr * decay;
              const double g = grad[k] + (decoupled ? 0 : decay * p[i][k]);
              const double m1 = beta1 * m[k] + (1 - beta1) * g, v1 = beta2 * v[k] + (1 - beta2) * g * g;
              const double u1 = amsgrad ? std::max(u[k], v1) : v1, t = static_cast<double>(step);
              p[i][k] -= lr / (1 - std::pow(beta1, t)) * m1 / (std::sqrt(u1 / (1 - std::pow(beta2, t))) + eps);
            }
          }
          launch<kAdam>(
              cpu, dtype,
              {list.tensors.data(), count(list), float32, lr, beta1, beta2, eps, decay, decoupled, amsgrad, false});
          for (size_t i = 0; i < kSizes.size(); ++i)
            require_close(values(list.params[i]), p[i], support::tolerance(dtype));
        }
}

TEST_CASE("numerics 12: adam's first step, and no NaN in float16", "[optim_kernels]") {
  const auto first_change = [](DType dtype, double grad) {
    const Tensor p = from_vector<double>({0}), g = from_vector<double>({grad});
    const Tensor param = copy_as(p, dtype), gradient = copy_as(g, dtype);
    const Tensor m = copy_as(p, accumulate_type(dtype)), v = copy_as(p, accumulate_type(dtype));
    const OptimTensor t{param.raw_data(), gradient.raw_data(), {m.raw_data(), v.raw_data(), nullptr}, 1, 1};
    launch<kAdam>(cpu, dtype, {&t, 1, dtype, 1e-3, 0.9, 0.999, 1e-8, 0, false, false, false});
    return param.item<double>();
  };
  REQUIRE(first_change(float64, 0.1) == Approx(-1e-3).epsilon(1e-6));
  REQUIRE(first_change(float32, 0.1) == Approx(-1e-3).epsilon(1e-5));
  for (DType dtype : kFloats) REQUIRE(first_change(dtype, 0) == 0);
  // A gradient whose square is below float16's and bfloat16's smallest still moves the parameter by lr.
  REQUIRE(first_change(float16, 1e-4) == Approx(-1e-3).epsilon(2e-3));
}

TEST_CASE("lerp averages and is exact at both ends", "[optim_kernels]") {
  for (DType dtype : kFloats)
    for (double weight : {0.0, 0.001, 0.5, 0.9, 1.0}) {
      List list = make_list(dtype, float64, 1, 0);
      std::vector<std::vector<double>> expected;
      for (size_t i = 0; i < kSizes.size(); ++i) {
        expected.push_back(values(list.params[i]));
        const auto source = values(list.grads[i]);
        for (size_t k = 0; k < source.size(); ++k) expected[i][k] += weight * (source[k] - expected[i][k]);
      }
      launch<kLerp>(cpu, dtype, {list.tensors.data(), count(list), float64, weight});
      for (size_t i = 0; i < kSizes.size(); ++i) {
        const double allowed = weight == 0 ? 0 : support::tolerance(dtype);
        require_close(values(list.params[i]), expected[i], allowed);
        if (weight == 1) {
          const Tensor exact = copy_as(copy_as(list.grads[i], accumulate_type(dtype)), dtype);
          require_close(values(list.params[i]), values(exact), 0);
        }
      }
    }
}

TEST_CASE("sum of squares and scale over a list", "[optim_kernels]") {
  for (DType dtype : kFloats) {
    List list = make_list(dtype, dtype, 1, 0);
    std::vector<double> sums(kSizes.size(), -1);
    launch<kSumSquares>(cpu, dtype, {list.tensors.data(), count(list), sums.data()});
    for (size_t i = 0; i < kSizes.size(); ++i) {
      double expected = 0;
      for (double g : values(list.grads[i])) expected += g * g;
      REQUIRE(sums[i] == Approx(expected).epsilon(1e-12));
    }
    std::vector<std::vector<double>> expected;
    for (const Tensor& p : list.params) {
      expected.push_back(values(p));
      for (double& v : expected.back()) v *= 0.25;
    }
    launch<kScale>(cpu, dtype, {list.tensors.data(), count(list), 0.25});
    for (size_t i = 0; i < kSizes.size(); ++i)
      require_close(values(list.params[i]), expected[i], support::tolerance(dtype));
  }
  // Squares that overflow float32 do not overflow the sum.
  const Tensor large = from_vector<float>({1e30f, 1e30f});
  const OptimTensor t{nullptr, large.raw_data(), {}, 2, 1};
  double sum = 0;
  launch<kSumSquares>(cpu, float32, {&t, 1, &sum});
  REQUIRE(sum == Approx(2e60).epsilon(1e-6));
}

TEST_CASE("optimizer kernels give the same bits for any number of threads", "[optim_kernels]") {
  for (DType dtype : kFloats) {
    support::require_same_bits([&] {
      List list = make_list(dtype, dtype, 2, 3);
      launch<kSgd>(cpu, dtype, {list.tensors.data(), count(list), dtype, 0.1, 0.9, 0, 0.01, true, false});
      launch<kAdam>(cpu, dtype,
                    {list.tensors.data(), count(list), dtype, 0.01, 0.9, 0.99, 1e-8, 0.1, true, true, false});
      std::vector<double> sums(kSizes.size());
      launch<kSumSquares>(cpu, dtype, {list.tensors.data(), count(list), sums.data()});
      std::vector<Tensor> results = list.params;
      results.push_back(from_vector(sums));
      return results;
    });
  }
}

TEST_CASE("an integer gradient is refused", "[optim_kernels]") {
  List list = make_list(float32, float32, 1, 1);
  REQUIRE_THROWS_AS(launch<kSgd>(cpu, float32, {list.tensors.data(), count(list), int32, 0.1, 0.9, 0, 0, false, false}),
                    DTypeError);
}
