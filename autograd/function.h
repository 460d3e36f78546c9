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
  /// Whether anybody wants the gradient of input i; in forward and in backward.
  bool needs_input_grad(int input) const { return needs_[static_cast<size_t>(input)]; }

  // For apply().
  std::vector<Tensor> to_save_, saved_;
  std::vector<bool> needs_;
};

/// Runs F::forward(FunctionContext&, const std::vector<Tensor>&) -> std::vector<Tensor> without recording, and records
/// F::backward(FunctionContext&, const std::vector<Tensor>& grads) -> std::vector<Tensor>, one gradient (or undefined)
/// an input. State of F (plain members) travels from forward to backward. A function whose backward itself calls
/// backward() declares `static constexpr bool reentrant = true`.
template <class F>
std::vector<Tensor> apply(F function, const std::vector<Tensor>& inputs, const char* name = "custom") {
  FunctionContext ctx;
  for (const Tensor& t : inputs) ctx.needs_.push_back(is_grad_enabled() && t.defined() && t.requires_grad());
  std::vector<Tensor> outputs;
  {
    const NoGradGuard no_grad;
    outputs = function.forward(ctx, inputs);
  }
  // An input handed through must become a tensor of its own: its history is another one now.
  for (Tensor& out : outputs)
    for (const Tensor& in : inputs)
      if (out.is(in)) out = out.detach();
  const auto backward = [function](Backward& bw) mutable {
    FunctionContext back;
    for (int i = 0; i < bw.saved_count(); ++i) back.saved_.push_back(bw.saved(i));
    for (size_t i = 0; i < bw.results.size(); ++i) back.needs_.push_back(bw.needs(static_cast<int>(i)));
    std::vector<Tensor> grads;
    for (int i = 0; i < bw.output_count(); ++i) grads.push_back(bw.grad(i));
    bw.give_all(function.backward(back, grads));
  };
  outputs = record_all(name, pointers(inputs), pointers(ctx.to_save_), std::move(outputs), backward);
  if constexpr (requires { F::reentrant; })
    for (const Tensor& out : outputs)
      if (const Ref<Node> node = grad_fn(out)) node->reentrant_ = F::reentrant;
  return outputs;
}

}  // namespace anello
