// Edit distance over short option names.
// Main entry: suggest().
#include <anello/core/suggest.h>

#include <algorithm>
#include <numeric>

namespace anello {
namespace {

size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substituted = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substituted});
    }
  }
  return row.back();
}

}  // namespace

std::string suggest(std::string_view wrong, const std::vector<std::string_view>& valid) {
  if (valid.empty()) return "";
  const auto nearest = std::min_element(valid.begin(), valid.end(), [&](std::string_view a, std::string_view b) {
    return edit_distance(wrong, a) < edit_distance(wrong, b);
  });
  std::string text = " Hint: did you mean '" + std::string(*nearest) + "'? Valid: ";
  for (size_t i = 0; i < valid.size(); ++i) text.append(i == 0 ? "" : ", ").append(valid[i]);
  return text + ".";
}

}  // namespace anello
