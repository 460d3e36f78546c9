// A recorded operation: its name, where its gradients go, what it saved, and how it computes them.
// Main entry: record("op", inputs, saved, output, backward), used by every differentiable function.
#pragma once

#include <anello/autograd/grad_mode.h>
#include <anello/core/tensor.h>

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

namespace anello {

class Node;

/// Where a gradient goes: output `slot` of the node that produced a tensor, or (slot 0) a leaf's accumulator.
struct Edge {
  Ref<Node> node;
  uint32_t slot = 0;
};

/// A tensor kept for backward. Holds data and version; an output of the saving node is kept without its graph.
class SavedTensor {
 public:
  SavedTensor(const Tensor& tensor, bool is_output, uint32_t output);
  /// The tensor again. Raises Error naming op and tensor when its storage was changed in place since. An output is
  /// attached to `owner` again when gradients are being recorded (create_graph).
  Tensor unpack(const Node& owner, int index) const;

 private:
  Tensor tensor_;
  uint64_t version_;
  uint32_t output_;
  bool is_output_;
};

/// What a node remembers of an input: enough to check and reduce its gradient.
struct InputMeta {
  Shape shape;
  DType dtype = float32;
  Device device;
};

/// Memory that a leaf wants its gradient in. `accumulate`: add to what is there, else overwrite.
struct Destination {
  Tensor tensor;  ///< undefined: there is none, use give()
  bool accumulate = false;
};

/// What a backward function sees: incoming gradients, saved tensors, and where to hand its results.
class Backward {
 public:
  /// What the engine tells a node about the run it is part of.
  struct Run {
    const std::vector<bool>* needed = nullptr;  ///< per input; null: all
    bool create_graph = false;
    bool accumulates = true;  ///< backward(), not grad(outputs, inputs)
    std::vector<const Node*>* written =
        nullptr;  ///< accumulators whose destination already holds a part of this run's gradient
  };
  Backward(const Node& node, std::vector<Tensor>& grads, const Run& run);
  /// Gradient of output i; zeros when nothing came for it.
  const Tensor& grad(int output = 0);
  bool has_grad(int output) const { return grads_[static_cast<size_t>(output)].defined(); }
  /// Whether anybody wants the gradient of input i: skip the work when not.
  bool needs(int input) const;
  /// Saved tensor i, checked for in-place changes.
  Tensor saved(int i) const;
  int saved_count() const;
  int output_count() const { return static_cast<int>(grads_.size()); }
  const Shape& input_shape(int input) const;
  DType input_dtype(int input) const;
  /// Hands over the gradient of input i: summed over broadcast dims to the input's shape and cast to its dtype here.
  /// Undefined: no gradient.
  void give(int input, const Tensor& grad);
  /// give() for each input in order; raises Error unless there is one entry an input.
  void give_all(const std::vector<Tensor>& grads);
  /// The leaf memory to write input i's gradient into, if there is one and this is not create_graph. After writing,
  /// call wrote(i) instead of give().
  Destination destination(int input) const;
  void wrote(int input);
  /// True in backward(), which adds to the gradients of leaves; false in grad(outputs, inputs).
  bool accumulates() const { return run_.accumulates; }
  /// True when the backward itself is recorded: use public functions only, no fused kernel.
  bool create_graph() const { return run_.create_graph; }

  // For the engine: one gradient (or undefined) an input, and which were written into a destination instead.
  std::vector<Tensor> results;
  std::vector<bool> written;

 private:
  const Node& node_;
  std::vector<Tensor>& grads_;
  Run run_;
};

/// Shape, dtype and device of one output, to make zeros and to check gradients.
using OutputMeta = InputMeta;

class Node : public RefCounted {
 public:
  Node(const char* name) : name_(name) {}
  ~Node() override;
  virtual void backward(Backward& bw) = 0;

  const char* name() const { return name_; }
  uint64_t sequence() const { return sequence_; }
  const std::vector<Edge>& next() const { return next_; }
  bool released() const { return released_; }
  /// Lets the saved tensors go; if there were any, a later backward through this node raises.
  void release_saved();
  /// True for the end of the line: a leaf's accumulator.
  virtual bool is_accumulator() const { return false; }

  /// Keeps the gradient of output `slot` in `tensor`'s grad() (Tensor::retain_grad). Holds the tensor weakly.
  void retain_output(uint32_t slot, const Tensor& tensor);
  /// Stores gradients for tensors that asked by retain().
  void store_retained(const std::vector<Tensor>& grads) const;
  /// Called when a tensor that asked goes.
  void forget_retained(const TensorImpl* tensor);

  // Filled by record(), read by Backward and the engine.
  std::vector<Edge> next_;
  std::vector<InputMeta> inputs_;
  std::vector<OutputMeta> outputs_;
  std::vector<SavedTensor> saved_;
  uint64_t sequence_ = 0;
  /// Its backward may itself call backward() (checkpointing): on_grad_ready hooks wait until it has run.
  bool reentrant_ = false;

 protected:
  void dispose() override;

 private:
  const char* name_;
  bool released_ = false;
  std::vector<std::pair<uint32_t, TensorImpl*>> retained_;
};

/// Tensors by pointer, so that a call copies no handle: {&x, &weight}. Undefined ones are allowed (an absent bias).
class TensorList {
 public:
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Winit-list-lifetime"  // lives as long as the call it is written in
  TensorList(std::initializer_list<const Tensor*> list) : data_(list.begin()), size_(list.size()) {}
#pragma GCC diagnostic pop
  TensorList(const std::vector<const Tensor*>& list) : data_(list.data()), size_(list.size()) {}
  size_t size() const { return size_; }
  const Tensor& operator[](size_t i) const { return *data_[i]; }

 private:
  const Tensor* const* data_;
  size_t size_;
};
std::vector<const Tensor*> pointers(const std::vector<Tensor>& tensors);

namespace detail {
template <class F>
class LambdaNode final : public Node {
 public:
  LambdaNode(const char* name, F f) : Node(name), f_(std::move(f)) {}
  void backward(Backward& bw) override { f_(bw); }

 private:
  F f_;
};
/// True when recording is on, an input requires a gradient, and none of them has an outdated history.
bool wants_record(const char* name, TensorList inputs);
/// Connects node to its inputs and the outputs to node.
void attach(const Ref<Node>& node, TensorList inputs, TensorList saved, TensorList outputs, bool is_view);
}  // namespace detail

/// Records that `output` was computed from `inputs`. `backward(Backward&)` gives the gradient of each input by its
/// place in `inputs`; it may use the tensors in `saved` (each an input, the output, or anything else), by their place
/// there. Nothing happens when no gradient is wanted. Returns output.
template <class F>
Tensor record(const char* name, TensorList inputs, TensorList saved, Tensor output, F backward) {
  if (!detail::wants_record(name, inputs)) return output;
  detail::attach(make_ref<detail::LambdaNode<F>>(name, std::move(backward)), inputs, saved, {&output}, false);
  return output;
}
/// The same for an output that shares the storage of inputs[0].
template <class F>
Tensor record_view(const char* name, TensorList inputs, TensorList saved, Tensor output, F backward) {
  if (!detail::wants_record(name, inputs)) return output;
  detail::attach(make_ref<detail::LambdaNode<F>>(name, std::move(backward)), inputs, saved, {&output}, true);
  return output;
}
/// The same for several outputs; integer and bool outputs are left out of the graph.
template <class F>
std::vector<Tensor> record_all(const char* name, TensorList inputs, TensorList saved, std::vector<Tensor> outputs,
                               F backward) {
  if (!detail::wants_record(name, inputs)) return outputs;
  detail::attach(make_ref<detail::LambdaNode<F>>(name, std::move(backward)), inputs, saved, pointers(outputs), false);
  return outputs;
}

/// The edge that leads to a tensor's producer or accumulator; a null node when it requires no gradient.
Edge gradient_edge(const Tensor& tensor);
/// The node that produced a tensor; null for leaves. Its name is what Python shows as grad_fn.
Ref<Node> grad_fn(const Tensor& tensor);
/// Sums grad over the dims in which `shape` was broadcast to grad's shape. Differentiable.
Tensor sum_to_shape(const Tensor& grad, const Shape& shape);

/// Rewrites a tensor in place by a differentiable function: target's data becomes f(old) and its history f's. Raises
/// Error for a leaf that requires a gradient and for a view of a tracked tensor. `keep_old`: f's backward needs the old
/// values.
void apply_in_place(const char* name, const Tensor& target, bool keep_old,
                    const std::function<Tensor(const Tensor&)>& f, TensorList other_inputs);

}  // namespace anello
