// The autograd half of Tensor: gradients, leaves, detaching, names.
// Main entry: Tensor::requires_grad(), Tensor::backward().
#include <anello/autograd/engine.h>
#include <anello/autograd/functions.h>
#include <anello/autograd/grad_meta.h>

namespace anello {

using detail::find_meta;
using detail::meta_of;

bool Tensor::requires_grad() const {
  const auto* meta = find_meta(*this);
  return meta != nullptr && (meta->requires_grad || meta->node);
}

const Tensor& Tensor::set_requires_grad(bool wanted) const {
  if (wanted == requires_grad()) return *this;
  check<Error>(is_leaf(), "set_requires_grad", "only a leaf's flag can be cleared. Hint: use detach().");
  check<DTypeError>(!wanted || is_floating_point(dtype()), "set_requires_grad", "a tensor of ", dtype(),
                    " has no gradient. Hint: only floating-point tensors do.");
  auto& meta = meta_of(*this);
  meta.requires_grad = wanted;
  if (wanted && !meta.accumulator) meta.accumulator = make_ref<detail::AccumulateGrad>(&impl());
  return *this;
}

bool Tensor::is_leaf() const {
  const auto* meta = find_meta(*this);
  return meta == nullptr || !meta->node;
}

Tensor Tensor::grad() const {
  const auto* meta = find_meta(*this);
  return meta == nullptr ? Tensor() : meta->grad;
}

void Tensor::set_grad(const Tensor& grad) const {
  if (!grad.defined()) return zero_grad();
  check<ShapeError>(grad.shape() == shape(), "set_grad", "gradient of shape ", grad.shape(), " for a tensor of shape ",
                    shape(), ".");
  check<DTypeError>(grad.dtype() == dtype(), "set_grad", "gradient of ", grad.dtype(), " for a tensor of ", dtype(),
                    ".");
  check<DeviceError>(grad.device() == device(), "set_grad", "gradient on ", grad.device(), " for a tensor on ",
                     device(), ".");
  auto& meta = meta_of(*this);
  if (meta.destination.defined() && !grad.is(meta.destination)) {
    copy_into(meta.destination, grad);
    meta.grad = meta.destination;
  } else {
    meta.grad = grad;
  }
}

void Tensor::zero_grad() const {
  if (auto* meta = find_meta(*this)) meta->grad = Tensor();
}

void Tensor::retain_grad() const {
  check<Error>(requires_grad(), "retain_grad", "the tensor does not require a gradient.");
  meta_of(*this).retain_grad = true;
  // The node's output must find this tensor again: see engine.cpp.
  if (const auto& node = meta_of(*this).node) node->retain_output(meta_of(*this).output, *this);
}

void Tensor::backward(const Tensor& gradient, bool retain_graph, bool create_graph) const {
  anello::backward({*this}, {gradient}, retain_graph, create_graph);
}

Tensor Tensor::detach() const {
  const TensorImpl& i = impl();
  return Tensor(make_ref<TensorImpl>(i.storage, i.shape, i.strides, i.offset, i.dtype));
}

void Tensor::set_data(const Tensor& data) const {
  check<ShapeError>(data.shape() == shape(), "set_data", "data of shape ", data.shape(), " for a tensor of shape ",
                    shape(), ".");
  check<Error>(is_leaf(), "set_data", "only a leaf can take over other data. Hint: use detach().");
  check<DTypeError>(!requires_grad() || is_floating_point(data.dtype()), "set_data", "data of ", data.dtype(),
                    " for a tensor that requires a gradient.");
  if (is(data)) return;
  // A graph compares versions to see that what it saved is gone.
  const uint64_t before = version();
  while (data.version() <= before) data.bump_version();
  TensorImpl& i = impl();
  i.storage = data.storage();
  i.strides = data.strides();
  i.offset = data.storage_offset();
  i.dtype = data.dtype();
  i.history = data.impl().history;
  if (auto* meta = find_meta(*this)) {
    meta->grad = meta->destination = Tensor();
    if (meta->accumulator) meta->accumulator->outputs_ = {{shape(), dtype(), device()}};
  }
}

void Tensor::set_grad_destination(const Tensor& destination) const {
  auto& meta = meta_of(*this);
  if (destination.defined()) {
    check<ShapeError>(destination.shape() == shape(), "set_grad_destination", "destination of shape ",
                      destination.shape(), " for a tensor of shape ", shape(), ".");
    check<DTypeError>(destination.dtype() == dtype(), "set_grad_destination", "destination of ", destination.dtype(),
                      " for a tensor of ", dtype(), ".");
    check<DeviceError>(destination.device() == device(), "set_grad_destination", "destination on ",
                       destination.device(), " for a tensor on ", device(), ".");
    check<Error>(destination.is_contiguous() && destination.storage()->writable(), "set_grad_destination",
                 "the destination must be contiguous and writable.");
    check<Error>(is_leaf() && requires_grad(), "set_grad_destination", "only a leaf that requires a gradient has one.");
    if (meta.grad.defined()) {
      copy_into(destination, meta.grad);
      meta.grad = destination;
    }
  } else if (meta.destination.defined() && meta.grad.defined() && meta.grad.is(meta.destination)) {
    meta.grad = copy_as(meta.grad, meta.grad.dtype());  // the memory is about to be somebody else's
  }
  meta.destination = destination;
}

Tensor Tensor::grad_destination() const {
  const auto* meta = find_meta(*this);
  return meta == nullptr ? Tensor() : meta->destination;
}

std::string Tensor::name() const {
  const auto* meta = find_meta(*this);
  return meta == nullptr ? std::string() : meta->name;
}

const Tensor& Tensor::set_name(std::string name) const {
  meta_of(*this).name = std::move(name);
  return *this;
}

namespace detail {

GradMeta& meta_of(const Tensor& t) {
  auto& slot = t.impl().grad_slot;
  if (!slot) slot = std::make_unique<GradMeta>(&t.impl());
  return static_cast<GradMeta&>(*slot);
}

GradMeta::~GradMeta() {
  if (accumulator) accumulator->forget();
  if (retain_grad && node) node->forget_retained(owner);
}

AccumulateGrad::AccumulateGrad(TensorImpl* leaf) : Node("accumulate_grad"), leaf_(leaf) {
  outputs_.push_back({leaf->shape, leaf->dtype, leaf->storage->device()});
}

void AccumulateGrad::forget() {
  const std::lock_guard lock(mutex_);
  leaf_ = nullptr;
}

Tensor AccumulateGrad::leaf() {
  const std::lock_guard lock(mutex_);
  // The last handle may be going in another thread right now: then its count is already zero.
  if (leaf_ == nullptr || !leaf_->try_retain()) return Tensor();
  return Tensor(Ref<TensorImpl>::adopt(leaf_));
}

void AccumulateGrad::accumulate(Tensor grad, bool written, bool recorded) {
  const Tensor target = leaf();
  if (!target.defined()) return;
  GradMeta& meta = meta_of(target);
  if (recorded) {
    meta.grad = meta.grad.defined() ? add(meta.grad, grad) : grad;
    return;
  }
  const NoGradGuard no_grad;
  if (meta.destination.defined()) {
    const bool live = written || meta.grad.defined();  // the destination already holds a part of this gradient
    if (grad.defined()) live ? add_(meta.destination, grad) : copy_into(meta.destination, grad);
    meta.grad = meta.destination;
  } else if (!meta.grad.defined()) {
    // Take the tensor itself when nobody else holds it or its memory: later backward passes add to it in place.
    const bool ours = grad.is_contiguous() && grad.ref()->use_count() == 1 && grad.storage()->use_count() == 1;
    meta.grad = ours ? std::move(grad) : copy_as(grad, grad.dtype());
  } else if (meta.grad.requires_grad() || !meta.grad.storage()->writable()) {
    meta.grad = add(meta.grad, grad);
  } else {
    add_(meta.grad, grad);
  }
}

}  // namespace detail
}  // namespace anello
