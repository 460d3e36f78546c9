// Starting values of parameters, written in place and never recorded by autograd.
// Main entry: init::kaiming_normal_(weight). Random ones draw from the default generator.
#pragma once

#include <anello/core/tensor.h>

#include <string_view>

namespace anello::nn::init {

/// Inputs and outputs that one element of an output, or of an input, is connected to.
struct Fan {
  int64_t in, out;
};
/// weight [out, ...kernel..., in]: in = kernel * in (in already divided by groups), out = kernel * out. Raises
/// ShapeError below two dims.
Fan fan(const Tensor& weight);
/// The factor that keeps a signal's variance through a function: 1 for "linear" (also "conv2d", "sigmoid"), sqrt(2) for
/// "relu", 5/3 for "tanh", sqrt(2 / (1 + a^2)) for "leaky_relu", 3/4 for "selu".
double gain(std::string_view nonlinearity, double a = 0.01);

void uniform_(const Tensor& x, double low = 0, double high = 1);
void normal_(const Tensor& x, double mean = 0, double std = 1);
void constant_(const Tensor& x, double value);
void zeros_(const Tensor& x);
void ones_(const Tensor& x);
/// Ones on the diagonal of a matrix, else zeros.
void eye_(const Tensor& x);
/// A convolution [out, kh, kw, in] (any number of kernel dims) that passes its channels through: filter i of each group
/// is 1 at the middle of channel i, else 0. Filters beyond the channels are zero.
void dirac_(const Tensor& weight, int64_t groups = 1);
/// Uniform in +-gain sqrt(3 / fan), fan by mode "fan_in" or "fan_out". arXiv 1502.01852.
void kaiming_uniform_(const Tensor& weight, double a = 0, std::string_view mode = "fan_in",
                      std::string_view nonlinearity = "leaky_relu");
/// Normal with standard deviation gain / sqrt(fan).
void kaiming_normal_(const Tensor& weight, double a = 0, std::string_view mode = "fan_in",
                     std::string_view nonlinearity = "leaky_relu");
/// Uniform in +-gain sqrt(6 / (fan.in + fan.out)). Glorot, Bengio, AISTATS 2010.
void xavier_uniform_(const Tensor& weight, double gain = 1);
/// Normal with standard deviation gain sqrt(2 / (fan.in + fan.out)).
void xavier_normal_(const Tensor& weight, double gain = 1);
/// What Linear and Conv2d start with, as in PyTorch: x (the weight or the bias) uniform in +-1 / sqrt(fan(weight).in).
void default_(const Tensor& x, const Tensor& weight);

}  // namespace anello::nn::init
