// Pooling layers.
// Main entry: MaxPool2d::forward().
#include <anello/layers/pool.h>

namespace anello::nn {

namespace {
void check_window(std::string_view op, const IntPair& kernel, const IntPair& stride, const IntPair& padding) {
  detail::check_pair(op, "kernel_size", kernel, 1);
  detail::check_pair(op, "stride", stride, 1);
  detail::check_pair(op, "padding", padding, 0);
  check<ValueError>(padding[0] <= kernel[0] / 2 && padding[1] <= kernel[1] / 2, op, "padding is ", padding,
                    ", more than half of kernel_size ", kernel);
}
template <class Size, class Options>
std::string describe(const Size& kernel, const Size& stride, const Options& options) {
  return concat("kernel_size=", kernel, ", stride=", stride, ", padding=", options.padding,
                options.ceil_mode ? ", ceil_mode=True" : "");
}
}  // namespace

MaxPool2d::MaxPool2d(IntPair kernel_size, MaxPool2dOptions options)
    : kernel_(kernel_size), stride_(options.stride.value_or(kernel_size)), options_(options) {
  check_window("MaxPool2d", kernel_, stride_, options.padding);
}
Tensor MaxPool2d::forward(const Tensor& x) {
  return max_pool2d(x, kernel_, stride_, options_.padding, options_.ceil_mode);
}
std::string MaxPool2d::extra_repr() const { return describe(kernel_, stride_, options_); }

MaxPool1d::MaxPool1d(int64_t kernel_size, MaxPool1dOptions options)
    : kernel_(kernel_size), stride_(options.stride.value_or(kernel_size)), options_(options) {
  check_window("MaxPool1d", kernel_, stride_, options.padding);
}
Tensor MaxPool1d::forward(const Tensor& x) {
  return max_pool1d(x, kernel_, stride_, options_.padding, options_.ceil_mode);
}
std::string MaxPool1d::extra_repr() const { return describe(kernel_, stride_, options_); }

AvgPool2d::AvgPool2d(IntPair kernel_size, AvgPool2dOptions options)
    : kernel_(kernel_size), stride_(options.stride.value_or(kernel_size)), options_(options) {
  check_window("AvgPool2d", kernel_, stride_, options.padding);
}
Tensor AvgPool2d::forward(const Tensor& x) {
  return avg_pool2d(x, kernel_, stride_, options_.padding, options_.ceil_mode, options_.count_include_pad);
}
std::string AvgPool2d::extra_repr() const {
  return describe(kernel_, stride_, options_) + (options_.count_include_pad ? "" : ", count_include_pad=False");
}

Tensor GlobalAvgPool2d::forward(const Tensor& x) { return global_avg_pool2d(x); }

}  // namespace anello::nn
