// Activation layers: a function of autograd/functions.h as a module, with its options kept.
// Main entry: ReLU, GELU, SiLU, ...
#pragma once

#include <anello/layers/module.h>

#include <string>
#include <string_view>

namespace anello::nn {

/// max(x, 0); NaN stays NaN.
class ReLU : public Module {
 public:
  Tensor forward(const Tensor& x) override;
  std::string class_name() const override { return "ReLU"; }
};

/// x above 0, negative_slope * x below.
class LeakyReLU : public Module {
 public:
  explicit LeakyReLU(double negative_slope = 0.01) : negative_slope_(negative_slope) {}
  Tensor forward(const Tensor& x) override;
  std::string class_name() const override { return "LeakyReLU"; }
  std::string extra_repr() const override;

 private:
  double negative_slope_;
};

/// x above 0, alpha (exp(x) - 1) below. arXiv 1511.07289.
class ELU : public Module {
 public:
  explicit ELU(double alpha = 1.0) : alpha_(alpha) {}
  Tensor forward(const Tensor& x) override;
  std::string class_name() const override { return "ELU"; }
  std::string extra_repr() const override;

 private:
  double alpha_;
};

/// x Phi(x), exact ("none") or by its tanh form ("tanh"); another word raises ValueError. arXiv 1606.08415.
class GELU : public Module {
 public:
  explicit GELU(std::string approximate = "none");
  Tensor forward(const Tensor& x) override;
  std::string class_name() const override { return "GELU"; }
  std::string extra_repr() const override;

 private:
  std::string approximate_;
};

/// x sigmoid(x). arXiv 1702.03118.
class SiLU : public Module {
 public:
  Tensor forward(const Tensor& x) override;
  std::string class_name() const override { return "SiLU"; }
};

/// 1 / (1 + exp(-x)).
class Sigmoid : public Module {
 public:
  Tensor forward(const Tensor& x) override;
  std::string class_name() const override { return "Sigmoid"; }
};

class Tanh : public Module {
 public:
  Tensor forward(const Tensor& x) override;
  std::string class_name() const override { return "Tanh"; }
};

/// log(1 + exp(beta x)) / beta, without overflow.
class Softplus : public Module {
 public:
  explicit Softplus(double beta = 1.0) : beta_(beta) {}
  Tensor forward(const Tensor& x) override;
  std::string class_name() const override { return "Softplus"; }
  std::string extra_repr() const override;

 private:
  double beta_;
};

/// exp(x) / sum(exp(x)) along dim (negative counts from the end).
class Softmax : public Module {
 public:
  explicit Softmax(int64_t dim) : dim_(dim) {}
  Tensor forward(const Tensor& x) override;
  std::string class_name() const override { return "Softmax"; }
  std::string extra_repr() const override;

 private:
  int64_t dim_;
};

/// x - log(sum(exp(x))) along dim.
class LogSoftmax : public Module {
 public:
  explicit LogSoftmax(int64_t dim) : dim_(dim) {}
  Tensor forward(const Tensor& x) override;
  std::string class_name() const override { return "LogSoftmax"; }
  std::string extra_repr() const override;

 private:
  int64_t dim_;
};

}  // namespace anello::nn
