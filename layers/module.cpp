// The registry behind every module: what is registered, under which names, and walking over it.
// Main entry: Module::set_parameter(), Module::named_parameters(). State and text are in module_state.cpp.
#include <anello/layers/module.h>

#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>
#include <unordered_set>

namespace anello::nn {

namespace {
template <class Slots>
auto find_slot(Slots& slots, std::string_view name) {
  return std::find_if(slots.begin(), slots.end(), [&](const auto& slot) { return slot.name == name; });
}
template <class Slots>
auto find_module_slot(Slots& slots, std::string_view name) {
  return std::find_if(slots.begin(), slots.end(), [&](const auto& slot) { return slot->name == name; });
}
std::string join(const std::string& path, const std::string& name) { return path.empty() ? name : path + '.' + name; }

void list_modules(Module* module, const std::string& path, std::unordered_set<const Module*>& seen,
                  std::vector<std::pair<std::string, Module*>>& found) {
  if (!seen.insert(module).second) return;
  found.emplace_back(path, module);
  for (const auto& [name, child] : module->named_children()) list_modules(child.get(), join(path, name), seen, found);
}
}  // namespace

std::string detail::short_type_name(const std::type_info& type) {
  int status = 0;
  char* text = abi::__cxa_demangle(type.name(), nullptr, nullptr, &status);
  std::string name = status == 0 ? text : type.name();
  std::free(text);
  const size_t template_arguments = name.find('<');
  const size_t colon = name.rfind(':', template_arguments);
  return colon == std::string::npos ? name : name.substr(colon + 1);
}

Tensor Module::forward(const Tensor&) {
  fail(class_name(),
       "forward is not defined. Hint: override forward(x), or call the forward of its own that this class has.");
}

// --- Checks ---

void Module::check_name(const std::string& name) const {
  check<ValueError>(!name.empty(), class_name(), "a parameter, buffer or module needs a name, got ''");
  check<ValueError>(name.find('.') == std::string::npos, class_name(), "the name '", name,
                    "' holds a '.', which separates levels. Hint: register it on the sub-module.");
}

void Module::check_new(const std::string& name) const {
  check_name(name);
  const char* kind = find_slot(parameters_, name) != parameters_.end()    ? "parameter"
                     : find_slot(buffers_, name) != buffers_.end()        ? "buffer"
                     : find_module_slot(modules_, name) != modules_.end() ? "module"
                                                                          : nullptr;
  check<ValueError>(kind == nullptr, class_name(), "there is a ", kind == nullptr ? "" : kind, " '", name,
                    "' already. Hint: choose another name, or remove() it first.");
}

void Module::check_acyclic(const std::string& name, const Module* module) const {
  check<ValueError>(module != nullptr, class_name(), "the module for '", name, "' is null");
  for (const auto& [path, m] : module->named_modules())
    check<ValueError>(m != this, class_name(), "registering '", name, "' would make a cycle: ", module->class_name(),
                      path.empty() ? " is this module itself" : " holds this module as '" + path + "'");
}

void Module::check_parameter(const std::string& name, const Tensor& value) const {
  if (!value.defined()) return;
  check<DTypeError>(is_floating_point(value.dtype()), class_name(), "parameter '", name, "' is ", value.dtype(),
                    ", not a float type. Hint: set_buffer() holds integers.");
  check<ValueError>(value.is_leaf(), class_name(), "parameter '", name,
                    "' was computed by an operation that autograd recorded. Hint: pass value.detach().");
}

// --- The registry ---

void Module::set_parameter(const std::string& name, const Tensor& value) {
  check_parameter(name, value);
  const auto slot = find_slot(parameters_, name);
  if (slot != parameters_.end()) {
    *slot->tensor = value;
  } else {
    check_new(name);
    auto owned = std::make_unique<Tensor>(value);
    Tensor* tensor = owned.get();
    parameters_.push_back({name, tensor, std::move(owned)});
  }
  if (value.defined() && value.name().empty()) value.set_name(name);
}

void Module::set_buffer(const std::string& name, const Tensor& value, bool persistent) {
  const auto slot = find_slot(buffers_, name);
  if (slot != buffers_.end()) {
    *slot->tensor = value;
    slot->persistent = persistent;
    return;
  }
  check_new(name);
  auto owned = std::make_unique<Tensor>(value);
  Tensor* tensor = owned.get();
  buffers_.push_back({name, tensor, std::move(owned), persistent});
}

void Module::set_module(const std::string& name, std::shared_ptr<Module> module) {
  const auto slot = find_module_slot(modules_, name);
  if (slot == modules_.end()) {
    add_slot(name, std::move(module), nullptr, "");
    return;
  }
  check_acyclic(name, module.get());
  check<DTypeError>((*slot)->accepts == nullptr || (*slot)->accepts(*module), class_name(), "'", name, "' is a ",
                    (*slot)->type, ", not a ", module->class_name());
  name_parameters(*module, name);
  (*slot)->module = std::move(module);
}

std::shared_ptr<detail::ModuleSlot> Module::add_slot(const std::string& name, std::shared_ptr<Module> module,
                                                     bool (*accepts)(const Module&), std::string type) {
  check_new(name);
  check_acyclic(name, module.get());
  name_parameters(*module, name);
  modules_.push_back(
      std::make_shared<detail::ModuleSlot>(detail::ModuleSlot{name, std::move(module), accepts, std::move(type)}));
  return modules_.back();
}

void Module::remove(const std::string& name) {
  const auto erase = [&](auto& slots, auto slot, bool bound) {
    check(!bound, class_name(), "'", name, "' is a member of the C++ class and cannot be removed",
          ". Hint: give it another value.");
    slots.erase(slot);
  };
  if (const auto p = find_slot(parameters_, name); p != parameters_.end()) return erase(parameters_, p, !p->owned);
  if (const auto b = find_slot(buffers_, name); b != buffers_.end()) return erase(buffers_, b, !b->owned);
  const auto m = find_module_slot(modules_, name);
  check<IndexError>(m != modules_.end(), class_name(), "there is no parameter, buffer or module '", name, "'");
  erase(modules_, m, (*m)->accepts != nullptr);
}

void Module::register_parameter(const std::string& name, Tensor& member, const Tensor& value) {
  check_new(name);
  check_parameter(name, value);
  member = value;
  if (value.defined()) value.set_requires_grad(true).set_name(name);
  parameters_.push_back({name, &member, nullptr});
}

void Module::register_buffer(const std::string& name, Tensor& member, const Tensor& value, bool persistent) {
  check_new(name);
  member = value;
  buffers_.push_back({name, &member, nullptr, persistent});
}

Tensor* Module::find_parameter(std::string_view name) {
  const auto slot = find_slot(parameters_, name);
  return slot == parameters_.end() ? nullptr : slot->tensor;
}

Tensor* Module::find_buffer(std::string_view name) {
  const auto slot = find_slot(buffers_, name);
  return slot == buffers_.end() ? nullptr : slot->tensor;
}

std::shared_ptr<Module> Module::find_module(std::string_view name) const {
  const auto slot = find_module_slot(modules_, name);
  return slot == modules_.end() ? nullptr : (*slot)->module;
}

Module& Module::get_module(std::string_view path) {
  if (path.empty()) return *this;
  const size_t dot = path.find('.');
  const std::string_view name = path.substr(0, dot);
  const std::shared_ptr<Module> child = find_module(name);
  if (child == nullptr) {
    std::string names;
    for (const auto& slot : modules_) names += (names.empty() ? "" : ", ") + slot->name;
    fail<IndexError>(class_name(), "there is no module '", name, "'. Hint: there ", names.empty() ? "are none" : "is ",
                     names, ".");
  }
  return dot == std::string_view::npos ? *child : child->get_module(path.substr(dot + 1));
}

// --- Walking ---

std::vector<std::pair<std::string, std::shared_ptr<Module>>> Module::named_children() const {
  std::vector<std::pair<std::string, std::shared_ptr<Module>>> found;
  for (const auto& slot : modules_) found.emplace_back(slot->name, slot->module);
  return found;
}

std::vector<std::shared_ptr<Module>> Module::children() const {
  std::vector<std::shared_ptr<Module>> found;
  for (const auto& slot : modules_)
    if (std::find(found.begin(), found.end(), slot->module) == found.end()) found.push_back(slot->module);
  return found;
}

std::vector<std::pair<std::string, Module*>> Module::named_modules() {
  std::vector<std::pair<std::string, Module*>> found;
  std::unordered_set<const Module*> seen;
  list_modules(this, "", seen, found);
  return found;
}

std::vector<std::pair<std::string, const Module*>> Module::named_modules() const {
  std::vector<std::pair<std::string, const Module*>> found;
  for (const auto& [path, module] : const_cast<Module*>(this)->named_modules()) found.emplace_back(path, module);
  return found;
}

std::vector<std::pair<std::string, Tensor>> Module::named_tensors(std::vector<TensorSlot> Module::*slots,
                                                                  bool recurse) const {
  std::vector<std::pair<std::string, Tensor>> found;
  std::unordered_set<const TensorImpl*> seen;
  const auto collect = [&](const std::string& path, const Module& module) {
    for (const TensorSlot& slot : module.*slots)
      if (slot.tensor->defined() && seen.insert(slot.tensor->ref().get()).second)
        found.emplace_back(join(path, slot.name), *slot.tensor);
  };
  if (!recurse) {
    collect("", *this);
  } else {
    for (const auto& [path, module] : named_modules()) collect(path, *module);
  }
  return found;
}

std::vector<std::pair<std::string, Tensor>> Module::named_parameters(bool recurse) const {
  return named_tensors(&Module::parameters_, recurse);
}

std::vector<std::pair<std::string, Tensor>> Module::named_buffers(bool recurse) const {
  return named_tensors(&Module::buffers_, recurse);
}

std::vector<Tensor> Module::parameters() const {
  std::vector<Tensor> found;
  for (auto& [name, tensor] : named_parameters()) found.push_back(std::move(tensor));
  return found;
}

std::vector<Tensor> Module::buffers() const {
  std::vector<Tensor> found;
  for (auto& [name, tensor] : named_buffers()) found.push_back(std::move(tensor));
  return found;
}

// A parameter carries the longest path it was registered under, so that an error can say "layer1.0.conv1.weight".
void Module::name_parameters(const Module& module, const std::string& path) {
  for (const auto& [name, parameter] : module.named_parameters()) {
    const std::string full = join(path, name);
    if (full.size() > parameter.name().size()) parameter.set_name(full);
  }
}

Module& Module::apply(const std::function<void(Module&)>& f) {
  for (const std::shared_ptr<Module>& child : children()) child->apply(f);
  f(*this);
  return *this;
}

}  // namespace anello::nn
