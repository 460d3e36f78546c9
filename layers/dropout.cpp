// Dropout, and the layers that only change a shape.
// Main entry: Dropout::forward().
#include <anello/layers/dropout.h>

#include <anello/autograd/functions.h>

namespace anello::nn {

Dropout::Dropout(double p) : p_(p) {
  check<ValueError>(p >= 0 && p <= 1, "Dropout", "p is ", p, ", a probability from 0 to 1 is needed");
}

Tensor Dropout::forward(const Tensor& x) { return dropout(x, p_, is_training()); }

Tensor Flatten::forward(const Tensor& x) { return flatten(x, start_dim_, end_dim_); }

}  // namespace anello::nn
