// An ordered list of named tensors: the state of a model or an optimizer, and what a safetensors file holds.
// Main entry: TensorMap.
#pragma once

#include <anello/core/tensor.h>

#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace anello {

/// Names in the order they were set, each with a tensor handle (no copy of the data). Lookup is by hash.
class TensorMap {
 public:
  using Item = std::pair<std::string, Tensor>;
  TensorMap() = default;
  TensorMap(std::initializer_list<Item> items) {
    for (const Item& item : items) set(item.first, item.second);
  }
  /// Adds a name at the end, or replaces the tensor of a known one.
  void set(const std::string& name, Tensor tensor) {
    const auto [place, is_new] = places_.try_emplace(name, items_.size());
    if (is_new)
      items_.emplace_back(name, std::move(tensor));
    else
      items_[place->second].second = std::move(tensor);
  }
  /// The tensor, or null. The pointer is good until the next set().
  const Tensor* find(const std::string& name) const {
    const auto place = places_.find(name);
    return place == places_.end() ? nullptr : &items_[place->second].second;
  }
  bool contains(const std::string& name) const { return places_.contains(name); }
  /// The tensor; raises IndexError that names what is missing.
  const Tensor& at(const std::string& name) const {
    const Tensor* tensor = find(name);
    check<IndexError>(tensor != nullptr, "TensorMap", "there is no tensor '", name, "' among ", size());
    return *tensor;
  }
  size_t size() const { return items_.size(); }
  bool empty() const { return items_.empty(); }
  auto begin() const { return items_.begin(); }
  auto end() const { return items_.end(); }

 private:
  std::vector<Item> items_;
  std::unordered_map<std::string, size_t> places_;
};

}  // namespace anello
