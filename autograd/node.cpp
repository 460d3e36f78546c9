// Recording: connecting nodes, saving tensors, handing gradients over, in-place rewriting.
// Main entry: detail::attach(), apply_in_place().
#include <anello/autograd/functions.h>
#include <anello/autograd/grad_meta.h>

#include <algorithm>
#include <atomic>

namespace anello {
namespace {

std::atomic<uint64_t> next_sequence{1};

/// "'conv1.weight' (input 1, shape (8, 3))" with what is known.
std::string describe(const Tensor& t, int index) {
  const std::string name = t.name();
  return concat(name.empty() ? "a tensor" : "'" + name + "'", " (saved tensor ", index, ", shape ", t.shape(), ")");
}

/// A recorded in-place operation gives a history to the tensor it was called on; another one on the same memory,
/// tracked or not, does not know of it, and using it would lose a gradient without a word.
void check_history(const char* name, const Tensor& t, size_t input) {
  check<Error>(t.impl().history == t.storage()->history(), name, "input ", input, " of shape ", t.shape(),
               " shares memory with a tensor that a recorded operation changed in place, so its history is outdated. "
               "Hint: use the tensor that was changed (base[i] = value instead of base[i].copy_(value)), take views "
               "of it again afterwards, or detach() for the values alone.");
}

}  // namespace

std::vector<const Tensor*> pointers(const std::vector<Tensor>& tensors) {
  std::vector<const Tensor*> list;
  list.reserve(tensors.size());
  for (const Tensor& t : tensors) list.push_back(&t);
  return list;
}

SavedTensor::SavedTensor(const Tensor& tensor, bool is_output, uint32_t output)
    : tensor_(!tensor.defined() || !is_output ? tensor : tensor.detach()),
      version_(tensor.defined() ? tensor.version() : 0),
      output_(output),
      is_output_(is_output) {
  // An output is kept without its graph: a node that holds its own product would never go.
  if (is_output && tensor.defined())
    if (const std::string name = tensor.name(); !name.empty()) tensor_.set_name(name);
}

Tensor SavedTensor::unpack(const Node& owner, int index) const {
  if (!tensor_.defined()) return tensor_;
  const uint64_t now = tensor_.version();
  check<Error>(now == version_, concat("backward of ", owner.name()), describe(tensor_, index),
               " was changed in place after it was saved: version ", version_, " then, ", now,
               " now. Hint: clone() it before the in-place operation.");
  if (!is_output_ || !is_grad_enabled()) return tensor_;
  Tensor attached = tensor_.detach();
  auto& meta = detail::meta_of(attached);
  meta.node = Ref<Node>(const_cast<Node*>(&owner));
  meta.output = output_;
  return attached;
}

Backward::Backward(const Node& node, std::vector<Tensor>& grads, const Run& run)
    : results(node.next().size()), written(node.next().size(), false), node_(node), grads_(grads), run_(run) {}

const Tensor& Backward::grad(int output) {
  Tensor& g = grads_[static_cast<size_t>(output)];
  if (!g.defined()) {
    const OutputMeta& meta = node_.outputs_[static_cast<size_t>(output)];
    g = zeros(meta.shape, meta.dtype, meta.device);
  }
  return g;
}

bool Backward::needs(int input) const {
  const auto i = static_cast<size_t>(input);
  return node_.next()[i].node && (run_.needed == nullptr || (*run_.needed)[i]);
}

Tensor Backward::saved(int i) const { return node_.saved_[static_cast<size_t>(i)].unpack(node_, i); }
int Backward::saved_count() const { return static_cast<int>(node_.saved_.size()); }
const Shape& Backward::input_shape(int input) const { return node_.inputs_[static_cast<size_t>(input)].shape; }
DType Backward::input_dtype(int input) const { return node_.inputs_[static_cast<size_t>(input)].dtype; }

void Backward::give(int input, const Tensor& grad) {
  if (!grad.defined() || !needs(input)) return;
  const InputMeta& meta = node_.inputs_[static_cast<size_t>(input)];
  Tensor g = grad.shape() == meta.shape ? grad : sum_to_shape(grad, meta.shape);
  if (g.dtype() != meta.dtype) g = cast(g, meta.dtype);
  check<DeviceError>(g.device() == meta.device, concat("backward of ", node_.name()), "gradient of input ", input,
                     " is on ", g.device(), ", the input on ", meta.device, ".");
  Tensor& place = results[static_cast<size_t>(input)];
  place = place.defined() ? add(place, g) : std::move(g);
}

void Backward::give_all(const std::vector<Tensor>& grads) {
  check<Error>(grads.size() == results.size(), concat("backward of ", node_.name()), "returned ", grads.size(),
               " gradients for ", results.size(),
               " inputs. Hint: return one an input, undefined (None) where there is none.");
  for (size_t i = 0; i < grads.size(); ++i) give(static_cast<int>(i), grads[i]);
}

Destination Backward::destination(int input) const {
  if (run_.create_graph || !run_.accumulates || !needs(input)) return {};
  Node* next = node_.next()[static_cast<size_t>(input)].node.get();
  if (!next->is_accumulator()) return {};
  const Tensor leaf = static_cast<detail::AccumulateGrad*>(next)->leaf();
  if (!leaf.defined()) return {};
  const auto* meta = detail::find_meta(leaf);
  if (meta == nullptr || !meta->destination.defined()) return {};
  const InputMeta& expected = node_.inputs_[static_cast<size_t>(input)];
  if (!(meta->destination.shape() == expected.shape) || meta->destination.dtype() != expected.dtype) return {};
  const auto& list = *run_.written;
  return {meta->destination, meta->grad.defined() || std::find(list.begin(), list.end(), next) != list.end()};
}

void Backward::wrote(int input) {
  written[static_cast<size_t>(input)] = true;
  run_.written->push_back(node_.next()[static_cast<size_t>(input)].node.get());
}

Node::~Node() = default;

void Node::release_saved() {
  if (saved_.empty()) return;
  saved_.clear();
  released_ = true;
}

void Node::retain_output(uint32_t slot, const Tensor& tensor) { retained_.emplace_back(slot, &tensor.impl()); }

void Node::forget_retained(const TensorImpl* tensor) {
  std::erase_if(retained_, [&](const auto& entry) { return entry.second == tensor; });
}

void Node::store_retained(const std::vector<Tensor>& grads) const {
  for (const auto& [slot, impl] : retained_) {
    if (!grads[slot].defined()) continue;
    auto& meta = *static_cast<detail::GradMeta*>(impl->grad_slot.get());
    meta.grad = meta.grad.defined() ? add(meta.grad, grads[slot]) : grads[slot];
  }
}

/// A chain of nodes is taken apart by a loop: the first node to go collects those whose last reference it held.
void Node::dispose() {
  static thread_local std::vector<Node*>* waiting = nullptr;
  if (waiting != nullptr) {
    waiting->push_back(this);
    return;
  }
  std::vector<Node*> queue{this};
  waiting = &queue;
  while (!queue.empty()) {
    Node* node = queue.back();
    queue.pop_back();
    delete node;
  }
  waiting = nullptr;
}

namespace detail {

bool wants_record(const char* name, TensorList inputs) {
  if (!is_grad_enabled()) return false;
  bool wanted = false;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Tensor& t = inputs[i];
    if (!t.defined()) continue;
    wanted = wanted || t.requires_grad();
    check_history(name, t, i);
  }
  return wanted;
}

void attach(const Ref<Node>& node, TensorList inputs, TensorList saved, TensorList outputs, bool is_view) {
  Node& n = *node;
  n.sequence_ = next_sequence.fetch_add(1, std::memory_order_relaxed);
  n.next_.reserve(inputs.size());
  n.inputs_.reserve(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Tensor& t = inputs[i];
    n.next_.push_back(t.defined() ? gradient_edge(t) : Edge{});
    n.inputs_.push_back(t.defined() ? InputMeta{t.shape(), t.dtype(), t.device()} : InputMeta{});
  }
  n.saved_.reserve(saved.size());
  for (size_t i = 0; i < saved.size(); ++i) {
    bool is_output = false;
    uint32_t place = 0;
    for (size_t k = 0; k < outputs.size() && saved[i].defined(); ++k)
      if (outputs[k].defined() && saved[i].is(outputs[k])) is_output = true, place = static_cast<uint32_t>(k);
    n.saved_.emplace_back(saved[i], is_output, place);
  }
  n.outputs_.reserve(outputs.size());
  for (size_t k = 0; k < outputs.size(); ++k) {
    const Tensor& out = outputs[k];
    n.outputs_.push_back(out.defined() ? OutputMeta{out.shape(), out.dtype(), out.device()} : OutputMeta{});
    if (!out.defined() || !is_floating_point(out.dtype())) continue;
    GradMeta& meta = meta_of(out);
    meta.node = node;
    meta.output = static_cast<uint32_t>(k);
    meta.is_view = is_view;
  }
}

}  // namespace detail

Edge gradient_edge(const Tensor& tensor) {
  const auto* meta = detail::find_meta(tensor);
  if (meta == nullptr) return {};
  if (meta->node) return {meta->node, meta->output};
  if (meta->requires_grad) return {meta->accumulator, 0};
  return {};
}

Ref<Node> grad_fn(const Tensor& tensor) {
  const auto* meta = detail::find_meta(tensor);
  return meta == nullptr ? Ref<Node>() : meta->node;
}

Tensor sum_to_shape(const Tensor& grad, const Shape& shape) {
  const int shift = grad.dim() - shape.size();
  check<ShapeError>(shift >= 0, "sum_to_shape", "gradient of shape ", grad.shape(), " for an input of shape ", shape,
                    ".");
  std::vector<int64_t> dims;
  for (int i = 0; i < grad.dim(); ++i) {
    const bool added = i < shift;
    if (added || (shape[i - shift] == 1 && grad.shape()[i] != 1))
      dims.push_back(i);
    else
      check<ShapeError>(shape[i - shift] == grad.shape()[i], "sum_to_shape", "gradient of shape ", grad.shape(),
                        " for an input of shape ", shape, ".");
  }
  if (dims.empty()) return grad;
  return reshape(sum(grad, dims, true), shape);
}

void apply_in_place(const char* name, const Tensor& target, bool keep_old,
                    const std::function<Tensor(const Tensor&)>& f, TensorList other_inputs) {
  require_writable(name, target);
  bool tracked = is_grad_enabled() && target.requires_grad();
  for (size_t i = 0; i < other_inputs.size(); ++i)
    tracked = tracked || (is_grad_enabled() && other_inputs[i].defined() && other_inputs[i].requires_grad());
  if (!tracked) {
    copy_into(target, f(target));
    return;
  }
  check<Error>(!(target.is_leaf() && target.requires_grad()), name,
               "a leaf that requires a gradient cannot be changed in place while recording. Hint: use no_grad().");
  auto* meta = detail::find_meta(target);
  check<Error>(meta == nullptr || !meta->is_view, name,
               "the tensor is a view of a tracked tensor; changing it would leave the base's history wrong. Hint: "
               "index the base itself "
               "(base[i] = value) or clone() the view first.");
  check<DTypeError>(is_floating_point(target.dtype()), name, "a tensor of ", target.dtype(),
                    " cannot take part in gradients.");
  check_history(name, target, 0);
  // `old` stands for the value before the change: the same history, and data of its own where f's backward needs it.
  Tensor old = keep_old ? copy_as(target, target.dtype()) : target.detach();
  if (meta != nullptr && meta->node) {
    auto& old_meta = detail::meta_of(old);
    old_meta.node = meta->node;
    old_meta.output = meta->output;
  }
  Tensor result = f(old);
  if (result.dtype() != target.dtype()) result = cast(result, target.dtype());
  check<ShapeError>(result.shape() == target.shape(), name, "a result of shape ", result.shape(),
                    " does not fit in place of shape ", target.shape(), ".");
  copy_into(target, result);
  target.storage()->bump_history();
  auto& rewritten = detail::meta_of(target);
  const auto* result_meta = detail::find_meta(result);
  if (rewritten.retain_grad && rewritten.node) rewritten.node->forget_retained(&target.impl());
  rewritten.node = result_meta->node;
  rewritten.output = result_meta->output;
  if (rewritten.retain_grad) rewritten.node->retain_output(rewritten.output, target);
  target.impl().history = target.storage()->history();
}

}  // namespace anello
