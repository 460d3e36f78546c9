// Registration and firing of the two hooks.
// Main entry: on_backward_end(), Tensor::on_grad_ready().
#include <anello/autograd/grad_meta.h>

#include <atomic>

namespace anello {
namespace {

std::atomic<uint64_t> next_id{1};

struct EndHooks {
  std::mutex mutex;
  std::map<uint64_t, std::function<void(const BackwardStatus&)>> list;
};
EndHooks& end_hooks() {
  static auto* const instance = new EndHooks;  // never destroyed: handles may outlive main()
  return *instance;
}

}  // namespace

HookHandle on_backward_end(std::function<void(const BackwardStatus&)> hook) {
  const uint64_t id = next_id++;
  EndHooks& hooks = end_hooks();
  const std::lock_guard lock(hooks.mutex);
  hooks.list.emplace(id, std::move(hook));
  return HookHandle([id] {
    EndHooks& h = end_hooks();
    std::function<void(const BackwardStatus&)> removed;  // destroyed outside the lock
    const std::lock_guard guard(h.mutex);
    if (const auto place = h.list.find(id); place != h.list.end()) {
      removed = std::move(place->second);
      h.list.erase(place);
    }
  });
}

HookHandle Tensor::on_grad_ready(std::function<void(const Tensor&)> hook) const {
  check<Error>(is_leaf() && requires_grad(), "on_grad_ready",
               "only a leaf that requires a gradient has this event. Hint: call it on a parameter.");
  const uint64_t id = next_id++;
  detail::meta_of(*this).ready_hooks.emplace(id, std::move(hook));
  // The handle must not keep the tensor alive; the accumulator knows whether it still is.
  return HookHandle([id, accumulator = detail::meta_of(*this).accumulator] {
    if (const Tensor leaf = accumulator->leaf(); leaf.defined()) detail::meta_of(leaf).ready_hooks.erase(id);
  });
}

namespace detail {

void fire_ready_hooks(const Tensor& leaf) {
  const GradMeta* meta = find_meta(leaf);
  if (meta == nullptr || meta->ready_hooks.empty()) return;
  const auto hooks = meta->ready_hooks;  // a hook may remove itself
  for (const auto& [id, hook] : hooks) hook(leaf);
}

void fire_backward_end(const BackwardStatus& status) {
  std::map<uint64_t, std::function<void(const BackwardStatus&)>> hooks;
  {
    EndHooks& h = end_hooks();
    const std::lock_guard lock(h.mutex);
    hooks = h.list;
  }
  for (const auto& [id, hook] : hooks) hook(status);
}

}  // namespace detail
}  // namespace anello
