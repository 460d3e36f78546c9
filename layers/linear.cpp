// The fully connected layer.
// Main entry: Linear::forward().
#include <anello/layers/linear.h>

#include <anello/layers/init.h>
#include <anello/layers/options.h>

#include <cmath>

namespace anello::nn {

Linear::Linear(int64_t in_features, int64_t out_features, bool with_bias)
    : in_features_(in_features), out_features_(out_features) {
  check<ValueError>(in_features >= 1 && out_features >= 1, "Linear", "in_features is ", in_features,
                    " and out_features is ", out_features, ", at least 1 is needed");
  register_parameter("weight", weight, empty({out_features, in_features}));
  register_parameter("bias", bias, with_bias ? empty({out_features}) : Tensor());
  reset_parameters();
}

void Linear::reset_parameters() {
  init::default_(weight, weight);
  if (bias.defined()) init::default_(bias, weight);
}

Tensor Linear::forward(const Tensor& x) { return linear(x, weight, bias); }

std::string Linear::extra_repr() const {
  return concat("in_features=", in_features_, ", out_features=", out_features_,
                ", bias=", detail::yes_no(bias.defined()));
}

}  // namespace anello::nn
