// Modules that hold other modules.
// Main entry: Sequential, ModuleList.
#pragma once

#include <anello/layers/module.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace anello::nn {

/// Modules under "0", "1", ... or names of their own. The same module may stand in several places.
class ModuleList : public Module {
 public:
  ModuleList() = default;
  explicit ModuleList(const std::vector<std::shared_ptr<Module>>& modules);

  /// Adds at the end, named by its place; raises ValueError when a module of that name is there.
  ModuleList& append(std::shared_ptr<Module> module);
  ModuleList& append(const std::string& name, std::shared_ptr<Module> module);
  /// append() of a new T(args...).
  template <class T, class... Args>
  ModuleList& append(Args&&... args) {
    return append(std::shared_ptr<Module>(std::make_shared<T>(std::forward<Args>(args)...)));
  }
  int64_t size() const { return static_cast<int64_t>(slots().size()); }
  /// The module at a place, from the end when negative; raises IndexError outside.
  std::shared_ptr<Module> at(int64_t index) const;
  Module& operator[](int64_t index) const { return *at(index); }
  /// Puts another module at a place.
  void set(int64_t index, std::shared_ptr<Module> module);
  std::string class_name() const override { return "ModuleList"; }

 private:
  size_t place(int64_t index) const;
};

/// Calls its modules one after the other.
class Sequential : public ModuleList {
 public:
  using ModuleList::ModuleList;
  explicit Sequential(const std::vector<std::pair<std::string, std::shared_ptr<Module>>>& modules);
  Tensor forward(const Tensor& x) override;
  std::string class_name() const override { return "Sequential"; }
};

}  // namespace anello::nn
