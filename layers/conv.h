// The 2-d convolution layer, channels last.
// Main entry: Conv2d.
#pragma once

#include <anello/layers/module.h>
#include <anello/layers/options.h>

#include <concepts>
#include <string>
#include <string_view>
#include <vector>

namespace anello::nn {

/// A number, a pair (height, width), or "same" / "valid".
struct Padding {
  template <std::integral Int>  // a template, so that a literal 0 is not taken for a null word
  Padding(Int both) : size(static_cast<int64_t>(both)) {}
  Padding(int64_t height, int64_t width) : size(height, width) {}
  Padding(const Pair& pair) : size(pair) {}
  /// Raises ValueError, naming the nearest, for another word.
  Padding(const char* word) : Padding(std::string_view(word)) {}
  Padding(std::string_view word);
  IntPair size;
  bool same = false;  ///< the output is as large as the input; an odd total puts the extra row and column at the end
};

struct Conv2dOptions {
  IntPair stride = 1;
  Padding padding = 0;
  IntPair dilation = 1;
  int64_t groups = 1;
  bool bias = true;
  std::string padding_mode = "zeros";  ///< "zeros", "reflect", "replicate" or "circular"
};

/// x [N, H, W, in_channels] -> [N, H', W', out_channels], H' = (H + 2 padding - dilation (kernel - 1) - 1) / stride
/// + 1.
class Conv2d : public Module {
 public:
  using Options = Conv2dOptions;
  /// Weight and bias start uniform in +-1 / sqrt(kh kw in / groups). Raises ValueError for options that do not fit.
  Conv2d(int64_t in_channels, int64_t out_channels, IntPair kernel_size, Conv2dOptions options = {});
  Tensor forward(const Tensor& x) override;
  void reset_parameters();
  std::string class_name() const override { return "Conv2d"; }
  std::string extra_repr() const override;
  const Conv2dOptions& options() const { return options_; }

  Tensor weight;  ///< [out_channels, kh, kw, in_channels / groups]
  Tensor bias;    ///< [out_channels], or undefined

 private:
  int64_t in_channels_, out_channels_;
  IntPair kernel_;
  Conv2dOptions options_;
  std::vector<int64_t> explicit_padding_;  // for pad(); empty when conv2d pads by itself
};

}  // namespace anello::nn
