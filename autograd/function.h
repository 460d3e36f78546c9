// Custom differentiable functions in C++: a forward and a backward of one's own.
// Main entry: derive from Function and call apply<MyFunction>(inputs, arguments...).
#pragma once

#include <anello/autograd/node.h>

#include <type_traits>
#include <vector>

namespace anello {

/// What forward hands to backward.
class FunctionContext {
 public:
  /// Keeps tensors for backward (inputs or outputs of this function, checked for in-place changes).
  void save_for_backward(std::vector<Tensor> tensors) { to_save_ = std::move(tensors); }
  const std::vector<Tensor>& saved_tensors() const { return saved_; }
  bool needs_input_grad(int input) const { return backward_ != nullptr && backward_->needs(input); }

  // For apply().
  std::vector<Tensor> to_save_, saved_;
  const Backward* backward_ = nullptr;
};

/// Runs F::forward(F& self, FunctionContext&, const std::vector<Tensor>&) -> std::vector<Tensor> without recording, and
/// records F::backward(FunctionContext&, const std::vector<Tensor>& grads) -> std::vector<Tensor>, one gradient (or
/// undefined) an input. State of F (plain members) travels from forward to backward.
template <class F>
std::vector<Tensor> apply(F function, const std::vector<Tensor>& inputs, const char* name = "custom") {
  FunctionContext ctx;
  std::vector<Tensor> outputs;
  {
    const NoGradGuard no_grad;
    outputs = function.forward(ctx, inputs);
  }
  const std::vector<const Tensor*> saved = pointers(ctx.to_save_);
  return record_all(name, pointers(inputs), saved, std::move(outputs), [function](Backward& bw) mutable {
    FunctionContext back;
    for (int i = 0; i < bw.saved_count(); ++i) back.saved_.push_back(bw.saved(i));
    back.backward_ = &bw;
    std::vector<Tensor> grads;
    for (int i = 0; i < bw.output_count(); ++i) grads.push_back(bw.grad(i));
    const std::vector<Tensor> results = function.backward(back, grads);
    bw.give_all(results);
  });
}

}  // namespace anello
