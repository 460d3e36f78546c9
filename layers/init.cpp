// Starting values of parameters.
// Main entry: init::kaiming_normal_().
#include <anello/layers/init.h>

#include <anello/core/random.h>
#include <anello/core/suggest.h>

#include <cmath>

namespace anello::nn::init {

Fan fan(const Tensor& weight) {
  const Shape& shape = weight.shape();
  check<ShapeError>(shape.size() >= 2, "init", "fan is defined for weights of two dims or more, got shape ", shape);
  int64_t kernel = 1;
  for (int i = 1; i + 1 < shape.size(); ++i) kernel *= shape[i];
  return {kernel * shape.back(), kernel * shape[0]};
}

double gain(std::string_view nonlinearity, double a) {
  if (nonlinearity == "linear" || nonlinearity == "conv2d" || nonlinearity == "sigmoid") return 1;
  if (nonlinearity == "relu") return std::sqrt(2.0);
  if (nonlinearity == "leaky_relu") return std::sqrt(2.0 / (1 + a * a));
  if (nonlinearity == "tanh") return 5.0 / 3;
  if (nonlinearity == "selu") return 0.75;
  fail<ValueError>("init", "unknown nonlinearity '", nonlinearity, "'.",
                   suggest(nonlinearity, {"linear", "conv2d", "sigmoid", "relu", "leaky_relu", "tanh", "selu"}));
}

namespace {
double fan_by_mode(const Tensor& weight, std::string_view mode) {
  const Fan both = fan(weight);
  if (mode == "fan_in") return static_cast<double>(both.in);
  if (mode == "fan_out") return static_cast<double>(both.out);
  fail<ValueError>("init", "unknown mode '", mode, "'.", suggest(mode, {"fan_in", "fan_out"}));
}
}  // namespace

void uniform_(const Tensor& x, double low, double high) {
  check<ValueError>(low <= high, "init.uniform_", "low is ", low, ", above high, ", high);
  uniform_into(x, low, high);
}

void normal_(const Tensor& x, double mean, double std) {
  check<ValueError>(std >= 0, "init.normal_", "std is ", std, ", below 0");
  normal_into(x, mean, std);
}

void constant_(const Tensor& x, double value) { fill(x, value); }
void zeros_(const Tensor& x) { fill(x, 0); }
void ones_(const Tensor& x) { fill(x, 1); }

void eye_(const Tensor& x) {
  check<ShapeError>(x.dim() == 2, "init.eye_", "a matrix is needed, got shape ", x.shape());
  copy_into(x, eye(x.size(0), x.size(1), x.dtype(), x.device()));
}

void dirac_(const Tensor& weight, int64_t groups) {
  const Shape& shape = weight.shape();
  check<ShapeError>(shape.size() >= 3, "init.dirac_", "a convolution's weight [out, ...kernel..., in] is needed, got ",
                    shape);
  check<ValueError>(groups >= 1 && shape[0] % groups == 0, "init.dirac_", shape[0], " filters cannot be divided into ",
                    groups, " groups");
  fill(weight, 0);
  const int64_t filters = shape[0] / groups, count = std::min(filters, shape.back());
  if (weight.numel() == 0) return;
  int64_t middle = weight.storage_offset();
  for (int i = 1; i + 1 < shape.size(); ++i) middle += shape[i] / 2 * weight.strides()[i];
  const int64_t out_stride = weight.strides()[0], in_stride = weight.strides().back();
  fill(as_strided(weight, {groups, count}, {filters * out_stride, out_stride + in_stride}, middle), 1);
}

void kaiming_uniform_(const Tensor& weight, double a, std::string_view mode, std::string_view nonlinearity) {
  if (weight.numel() == 0) return;
  const double bound = gain(nonlinearity, a) * std::sqrt(3.0 / fan_by_mode(weight, mode));
  uniform_into(weight, -bound, bound);
}

void kaiming_normal_(const Tensor& weight, double a, std::string_view mode, std::string_view nonlinearity) {
  if (weight.numel() == 0) return;
  normal_into(weight, 0, gain(nonlinearity, a) / std::sqrt(fan_by_mode(weight, mode)));
}

void xavier_uniform_(const Tensor& weight, double gain) {
  const Fan both = fan(weight);
  if (weight.numel() == 0) return;
  const double bound = gain * std::sqrt(6.0 / static_cast<double>(both.in + both.out));
  uniform_into(weight, -bound, bound);
}

void xavier_normal_(const Tensor& weight, double gain) {
  const Fan both = fan(weight);
  if (weight.numel() == 0) return;
  normal_into(weight, 0, gain * std::sqrt(2.0 / static_cast<double>(both.in + both.out)));
}

void default_(const Tensor& x, const Tensor& weight) {
  if (weight.numel() == 0) return;
  const double bound = 1 / std::sqrt(static_cast<double>(fan(weight).in));
  uniform_into(x, -bound, bound);
}

}  // namespace anello::nn::init
