// Whether all ranks hold the same parameters: names and shapes at the start, values now and then.
// Main entry: broadcast_module(), check_same_values().
#pragma once

#include <anello/dist/communicator.h>
#include <anello/layers/module.h>

#include <string>
#include <utility>
#include <vector>

namespace anello::dist {

using NamedTensors = std::vector<std::pair<std::string, Tensor>>;

/// Raises DistError on every rank, naming the rank and the first tensor that differs from rank 0's in name, shape,
/// dtype or requires_grad. Collective.
void check_same_layout(Communicator& communicator, const NamedTensors& tensors);
/// Copies root's values to all ranks, in place. Collective; the layouts are the same.
void broadcast_tensors(Communicator& communicator, const NamedTensors& tensors, int root = 0);
/// Parameters and buffers of all ranks become rank 0's; checked before (layout) and after (values). Collective.
void broadcast_module(Communicator& communicator, const nn::Module& module);
/// Compares 64-bit checksums of the bytes. Raises DistError on every rank, naming the ranks that differ from most
/// others and the first tensor in which they do. `when` ends the first sentence ("after 500 steps"). Collective.
void check_same_values(Communicator& communicator, const NamedTensors& tensors, const std::string& when);
/// A hash of a tensor's bytes in row-major order; NaNs and signed zeros count as the bits they are.
uint64_t checksum(const Tensor& tensor);

}  // namespace anello::dist
