// Collective operations and their gradients, which are collective operations again.
// Main entry: all_reduce(), all_gather() of dist/functions.h.
#include <anello/autograd/functions.h>
#include <anello/autograd/node.h>
#include <anello/dist/functions.h>

namespace anello::dist {
namespace {

CollectiveOptions named(const std::string& name) {
  CollectiveOptions options;
  options.name = name;
  return options;
}
std::string backward_of(const std::string& name) { return name.empty() ? name : name + " backward"; }

/// Keeps the group alive in the graph.
std::shared_ptr<Communicator> held(Communicator& communicator) { return communicator.shared_from_this(); }

bool is_wanted(const Tensor& x) { return is_grad_enabled() && x.requires_grad(); }

/// A number of each rank.
std::vector<int64_t> from_all(Communicator& communicator, int64_t mine) {
  return communicator.all_gather(from_vector(std::vector<int64_t>{mine})).to_vector<int64_t>();
}

}  // namespace

Tensor all_reduce(Communicator& communicator, const Tensor& x, ReduceOp op, const std::string& name) {
  check<Error>(op != ReduceOp::product || !is_wanted(x), "all_reduce",
               "the product over ranks has no gradient. Hint: exp of the sum of logarithms, or detach().");
  const Tensor y = clone(x.detach());
  communicator.all_reduce(y, op, named(name));
  const auto group = held(communicator);
  if (op == ReduceOp::sum || op == ReduceOp::average)
    return record("all_reduce", {&x}, {}, y, [group, op, name](Backward& bw) {
      bw.give(0, all_reduce(*group, bw.grad(), op, backward_of(name)));
    });
  return record("all_reduce", {&x}, {&x, &y}, y, [group, name](Backward& bw) {
    const Tensor grad = bw.grad();
    const Tensor chosen = cast(eq(bw.saved(0).detach(), bw.saved(1).detach()), grad.dtype());
    const Tensor ties = clone(chosen);
    group->all_reduce(ties, ReduceOp::sum, named(backward_of(name)));
    bw.give(0, all_reduce(*group, grad, ReduceOp::sum, backward_of(name)) * chosen / ties);
  });
}

Tensor all_gather(Communicator& communicator, const Tensor& x, const std::string& name) {
  const Tensor y = communicator.all_gather(x.detach(), named(name));
  if (!is_wanted(x)) return y;
  const auto group = held(communicator);
  const std::vector<int64_t> rows = from_all(communicator, x.shape()[0]);
  int64_t begin = 0;
  for (int r = 0; r < communicator.rank(); ++r) begin += rows[static_cast<size_t>(r)];
  const int64_t end = begin + x.shape()[0];
  bool as_split = true;  // the rows that reduce_scatter would give
  for (int r = 0; r < communicator.size(); ++r) {
    const Slice part = slice_of(y.shape()[0], r, communicator.size());
    as_split = as_split && part.end - part.begin == rows[static_cast<size_t>(r)];
  }
  return record("all_gather", {&x}, {}, y, [group, name, begin, end, as_split](Backward& bw) {
    if (as_split)
      bw.give(0, reduce_scatter(*group, bw.grad(), ReduceOp::sum, backward_of(name)));
    else
      bw.give(0, slice(all_reduce(*group, bw.grad(), ReduceOp::sum, backward_of(name)), 0, begin, end));
  });
}

Tensor broadcast(Communicator& communicator, const Tensor& x, int root, const std::string& name) {
  const Tensor y = clone(x.detach());
  communicator.broadcast(y, root, named(name));
  const auto group = held(communicator);
  return record("broadcast", {&x}, {}, y, [group, root, name](Backward& bw) {
    const Tensor sum = all_reduce(*group, bw.grad(), ReduceOp::sum, backward_of(name));
    bw.give(0, group->rank() == root ? sum : sum * 0.0);
  });
}

Tensor reduce_scatter(Communicator& communicator, const Tensor& x, ReduceOp op, const std::string& name) {
  const bool average = op == ReduceOp::average;
  check<Error>(average || op == ReduceOp::sum || !is_wanted(x), "reduce_scatter", "the ", op,
               " over ranks has no gradient here. Hint: sum or average, or all_reduce for min and max.");
  const Tensor y = communicator.reduce_scatter(x.detach(), op, named(name));
  const auto group = held(communicator);
  return record("reduce_scatter", {&x}, {}, y, [group, average, name](Backward& bw) {
    const Tensor all = all_gather(*group, bw.grad(), backward_of(name));
    bw.give(0, average ? all / static_cast<double>(group->size()) : all);
  });
}

Tensor all_to_all(Communicator& communicator, const Tensor& x, const std::vector<int64_t>& counts,
                  const std::string& name) {
  const Tensor y = communicator.all_to_all(x.detach(), counts, named(name));
  if (!is_wanted(x)) return y;
  const auto group = held(communicator);
  std::vector<int64_t> back;
  if (!counts.empty()) {
    // Row r of the table is what rank r sends to each; what came from rank r goes back to it.
    const std::vector<int64_t> table = communicator.all_gather(from_vector(counts)).to_vector<int64_t>();
    const int size = communicator.size();
    for (int r = 0; r < size; ++r) back.push_back(table[static_cast<size_t>(r * size + communicator.rank())]);
  }
  return record("all_to_all", {&x}, {}, y, [group, back, name](Backward& bw) {
    bw.give(0, all_to_all(*group, bw.grad(), back, backward_of(name)));
  });
}

}  // namespace anello::dist
