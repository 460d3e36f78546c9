// "Did you mean": the valid option nearest to a wrong one, for error messages.
// Main entry: suggest().
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace anello {

/// " Hint: did you mean 'mean'? Valid: none, mean, sum." with the option of the smallest edit distance.
std::string suggest(std::string_view wrong, const std::vector<std::string_view>& valid);

}  // namespace anello
