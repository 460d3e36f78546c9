// Python callables that hang on tensors, graph nodes and backward, and how the garbage collector sees them.
// Main entry: bind_hooks(), visit_attached().
#include "hooks.h"

#include "bindings.h"
#include "tensor_type.h"

#include <anello/autograd/hooks.h>
#include <anello/autograd/node.h>

#include <mutex>
#include <unordered_map>

namespace anello::python {
namespace {

/// Which Python objects hang on which C++ object. Entries come and go on any thread.
struct Registry {
  std::mutex mutex;
  std::unordered_multimap<const void*, PyObject*> attached;
};
Registry& registry() {
  static auto* const instance = new Registry;  // never destroyed: hooks may go at exit
  return *instance;
}

int visit_objects(const void* owner, visitproc visit, void* arg) {
  Registry& r = registry();
  const std::lock_guard lock(r.mutex);
  const auto [begin, end] = r.attached.equal_range(owner);
  for (auto it = begin; it != end; ++it) Py_VISIT(it->second);
  return 0;
}

}  // namespace

Attached::Attached(const void* owner, const py::object& object) : owner_(owner), object_(object), raw_(object.ptr()) {
  Registry& r = registry();
  const std::lock_guard lock(r.mutex);
  r.attached.emplace(owner, raw_);
}

Attached::~Attached() {
  Registry& r = registry();
  const std::lock_guard lock(r.mutex);
  const auto [begin, end] = r.attached.equal_range(owner_);
  for (auto it = begin; it != end; ++it) {
    if (it->second != raw_) continue;
    r.attached.erase(it);
    break;
  }
}

int visit_attached(const Tensor& tensor, visitproc visit, void* arg) {
  if (const int stop = visit_objects(&tensor.impl(), visit, arg)) return stop;
  if (!tensor.impl().grad_slot) return 0;
  // The node's Python object is only ours to report while this tensor alone holds the node (here and in its slot).
  const Ref<Node> node = grad_fn(tensor);
  return node && node->use_count() == 2 ? visit_objects(node.get(), visit, arg) : 0;
}

void bind_hooks(py::module_& m) {
  Definer define(m);
  py::class_<HookHandle>(m, "HookHandle",
                         "The registration of a hook; remove() ends it. Letting the handle go does not.")
      .def(
          "remove",
          [](const HookHandle& handle) {
            const GilRelease release;
            handle.remove();
          },
          "Ends the registration. May be called twice, and from inside the hook.");
  py::class_<BackwardStatus>(m, "BackwardStatus", "How an outermost backward() ended.")
      .def_readonly("ok", &BackwardStatus::ok, "False when it raised.")
      .def_readonly("error", &BackwardStatus::error, "The message when it raised, else ''.");
  define.method(
      "on_grad_ready",
      [](const Tensor& x, const py::function& hook) {
        auto held = std::make_shared<Attached>(&x.impl(), hook);
        return x.on_grad_ready([held](const Tensor& leaf) {
          const GilAcquire gil;
          held->get()(leaf);
        });
      },
      py::arg("hook"),
      R"(Calls hook(tensor) once in every backward(), after this leaf's gradient received its last contribution; not for
autograd.grad(). Returns a handle with remove(). Raises Error on a tensor that is not a leaf requiring a gradient.

>>> import anello
>>> x = anello.tensor(3.0, requires_grad=True)
>>> handle = x.on_grad_ready(lambda t: print("ready", t.grad.item()))
>>> (x * x).backward()
ready 6.0
>>> handle.remove()
)");
  m.def(
      "on_backward_end",
      [](const py::function& hook) {
        return on_backward_end([held = SharedObject(hook)](const BackwardStatus& status) {
          const GilAcquire gil;
          held.get()(status);
        });
      },
      py::arg("hook"),
      R"(Calls hook(status) at the end of every outermost backward() of any thread, also of one that fails (status.ok
is False then, and status.error its message). Returns a handle with remove().

>>> import anello
>>> handle = anello.autograd.on_backward_end(lambda status: print("ok", status.ok))
>>> anello.tensor(3.0, requires_grad=True).backward()
ok True
>>> handle.remove()
)");
}

}  // namespace anello::python
