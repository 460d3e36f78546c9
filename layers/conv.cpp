// The 2-d convolution layer.
// Main entry: Conv2d::forward().
#include <anello/layers/conv.h>

#include <anello/core/suggest.h>
#include <anello/layers/init.h>

namespace anello::nn {

Padding::Padding(std::string_view word) : size(0), same(word == "same") {
  check<ValueError>(same || word == "valid", "Conv2d", "unknown padding '", word, "'.",
                    same || word == "valid" ? "" : suggest(word, {"same", "valid"}));
}

Conv2d::Conv2d(int64_t in_channels, int64_t out_channels, IntPair kernel_size, Conv2dOptions options)
    : in_channels_(in_channels), out_channels_(out_channels), kernel_(kernel_size), options_(std::move(options)) {
  const Conv2dOptions& o = options_;
  check<ValueError>(in_channels >= 1 && out_channels >= 1, "Conv2d", "in_channels is ", in_channels,
                    " and out_channels is ", out_channels, ", at least 1 is needed");
  check<ValueError>(o.groups >= 1 && in_channels % o.groups == 0 && out_channels % o.groups == 0, "Conv2d",
                    "in_channels ", in_channels, " and out_channels ", out_channels,
                    " are not both divisible by groups ", o.groups);
  detail::check_pair("Conv2d", "kernel_size", kernel_, 1);
  detail::check_pair("Conv2d", "stride", o.stride, 1);
  detail::check_pair("Conv2d", "dilation", o.dilation, 1);
  detail::check_pair("Conv2d", "padding", o.padding.size, 0);
  check<ValueError>(!o.padding.same || o.stride == IntPair(1), "Conv2d", "padding 'same' asks for stride 1, got ",
                    o.stride, ". Hint: pass the padding as numbers.");
  const bool zeros = o.padding_mode == "zeros";
  check<ValueError>(
      zeros || o.padding_mode == "reflect" || o.padding_mode == "replicate" || o.padding_mode == "circular", "Conv2d",
      "unknown padding_mode '", o.padding_mode, "'.",
      suggest(o.padding_mode, {"zeros", "reflect", "replicate", "circular"}));

  IntPair before = o.padding.size, after = o.padding.size;
  for (size_t i = 0; i < 2 && o.padding.same; ++i) {
    const int64_t total = o.dilation[i] * (kernel_[i] - 1);
    before[i] = total / 2;
    after[i] = total - before[i];
  }
  if (!zeros || before != after)
    explicit_padding_ = {0, 0, before[1], after[1], before[0], after[0]};
  else
    options_.padding.size = before;

  register_parameter("weight", weight, empty({out_channels, kernel_[0], kernel_[1], in_channels / o.groups}));
  register_parameter("bias", bias, o.bias ? empty({out_channels}) : Tensor());
  reset_parameters();
}

void Conv2d::reset_parameters() {
  init::default_(weight, weight);
  if (bias.defined()) init::default_(bias, weight);
}

Tensor Conv2d::forward(const Tensor& x) {
  check<ShapeError>(x.dim() == 4 && x.shape()[3] == in_channels_, "Conv2d", "the input is ", x.shape(),
                    ", not [N, H, W, ", in_channels_, "]. Hint: images are channels last",
                    x.dim() == 4 && x.shape()[1] == in_channels_ ? "; permute the dims to (0, 2, 3, 1)." : ".");
  if (explicit_padding_.empty())
    return conv2d(x, weight, bias, options_.stride, options_.padding.size, options_.dilation, options_.groups);
  const std::string_view mode = options_.padding_mode == "zeros" ? "constant" : std::string_view(options_.padding_mode);
  return conv2d(pad(x, explicit_padding_, mode), weight, bias, options_.stride, {0, 0}, options_.dilation,
                options_.groups);
}

std::string Conv2d::extra_repr() const {
  const Conv2dOptions& o = options_;
  std::string text = concat(in_channels_, ", ", out_channels_, ", kernel_size=", kernel_, ", stride=", o.stride);
  if (o.padding.same)
    text += ", padding='same'";
  else if (o.padding.size != IntPair(0))
    text += concat(", padding=", o.padding.size);
  if (o.dilation != IntPair(1)) text += concat(", dilation=", o.dilation);
  if (o.groups != 1) text += concat(", groups=", o.groups);
  if (!bias.defined()) text += ", bias=False";
  if (o.padding_mode != "zeros") text += ", padding_mode='" + o.padding_mode + "'";
  return text;
}

}  // namespace anello::nn
