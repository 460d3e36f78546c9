// Which samples come when: the order of an epoch and its division into batches and shards, from plain integers.
// Main entry: epoch_order(), BatchPlan.
#pragma once

#include <cstdint>
#include <vector>

namespace anello::data {

/// Purposes that random numbers of a data seed are drawn for: the upper byte of a Philox stream, so that no two
/// collide.
enum class RandomPurpose : uint8_t {
  order = 1,
  augment = 2,
  cutout = 3,
  first_flip = 4,
  synthetic_train = 5,
  synthetic_test = 6
};
/// The Philox stream of a purpose and an epoch (or 0).
constexpr uint64_t random_stream(RandomPurpose purpose, uint64_t epoch) {
  return (static_cast<uint64_t>(purpose) << 56) | (epoch & 0x00ffffffffffffffu);
}

/// The samples 0 .. count-1 in the order of this epoch: a Fisher-Yates permutation drawn by Philox from (seed, epoch),
/// or 0, 1, 2, ... when shuffle is false. Depends on nothing else.
std::vector<int64_t> epoch_order(int64_t count, bool shuffle, uint64_t seed, uint64_t epoch);

/// Places [begin, end) in the order of an epoch.
struct PlaceRange {
  int64_t begin = 0, end = 0;
  friend bool operator==(const PlaceRange&, const PlaceRange&) = default;
};

/// Divides the places of an epoch into batches of this rank. Global batch k is places [start + k * B, start + (k + 1) *
/// B) with B = batch_size * size, and rank r takes the r-th piece of batch_size places in it: N ranks see together what
/// one process with N times the batch size sees. A last global batch that is not full is dropped (drop_last) or divided
/// as evenly as possible, the first ranks taking one more; a rank that gets nothing has an empty batch, so that all
/// ranks make as many steps. Shards are disjoint and, without drop_last, complete. `start` is what all ranks together
/// have consumed: a resumed epoch may go on with another number of ranks.
struct BatchPlan {
  int64_t count = 0;       ///< samples in the data set
  int64_t start = 0;       ///< places of the epoch consumed before, by all ranks together
  int64_t batch_size = 1;  ///< of one rank
  int rank = 0, size = 1;
  bool drop_last = false;

  /// Batches of every rank from start to the end of the epoch.
  int64_t batches() const;
  /// Places of this rank in batch k of batches().
  PlaceRange range(int64_t k) const;
  /// Places consumed by all ranks together when batch k has been: the `start` of what follows.
  int64_t position_after(int64_t k) const;

 private:
  PlaceRange share_of_rest(int64_t begin) const;
};

}  // namespace anello::data
