// The signature text of a bound function, taken apart; whether a Python value can be meant by one of its types.
// Main entry: Signature, surely_unfit().
#pragma once

#include "python_object.h"

#include <string>
#include <vector>

namespace anello::python {

struct ParameterText {
  std::string name, type;  ///< the type under its public name: "anello.Tensor | None"
  bool required = true, keyword_only = false;
};

/// What "(input: anello.Tensor, dim: int = 0, *, keepdim: bool = False) -> anello.Tensor" says.
struct Signature {
  explicit Signature(const std::string& text);
  /// Number of parameters that may be given by place.
  size_t places() const;
  std::string text;  ///< between the parentheses, types under their public names
  std::vector<ParameterText> parameters;
  bool any_positional = false, any_keyword = false;  ///< *args, **kwargs
};

/// True when the value certainly is of none of the types: what is not known here counts as fitting.
bool surely_unfit(py::handle value, const std::string& type);

}  // namespace anello::python
