// The order of an epoch and its division into batches.
// Main entry: epoch_order(), BatchPlan::range().
#include <anello/core/random.h>
#include <anello/datasets/sampler.h>

#include <algorithm>
#include <numeric>

namespace anello::data {

std::vector<int64_t> epoch_order(int64_t count, bool shuffle, uint64_t seed, uint64_t epoch) {
  std::vector<int64_t> order(static_cast<size_t>(count));
  std::iota(order.begin(), order.end(), int64_t{0});
  if (!shuffle) return order;
  const uint64_t stream = random_stream(RandomPurpose::order, epoch);
  // 64 bits a draw: the bias of the remainder is below count / 2^64.
  for (int64_t i = count - 1; i > 0; --i) {
    const auto bits = philox(seed, stream, static_cast<uint64_t>(i / 2));
    const size_t half = static_cast<size_t>(i % 2) * 2;
    const uint64_t draw = (static_cast<uint64_t>(bits[half]) << 32) | bits[half + 1];
    std::swap(order[static_cast<size_t>(i)], order[draw % (static_cast<uint64_t>(i) + 1)]);
  }
  return order;
}

int64_t BatchPlan::batches() const {
  const int64_t left = std::max<int64_t>(0, count - start), global = batch_size * size, full = left / global;
  return drop_last || left % global == 0 ? full : full + 1;
}

PlaceRange BatchPlan::range(int64_t k) const {
  const int64_t global = batch_size * size, begin = start + k * global;
  if (begin + global > count) return share_of_rest(begin);
  return {begin + rank * batch_size, begin + (rank + 1) * batch_size};
}

int64_t BatchPlan::position_after(int64_t k) const { return std::min(count, start + (k + 1) * batch_size * size); }

PlaceRange BatchPlan::share_of_rest(int64_t begin) const {
  const int64_t rest = count - begin, each = rest / size, extra = rest % size;
  const int64_t first = begin + rank * each + std::min<int64_t>(rank, extra);
  return {first, first + each + (rank < extra ? 1 : 0)};
}

}  // namespace anello::data
