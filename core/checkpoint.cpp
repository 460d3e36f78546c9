// Training states in one file: tensors as safetensors, values as JSON in its metadata.
// Main entry: save_checkpoint(), load_checkpoint().
#include <anello/core/checkpoint.h>

#include <anello/core/atomic_file.h>

#include <anello/core/json/parse.h>

#include <cmath>

namespace anello {

namespace {
using detail::Json;
constexpr const char* kValues = "anello.values";
constexpr const char* kVersion = "anello.version";
constexpr size_t kValuesDepth = 8;  // an object of lists of objects {"float": "nan"}

/// JSON knows no infinity and no NaN, so these are written as texts in an object.
Json to_json(double value) {
  if (std::isfinite(value)) return value;
  return Json{{"float", std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf"}};
}
Json to_json(const std::vector<double>& values) {
  Json list = Json::array();
  for (double value : values) list.push_back(to_json(value));
  return list;
}
Json to_json(std::monostate) { return nullptr; }
Json to_json(EmptyPart) { return Json::object(); }
template <class T>
Json to_json(const T& value) {
  return Json(value);
}

double real_of(const Json& value) {
  if (value.is_number()) return value.get<double>();
  const auto text = value.at("float").get<std::string>();
  if (text == "nan") return std::numeric_limits<double>::quiet_NaN();
  if (text == "inf" || text == "-inf") return text == "inf" ? INFINITY : -INFINITY;
  throw detail::JsonError("'" + detail::shorten(text, 40) + "' is not a number");
}

int64_t integer_of(const Json& value) {
  if (value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX))
    throw detail::JsonError(value.dump() + " does not fit in 64 bits");
  return value.get<int64_t>();
}

enum class Kind { boolean, integer, real, text, other };
Kind kind_of(const Json& value) {
  if (value.is_boolean()) return Kind::boolean;
  if (value.is_string()) return Kind::text;
  if (value.is_number_integer()) return Kind::integer;
  return value.is_number_float() || (value.is_object() && value.contains("float")) ? Kind::real : Kind::other;
}

StateValue list_of(const Json& list) {
  if (list.empty()) return std::vector<int64_t>();
  Kind kind = kind_of(list[0]);
  for (const Json& item : list) {
    const Kind other = kind_of(item);
    const bool numbers = std::min(kind, other) == Kind::integer && std::max(kind, other) == Kind::real;
    if ((kind != other && !numbers) || other == Kind::other)
      throw detail::JsonError("a list mixes kinds: " + detail::shorten(list.dump(), 80));
    if (numbers) kind = Kind::real;
  }
  if (kind == Kind::boolean) return list.get<std::vector<bool>>();
  if (kind == Kind::text) return list.get<std::vector<std::string>>();
  std::vector<int64_t> integers;
  std::vector<double> reals;
  for (const Json& item : list)
    kind == Kind::real ? reals.push_back(real_of(item)) : integers.push_back(integer_of(item));
  if (kind == Kind::real) return reals;
  return integers;
}

StateValue value_of(const Json& value) {
  if (value.is_null()) return std::monostate();
  if (value.is_object() && value.empty()) return EmptyPart();
  if (value.is_array()) return list_of(value);
  switch (kind_of(value)) {
    case Kind::boolean:
      return value.get<bool>();
    case Kind::text:
      return value.get<std::string>();
    case Kind::integer:
      return integer_of(value);
    default:
      return real_of(value);
  }
}
}  // namespace

void save_checkpoint(const std::string& path, const State& state) {
  Json values = Json::object();
  for (const auto& [name, value] : state.values) {
    check<ValueError>(state.tensors.find(name) == nullptr, "save_checkpoint", "'", name,
                      "' names a tensor and a value. Hint: rename one.");
    values[name] = std::visit([](const auto& plain) { return to_json(plain); }, value);
  }
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
    const Json parsed = detail::parse_json(values->second, kValuesDepth);
    check<IoError>(parsed.is_object(), "load_checkpoint", "'", path, "' has damaged values: not a JSON object");
    for (const auto& [name, value] : parsed.items()) state.values[name] = value_of(value);
  } catch (const Json::exception& e) {
    fail<IoError>("load_checkpoint", "'", path, "' has damaged values: ", detail::shorten(e.what()));
  } catch (const detail::JsonError& e) {
    fail<IoError>("load_checkpoint", "'", path, "' has damaged values: ", e.what());
  }
  return state;
}

}  // namespace anello
