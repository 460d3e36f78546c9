// Activation layers.
// Main entry: ReLU::forward() and its likes.
#include <anello/layers/activation.h>

#include <anello/autograd/functions.h>
#include <anello/core/suggest.h>

namespace anello::nn {

Tensor ReLU::forward(const Tensor& x) { return anello::relu(x); }
Tensor LeakyReLU::forward(const Tensor& x) { return anello::leaky_relu(x, negative_slope_); }
std::string LeakyReLU::extra_repr() const { return concat("negative_slope=", negative_slope_); }
Tensor ELU::forward(const Tensor& x) { return anello::elu(x, alpha_); }
std::string ELU::extra_repr() const { return concat("alpha=", alpha_); }

GELU::GELU(std::string approximate) : approximate_(std::move(approximate)) {
  const bool known = approximate_ == "none" || approximate_ == "tanh";
  check<ValueError>(known, "GELU", "unknown approximate '", approximate_, "'.",
                    known ? "" : suggest(approximate_, {"none", "tanh"}));
}
Tensor GELU::forward(const Tensor& x) { return gelu(x, approximate_); }
std::string GELU::extra_repr() const { return "approximate='" + approximate_ + "'"; }

Tensor SiLU::forward(const Tensor& x) { return anello::silu(x); }
Tensor Sigmoid::forward(const Tensor& x) { return anello::sigmoid(x); }
Tensor Tanh::forward(const Tensor& x) { return anello::tanh(x); }
Tensor Softplus::forward(const Tensor& x) { return anello::softplus(x, beta_); }
std::string Softplus::extra_repr() const { return concat("beta=", beta_); }
Tensor Softmax::forward(const Tensor& x) { return anello::softmax(x, dim_); }
std::string Softmax::extra_repr() const { return concat("dim=", dim_); }
Tensor LogSoftmax::forward(const Tensor& x) { return anello::log_softmax(x, dim_); }
std::string LogSoftmax::extra_repr() const { return concat("dim=", dim_); }

}  // namespace anello::nn
