// The base of all layers and networks: parameters, buffers and sub-modules by name, in the order they were registered.
// Main entry: derive from nn::Module, add<T>("name", ...) or register_parameter() in it, override forward().
//
//   struct Net : anello::nn::Module {
//     nn::Child<nn::Linear> fc1 = add<nn::Linear>("fc1", 784, 128);
//     nn::Child<nn::Linear> fc2 = add<nn::Linear>("fc2", 128, 10);
//     Tensor forward(const Tensor& x) override { return fc2(relu(fc1(x))); }
//   };
#pragma once

#include <anello/core/tensor_map.h>

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

namespace anello::nn {

class Module;

namespace detail {
/// A registered sub-module. A typed Child reads through it, so that replacing the module is seen by the C++ code too.
struct ModuleSlot {
  std::string name;
  std::shared_ptr<Module> module;
  bool (*accepts)(const Module&) = nullptr;  ///< null: anything
  std::string type;                          ///< the class a typed slot asks for
};
/// "Linear" of a type: the class name without namespaces.
std::string short_type_name(const std::type_info& type);
}  // namespace detail

/// A member that stands for a registered sub-module: `fc1(x)` calls it, `fc1->weight` reaches into it. Reads through
/// the registration, so a module that replaces it (set_module, or an assignment in Python) is the one used from then
/// on.
template <class T>
class Child {
 public:
  explicit Child(std::shared_ptr<detail::ModuleSlot> slot) : slot_(std::move(slot)) {}
  T* get() const { return static_cast<T*>(slot_->module.get()); }
  T* operator->() const { return get(); }
  T& operator*() const { return *get(); }
  std::shared_ptr<T> shared() const { return std::static_pointer_cast<T>(slot_->module); }
  template <class... Args>
  auto operator()(Args&&... args) const {
    return (*get())(std::forward<Args>(args)...);
  }

 private:
  std::shared_ptr<detail::ModuleSlot> slot_;
};

/// What load_state_dict(strict = false) passed over.
struct LoadReport {
  std::vector<std::string> missing;     ///< names the module has and the state lacks
  std::vector<std::string> unexpected;  ///< names the state has and the module lacks
};

/// Not thread-safe: one thread registers, moves or loads; forward may run in several when the layers in it keep no
/// state. Not copyable: registrations point into the object. Errors are named after the class: "[Linear] ...".
class Module {
 public:
  Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;
  virtual ~Module() = default;

  /// The computation. The default raises Error. A module of several inputs has a forward() and operator() of its own.
  virtual Tensor forward(const Tensor& x);
  Tensor operator()(const Tensor& x) { return forward(x); }

  // --- The registry. Names are not empty and hold no '.'; one name is one thing. Breaking that raises ValueError. ---

  /// Sets a parameter by name: a known one is replaced (a C++ member that was registered for it too, so that tying
  /// works), a new one is added at the end. An undefined tensor stands for an absent one (`bias`). Raises DTypeError
  /// unless it is a float tensor and ValueError unless it is a leaf; does not touch requires_grad().
  void set_parameter(const std::string& name, const Tensor& value);
  /// The same for a buffer: a tensor that is saved and moved but not trained. Not persistent: moved, but not saved.
  void set_buffer(const std::string& name, const Tensor& value, bool persistent = true);
  /// The same for a sub-module (not null). Raises ValueError when it is, or holds, this module: the tree has no cycles.
  /// One module may be registered in several places. Raises DTypeError when a C++ member asks for another class.
  void set_module(const std::string& name, std::shared_ptr<Module> module);
  /// Takes a parameter, buffer or module out. Raises IndexError for an unknown name, Error for one that a C++ member
  /// stands for.
  void remove(const std::string& name);

  /// This module's own entry, or null. The pointers are the slots themselves.
  Tensor* find_parameter(std::string_view name);
  Tensor* find_buffer(std::string_view name);
  std::shared_ptr<Module> find_module(std::string_view name) const;
  /// By path: "layer1.0.conv1". Raises IndexError that lists what there is.
  Module& get_module(std::string_view path);

  // --- Walking. Depth first in the order of registration, this module's own before its children's. A tensor or module
  //     that is registered twice comes once, under its first name; undefined ones do not come. ---

  std::vector<std::pair<std::string, Tensor>> named_parameters(bool recurse = true) const;
  std::vector<std::pair<std::string, Tensor>> named_buffers(bool recurse = true) const;
  std::vector<Tensor> parameters() const;
  std::vector<Tensor> buffers() const;
  std::vector<std::pair<std::string, std::shared_ptr<Module>>> named_children() const;
  std::vector<std::shared_ptr<Module>> children() const;
  /// This module under "" and every one below.
  std::vector<std::pair<std::string, Module*>> named_modules();
  std::vector<std::pair<std::string, const Module*>> named_modules() const;
  /// Calls f on every module, children before their parent.
  Module& apply(const std::function<void(Module&)>& f);
  /// Number of elements of all parameters.
  int64_t num_parameters(bool trainable_only = false) const;

  // --- State ---

  /// Training (the default) or evaluation mode, for this module and everything below. Override to keep a part fixed.
  virtual void train(bool mode = true);
  void eval() { train(false); }
  bool is_training() const { return training_; }

  /// Converts float parameters and buffers to a float dtype (integers stay). The tensors keep their identity, so
  /// optimizers and ties hold; gradients and gradient destinations are dropped. Raises DTypeError for another dtype.
  Module& to(DType dtype);
  /// Moves everything to a device, with identity as above.
  Module& to(Device device);
  /// Makes every gradient undefined (a gradient destination stays).
  void zero_grad();
  Module& requires_grad_(bool requires_grad = true);

  /// All parameters and persistent buffers under their full names, a shared tensor under each of its names. The tensors
  /// are detached but share memory with the module: clone what must not follow training.
  TensorMap state_dict() const;
  /// Copies values in place (converting between float dtypes). Names, shapes and kinds of dtype are all checked first:
  /// one error lists everything that is missing, unexpected or does not fit, and nothing has changed then. Not strict:
  /// missing and unexpected names are returned, not raised.
  LoadReport load_state_dict(const TensorMap& state, bool strict = true);

  // --- Text ---

  /// The class's name in errors and repr(); by default that of the C++ type.
  virtual std::string class_name() const;
  /// What stands between the parentheses: "in_features=784, out_features=128".
  virtual std::string extra_repr() const { return ""; }
  /// The tree with the number of parameters of each part, and the total at the end.
  std::string repr() const;

 protected:
  /// Gives a member its value and registers it; the registry then reads and writes that member. Sets requires_grad.
  void register_parameter(const std::string& name, Tensor& member, const Tensor& value);
  void register_buffer(const std::string& name, Tensor& member, const Tensor& value, bool persistent = true);
  /// Registers a sub-module and returns the member that stands for it.
  template <class T>
  Child<T> add(const std::string& name, std::shared_ptr<T> module) {
    static_assert(std::is_base_of_v<Module, T>);
    return Child<T>(add_slot(
        name, std::move(module), [](const Module& m) { return dynamic_cast<const T*>(&m) != nullptr; },
        detail::short_type_name(typeid(T))));
  }
  /// add() of a new T(args...).
  template <class T, class... Args>
  requires std::is_constructible_v<T, Args...> Child<T> add(const std::string& name, Args&&... args) {
    return add<T>(name, std::make_shared<T>(std::forward<Args>(args)...));
  }
  /// The sub-modules as registered, for containers.
  const std::vector<std::shared_ptr<detail::ModuleSlot>>& slots() const { return modules_; }
  /// Lets all sub-modules go (for containers, and for a garbage collector that breaks a ring of references).
  void clear_modules() { modules_.clear(); }

 private:
  struct TensorSlot {
    std::string name;
    Tensor* tensor;                   ///< the C++ member, or owned.get()
    std::unique_ptr<Tensor> owned{};  ///< set when there is no member
    bool persistent = true;
  };
  std::shared_ptr<detail::ModuleSlot> add_slot(const std::string& name, std::shared_ptr<Module> module,
                                               bool (*accepts)(const Module&), std::string type);
  void check_name(const std::string& name) const;
  void check_new(const std::string& name) const;
  void check_acyclic(const std::string& name, const Module* module) const;
  void check_parameter(const std::string& name, const Tensor& value) const;
  static void name_parameters(const Module& module, const std::string& path);
  void convert(const std::function<Tensor(const Tensor&)>& f);
  std::vector<std::pair<std::string, Tensor>> named_tensors(std::vector<TensorSlot> Module::*slots, bool recurse) const;
  void collect_state(const std::string& prefix, TensorMap& state) const;
  std::string tree(const std::string& indent) const;

  std::vector<TensorSlot> parameters_, buffers_;
  std::vector<std::shared_ptr<detail::ModuleSlot>> modules_;
  bool training_ = true;
};

std::ostream& operator<<(std::ostream& out, const Module& module);

}  // namespace anello::nn
