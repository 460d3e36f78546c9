// Runs a graph backward by dependency counts: newest ready node first, a leaf's accumulation at once.
// Main entry: backward(), grad().
#pragma once

#include <anello/core/tensor.h>

#include <vector>

namespace anello {

/// Adds the gradients of `outputs` (weighted by `gradients`; undefined ones count as 1 for single elements) to every
/// leaf's grad(). Saved tensors are released unless retain_graph (create_graph implies it). Iterative: depth costs no
/// stack. Raises Error when a saved tensor was changed in place or released, ShapeError for gradients of another shape.
void backward(const std::vector<Tensor>& outputs, const std::vector<Tensor>& gradients = {}, bool retain_graph = false,
              bool create_graph = false);

/// The gradients of outputs with respect to inputs (leaves or not), without touching any grad() and without firing
/// hooks. An input that the outputs do not depend on raises Error, or is returned undefined when allow_unused.
std::vector<Tensor> grad(const std::vector<Tensor>& outputs, const std::vector<Tensor>& inputs,
                         const std::vector<Tensor>& gradients = {}, bool retain_graph = false,
                         bool create_graph = false, bool allow_unused = false);

}  // namespace anello
