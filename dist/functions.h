// Collective operations that autograd records: the gradient of a result on any rank reaches the inputs of all.
// Main entry: all_reduce(), all_gather(), broadcast(), reduce_scatter(), all_to_all() of namespace anello::dist.
#pragma once

#include <anello/core/tensor.h>
#include <anello/dist/communicator.h>

#include <cstdint>
#include <string>
#include <vector>

namespace anello::dist {

// Each returns a new tensor. What is differentiated is the sum of the losses of all ranks, each rank calling backward
// on its own: all ranks call the same functions in the same order, and backward runs on all of them. The forms that
// change tensors in place and record nothing are members of Communicator. Every function may be differentiated again.
// Names as in CollectiveOptions; backward's operations are named after them ("name backward"). Float dtypes, or nothing
// recorded.

/// Gradient: sum and average give the same reduction of the ranks' gradients; min and max give it to the elements that
/// were chosen, shared evenly at ties. Product of a tensor that requires a gradient raises Error.
Tensor all_reduce(Communicator& communicator, const Tensor& x, ReduceOp op = ReduceOp::sum,
                  const std::string& name = "");
/// Concatenation along dim 0, whose size may differ between ranks. Gradient: this rank's rows of the sum.
Tensor all_gather(Communicator& communicator, const Tensor& x, const std::string& name = "");
/// x of rank root. Gradient: the sum arrives at root, zero at the others.
Tensor broadcast(Communicator& communicator, const Tensor& x, int root = 0, const std::string& name = "");
/// This rank's rows (see slice_of) of the sum or average over ranks. Gradient: the others' rows gathered.
Tensor reduce_scatter(Communicator& communicator, const Tensor& x, ReduceOp op = ReduceOp::sum,
                      const std::string& name = "");
/// `counts[r]` rows go to rank r, in order (empty: evenly). Gradient: the rows travel back.
Tensor all_to_all(Communicator& communicator, const Tensor& x, const std::vector<int64_t>& counts = {},
                  const std::string& name = "");

}  // namespace anello::dist
