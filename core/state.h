// The state of anything that can be saved and taken up again: tensors and plain values by name.
// Main entry: State, State::put(), State::part().
#pragma once

#include <anello/core/tensor_map.h>

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace anello {

/// Stands in a state for a part that has no entries, so that it is still there after loading.
struct EmptyPart {
  friend bool operator==(const EmptyPart&, const EmptyPart&) = default;
};

/// A plain value of a state; monostate is "no value" (Python: None). Numbers keep their kind and every bit. An empty
/// list comes back from a file as one of integers, and passes for any other kind of list.
using StateValue = std::variant<std::monostate, bool, int64_t, double, std::string, std::vector<bool>,
                                std::vector<int64_t>, std::vector<double>, std::vector<std::string>, EmptyPart>;

/// What optimizers, schedules and samplers hand over and take back. Parts are joined under dotted prefixes.
struct State {
  State() = default;
  State(TensorMap t) : tensors(std::move(t)) {}  // implicit: put("model", net.state_dict())

  TensorMap tensors;
  std::map<std::string, StateValue> values;

  /// Adds every entry of `part` under "prefix.name".
  void put(const std::string& prefix, const State& part) {
    for (const auto& [name, tensor] : part.tensors) tensors.set(prefix + '.' + name, tensor);
    for (const auto& [name, value] : part.values) values[prefix + '.' + name] = value;
  }
  /// The entries under "prefix.", without it; empty when there are none.
  State part(const std::string& prefix) const {
    const std::string start = prefix + '.';
    State found;
    for (const auto& [name, tensor] : tensors)
      if (name.starts_with(start)) found.tensors.set(name.substr(start.size()), tensor);
    for (const auto& [name, value] : values)
      if (name.starts_with(start)) found.values[name.substr(start.size())] = value;
    return found;
  }
  /// The value as T, one of the alternatives of StateValue. Raises IndexError when it is missing, DTypeError when it is
  /// another kind of value (a whole number passes for a double). With `op`, who asks, a missing value is a
  /// ValueError: the state is no state of theirs.
  template <class T>
  T get(const std::string& name, std::string_view op = {}) const {
    const auto place = values.find(name);
    if (place == values.end() && !op.empty())
      fail<ValueError>(op, "the state has no value '", name, "'. Hint: pass what state_dict() gave.");
    check<IndexError>(place != values.end(), "State", "there is no value '", name, "'");
    if constexpr (std::is_same_v<T, double>)
      if (const auto* whole = std::get_if<int64_t>(&place->second)) return static_cast<double>(*whole);
    if constexpr (std::is_same_v<T, std::vector<double>>)
      if (const auto* whole = std::get_if<std::vector<int64_t>>(&place->second)) return {whole->begin(), whole->end()};
    if constexpr (std::is_same_v<T, std::vector<bool>> || std::is_same_v<T, std::vector<std::string>>)
      if (const auto* list = std::get_if<std::vector<int64_t>>(&place->second); list != nullptr && list->empty())
        return {};
    const T* value = std::get_if<T>(&place->second);
    check<DTypeError>(value != nullptr, op.empty() ? "State" : op, "'", name,
                      "' is another kind of value than was asked for");
    return *value;
  }
};

}  // namespace anello
