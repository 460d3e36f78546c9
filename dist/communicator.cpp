// The parts of a communicator that are the same whatever is below: blocking forms, waiting, names.
// Main entry: Work::wait(), Communicator::all_reduce().
#include <anello/dist/communicator.h>
#include <anello/dist/engine.h>
#include <anello/dist/group.h>

#include <ostream>

namespace anello::dist {

std::ostream& operator<<(std::ostream& out, ReduceOp op) {
  constexpr std::string_view names[] = {"sum", "average", "min", "max", "product"};
  return out << names[static_cast<int>(op)];
}

bool Work::test() const { return state_ == nullptr || state_->finished.load(std::memory_order_acquire); }

void Work::wait() const {
  if (state_ == nullptr) return;
  if (!test()) state_->group->engine().wait(*state_);
  const std::lock_guard lock(state_->mutex);
  if (state_->error) std::rethrow_exception(state_->error);
  if (state_->output != nullptr) *state_->output = state_->results.at(0);
}

void Work::then(std::function<void()> f) const {
  if (state_ != nullptr) {
    const std::lock_guard lock(state_->mutex);
    if (!state_->finished) {
      state_->then.push_back(std::move(f));
      return;
    }
  }
  f();
}

void Communicator::all_reduce(const Tensor& tensor, ReduceOp op, const CollectiveOptions& options) {
  const Blocking blocking;
  all_reduce_async(tensor, op, options).wait();
}
void Communicator::broadcast(const Tensor& tensor, int root, const CollectiveOptions& options) {
  const Blocking blocking;
  broadcast_async(tensor, root, options).wait();
}
Tensor Communicator::reduce_scatter(const Tensor& input, ReduceOp op, const CollectiveOptions& options) {
  const Blocking blocking;
  Tensor output;
  reduce_scatter_async(output, input, op, options).wait();
  return output;
}
Tensor Communicator::all_gather(const Tensor& input, const CollectiveOptions& options) {
  const Blocking blocking;
  Tensor output;
  all_gather_async(output, input, options).wait();
  return output;
}
Tensor Communicator::all_to_all(const Tensor& input, const std::vector<int64_t>& counts,
                                const CollectiveOptions& options) {
  const Blocking blocking;
  Tensor output;
  all_to_all_async(output, input, counts, options).wait();
  return output;
}

}  // namespace anello::dist
