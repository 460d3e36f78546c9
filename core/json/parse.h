// JSON from files, which may hold anything: nlohmann-json behind a limit of depth, and texts of bounded length.
// Main entry: parse_json(), shorten(). Not installed: no public header includes it.
#pragma once

#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

namespace anello::detail {

using Json = nlohmann::ordered_json;

/// What is wrong with a text that should be JSON.
class JsonError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// At most `most` bytes of a text for an error message, the middle left out of a longer one.
inline std::string shorten(const std::string& text, size_t most = 200) {
  if (text.size() <= most) return text;
  size_t head = most * 2 / 3, tail = text.size() - most / 3;
  const auto inside = [&](size_t i) { return (static_cast<unsigned char>(text[i]) & 0xC0) == 0x80; };
  while (head > 0 && inside(head)) --head;
  while (tail < text.size() && inside(tail)) ++tail;
  return text.substr(0, head) + " ... " + text.substr(tail);
}

/// Objects and lists may lie at most `depth` deep (the library's functions call themselves for each level), and no
/// object may have a name twice. Raises JsonError.
inline Json parse_json(const std::string& text, size_t depth) {
  std::vector<std::set<std::string>> names;  // of the objects around; an empty set for a list
  const auto watch = [&](int, Json::parse_event_t event, Json& parsed) {
    switch (event) {
      case Json::parse_event_t::object_start:
      case Json::parse_event_t::array_start:
        names.emplace_back();
        if (names.size() > depth) throw JsonError("it is nested deeper than " + std::to_string(depth) + " levels");
        break;
      case Json::parse_event_t::object_end:
      case Json::parse_event_t::array_end:
        names.pop_back();
        break;
      case Json::parse_event_t::key:
        if (const auto name = parsed.get<std::string>(); !names.back().insert(name).second)
          throw JsonError("it has '" + shorten(name) + "' twice");
        break;
      case Json::parse_event_t::value:
        break;
    }
    return true;
  };
  try {
    return Json::parse(text, watch);
  } catch (const Json::exception& e) {
    throw JsonError(shorten(e.what()));
  }
}

}  // namespace anello::detail
