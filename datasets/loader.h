// Batches of a data set, made ahead by worker threads, in an order that depends on the seed and the epoch alone.
// Main entry: DataLoader; `for (const Batch& batch : loader)` is one epoch.
#pragma once

#include <anello/core/tensor.h>
#include <anello/datasets/augment.h>
#include <anello/datasets/dataset.h>
#include <anello/datasets/sampler.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace anello::data {

struct Batch {
  Tensor inputs;                 ///< images: [n, height, width, channels]; else rows of the features
  Tensor labels;                 ///< images: int64 [n]; else rows of the labels
  std::vector<int64_t> indices;  ///< which samples these are
  int64_t size() const { return static_cast<int64_t>(indices.size()); }
};

struct BatchRequest {
  std::vector<int64_t> indices;
  uint64_t seed, epoch;  ///< key of everything random in the batch, together with the index
};
/// Makes inputs and labels of a batch (the loader fills in `indices`). Called from worker threads, from several at
/// once; depends on its argument alone.
using BatchFunction = std::function<Batch(const BatchRequest&)>;

struct LoaderOptions {
  int64_t batch_size = 128;  ///< of this rank
  bool shuffle = true;
  bool drop_last = false;  ///< leave out the last global batch of an epoch when it is not full
  int workers = 1;         ///< threads; 0: the caller makes its batches itself
  int prefetch = 2;        ///< batches made ahead, at least one a worker
  uint64_t seed = 0;
  int rank = 0, size = 1;  ///< this rank's share, see BatchPlan
};

/// Where a loader stands: all it needs to go on bit for bit, also on another number of ranks.
struct LoaderState {
  uint64_t seed = 0, epoch = 0;
  int64_t position = 0;  ///< samples of the epoch that all ranks together have taken
  int64_t count = 0;     ///< samples in the data set, to refuse another one
  friend bool operator==(const LoaderState&, const LoaderState&) = default;
};

/// Batches are the same for any number of workers. Each loop is one epoch, and the next loop the next epoch, in a new
/// order. A loop that was left early counts as one; only after set_state() or set_epoch() does the next loop begin
/// where they say. An exception of the batch function is raised where its batch is due, after the batches before it;
/// state() then still points at that batch. One thread at a time: another one that calls in between gets an Error.
/// After fork() the child may go on where the parent stood. The destructor waits for batches being made, never for the
/// caller's locks.
class DataLoader {
 public:
  /// Raise ValueError for options that cannot be, and what ImageDataset::validate() and Augmenter raise.
  DataLoader(const ImageDataset& dataset, const LoaderOptions& options, const Augmentation& augmentation = {});
  DataLoader(const TensorDataset& dataset, const LoaderOptions& options);
  DataLoader(int64_t count, BatchFunction make, const LoaderOptions& options);
  ~DataLoader();
  DataLoader(const DataLoader&) = delete;
  DataLoader& operator=(const DataLoader&) = delete;

  /// Samples in the data set.
  int64_t count() const { return count_; }
  /// Batches that a whole epoch has on this rank.
  int64_t batches() const { return plan(0).batches(); }
  /// Batches that the next loop has on this rank: fewer than batches() after set_state() in the middle of an epoch.
  int64_t batches_ahead() const;
  const LoaderOptions& options() const { return options_; }

  /// The epoch of the running loop, or of the last one when none is running.
  uint64_t epoch() const { return epoch_; }
  /// The next loop begins this epoch, from its start.
  void set_epoch(uint64_t epoch);
  LoaderState state() const;
  /// The next loop goes on from there. Raises ValueError for a state of another data set.
  void set_state(const LoaderState& state);

  // --- A loop step by step, for bindings: what begin(), ++ and leaving the loop do. ---
  /// Begins a loop; gives its number. A loop begun before ends.
  uint64_t start();
  /// The next batch, or nothing at the end. Raises Error when another loop began meanwhile.
  std::optional<Batch> next(uint64_t loop);
  /// Ends the loop: workers stop, batches made ahead go.
  void stop(uint64_t loop);

  class Iterator {
   public:
    using iterator_category = std::input_iterator_tag;
    using value_type = Batch;
    using difference_type = std::ptrdiff_t;
    explicit Iterator(DataLoader& loader) : loader_(&loader), loop_(loader.start()), batch_(loader.next(loop_)) {}
    Iterator(Iterator&& other) noexcept
        : loader_(std::exchange(other.loader_, nullptr)), loop_(other.loop_), batch_(std::move(other.batch_)) {}
    Iterator& operator=(Iterator&&) = delete;
    ~Iterator() {
      if (loader_ != nullptr) loader_->stop(loop_);
    }
    const Batch& operator*() const { return *batch_; }
    const Batch* operator->() const { return &*batch_; }
    Iterator& operator++() {
      batch_.reset();
      batch_ = loader_->next(loop_);
      return *this;
    }
    void operator++(int) { ++*this; }
    friend bool operator==(const Iterator& it, std::default_sentinel_t) { return !it.batch_.has_value(); }

   private:
    DataLoader* loader_;
    uint64_t loop_;
    std::optional<Batch> batch_;
  };
  Iterator begin() { return Iterator(*this); }
  std::default_sentinel_t end() const { return {}; }

 private:
  struct Job;   // what the batches of one loop are, shared with the workers
  class Crew;   // the workers of one loop
  class InUse;  // detects a second thread

  BatchPlan plan(int64_t start) const;
  Batch make_next();
  void dismiss_crew() noexcept;

  int64_t count_;
  BatchFunction make_;
  LoaderOptions options_;
  uint64_t epoch_ = 0;
  int64_t position_ = 0;         // places of the epoch taken by all ranks
  bool position_is_set_ = true;  // the next loop begins at (epoch_, position_), not at the epoch after it
  bool finished_ = false;        // epoch_ was seen to its end
  bool running_ = false;
  uint64_t loop_ = 0;  // number of the newest loop
  int64_t taken_ = 0;  // batches handed out in this loop
  std::shared_ptr<const Job> job_;
  Crew* crew_ = nullptr;  // owned; a plain pointer, since a forked child has to leave it alone
  mutable std::atomic<bool> in_use_{false};
};

}  // namespace anello::data
