// Modules that hold other modules.
// Main entry: Sequential::forward().
#include <anello/layers/container.h>

namespace anello::nn {

ModuleList::ModuleList(const std::vector<std::shared_ptr<Module>>& modules) {
  for (const std::shared_ptr<Module>& module : modules) append(module);
}

ModuleList& ModuleList::append(std::shared_ptr<Module> module) {
  return append(std::to_string(size()), std::move(module));
}

ModuleList& ModuleList::append(const std::string& name, std::shared_ptr<Module> module) {
  check<ValueError>(find_module(name) == nullptr, class_name(), "there is a module '", name, "' already");
  set_module(name, std::move(module));
  return *this;
}

size_t ModuleList::place(int64_t index) const {
  const int64_t count = size(), from_start = index < 0 ? index + count : index;
  check<IndexError>(from_start >= 0 && from_start < count, class_name(), "index ", index, " is outside of ", count,
                    " modules");
  return static_cast<size_t>(from_start);
}

std::shared_ptr<Module> ModuleList::at(int64_t index) const { return slots()[place(index)]->module; }

void ModuleList::set(int64_t index, std::shared_ptr<Module> module) {
  set_module(slots()[place(index)]->name, std::move(module));
}

Sequential::Sequential(const std::vector<std::pair<std::string, std::shared_ptr<Module>>>& modules) {
  for (const auto& [name, module] : modules) append(name, module);
}

Tensor Sequential::forward(const Tensor& x) {
  Tensor y = x;
  for (const auto& slot : slots()) y = (*slot->module)(y);
  return y;
}

}  // namespace anello::nn
