// Training states in one file: tensors as safetensors, values as JSON in its metadata.
// Main entry: save_checkpoint(), load_checkpoint().
#include <anello/core/checkpoint.h>

#include <anello/core/atomic_file.h>

#include <cmath>
#include <nlohmann/json.hpp>

namespace anello {

namespace {
using Json = nlohmann::ordered_json;
constexpr const char* kValues = "anello.values";
constexpr const char* kVersion = "anello.version";

/// JSON knows no infinity and no NaN, so these are written as texts in an object.
Json to_json(double value) {
  if (std::isfinite(value)) return value;
  return Json{{"float", std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf"}};
}

Json to_json(const StateValue& value) {
  if (const auto* real = std::get_if<double>(&value)) return to_json(*real);
  if (const auto* reals = std::get_if<std::vector<double>>(&value)) {
    Json list = Json::array();
    for (double real : *reals) list.push_back(to_json(real));
    return list;
  }
  return std::visit([](const auto& plain) { return Json(plain); }, value);
}

bool is_real(const Json& value) { return value.is_number_float() || (value.is_object() && value.contains("float")); }

double real_of(const Json& value) {
  if (value.is_number()) return value.get<double>();
  const auto text = value.at("float").get<std::string>();
  if (text == "nan") return std::numeric_limits<double>::quiet_NaN();
  return text == "inf" ? std::numeric_limits<double>::infinity() : -std::numeric_limits<double>::infinity();
}

StateValue value_of(const Json& value) {
  if (value.is_boolean()) return value.get<bool>();
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number_integer()) return value.get<int64_t>();
  if (!value.is_array()) return real_of(value);
  bool real = false;
  for (const Json& item : value) real |= is_real(item);
  if (!real) return value.get<std::vector<int64_t>>();
  std::vector<double> reals;
  for (const Json& item : value) reals.push_back(real_of(item));
  return reals;
}
}  // namespace

void save_checkpoint(const std::string& path, const State& state) {
  Json values = Json::object();
  for (const auto& [name, value] : state.values) values[name] = to_json(value);
  std::string compact, readable;
  try {
    compact = values.dump();
    readable = values.dump(1, '\t') + "\n";
  } catch (const Json::exception&) {
    fail<ValueError>("save_checkpoint", "a name or a text among the values is not valid UTF-8");
  }
  save_safetensors(path, state.tensors, {{kVersion, "1"}, {kValues, compact}});
  AtomicFile beside(path + ".json");
  beside.write(readable);
  beside.commit();
}

State load_checkpoint(const std::string& path) {
  Safetensors file = load_safetensors(path);
  const auto values = file.metadata.find(kValues);
  check<IoError>(values != file.metadata.end(), "load_checkpoint", "'", path,
                 "' holds tensors but no training state. Hint: load_safetensors() reads weights alone.");
  State state(std::move(file.tensors));
  try {
    const Json parsed = Json::parse(values->second);
    check<IoError>(parsed.is_object(), "load_checkpoint", "'", path, "' has damaged values: not a JSON object");
    for (const auto& [name, value] : parsed.items()) state.values[name] = value_of(value);
  } catch (const Json::exception& e) {
    fail<IoError>("load_checkpoint", "'", path, "' has damaged values: ", e.what());
  }
  return state;
}

}  // namespace anello
