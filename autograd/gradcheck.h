// Compares analytic gradients with central differences.
// Main entry: gradcheck(f, inputs).
#pragma once

#include <anello/core/tensor.h>

#include <functional>
#include <vector>

namespace anello {

struct GradcheckOptions {
  double eps = 1e-6;          ///< step of the central difference
  double atol = 1e-5;         ///< allowed absolute error
  double rtol = 1e-3;         ///< allowed relative error
  bool second_order = false;  ///< also checks the gradient of the gradient (create_graph)
};

/// Checks every element of every float64 input that requires a gradient; f may return any number of tensors.
/// Raises Error that names input, element, analytic and numeric value at the first mismatch; DTypeError when an input
/// that requires a gradient is not float64. Returns true.
bool gradcheck(const std::function<std::vector<Tensor>(const std::vector<Tensor>&)>& f,
               const std::vector<Tensor>& inputs, const GradcheckOptions& options = {});

}  // namespace anello
