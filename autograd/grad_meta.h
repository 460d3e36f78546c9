// What autograd keeps in a tensor's slot. Internal: included by autograd's own sources only.
// Main entry: GradMeta, meta_of().
#pragma once

#include <anello/autograd/hooks.h>
#include <anello/autograd/node.h>

#include <functional>
#include <map>
#include <mutex>
#include <string>

namespace anello::detail {

/// The end of the line: adds an incoming gradient to its leaf. Owned by the leaf (and by edges); forgets the leaf when
/// it goes.
class AccumulateGrad final : public Node {
 public:
  explicit AccumulateGrad(TensorImpl* leaf);
  void backward(Backward&) override {}  // the engine calls accumulate() instead
  bool is_accumulator() const override { return true; }
  /// The leaf, or an undefined tensor when it is gone.
  Tensor leaf();
  void forget();
  /// Adds `grad` to the leaf's gradient, or takes note that it was written into the destination. `recorded`:
  /// create_graph.
  void accumulate(Tensor grad, bool written, bool recorded);

 private:
  std::mutex mutex_;
  TensorImpl* leaf_;
};

struct GradMeta final : GradSlot {
  explicit GradMeta(TensorImpl* tensor) : owner(tensor) {}
  ~GradMeta() override;
  TensorImpl* owner;
  bool requires_grad = false;  ///< a leaf that asks for a gradient
  bool retain_grad = false;    ///< keep grad of a non-leaf
  bool is_view = false;
  Ref<Node> node;  ///< the producer; null for leaves
  uint32_t output = 0;
  Ref<AccumulateGrad> accumulator;
  Tensor grad, destination;
  std::string name;
  std::map<uint64_t, std::function<void(const Tensor&)>> ready_hooks;
};

/// The slot's content, or null.
inline GradMeta* find_meta(const Tensor& t) { return static_cast<GradMeta*>(t.impl().grad_slot.get()); }
/// The slot's content, made when absent.
GradMeta& meta_of(const Tensor& t);

/// Calls the leaf's on_grad_ready hooks, in the order they were added.
void fire_ready_hooks(const Tensor& leaf);
/// Calls every on_backward_end hook.
void fire_backward_end(const BackwardStatus& status);

}  // namespace anello::detail
