// One backward pass after the other: which gradients are ready, which buckets leave, and what all ranks know at the
// end. Main entry: GradientReducer; DataParallel (dist/data_parallel.h) connects it with autograd's hooks.
#pragma once

#include <anello/dist/bucket.h>
#include <anello/dist/communicator.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace anello::dist {

/// mean: the gradient of the mean over all samples of all ranks, for a loss that is a mean over the rank's own. sum:
/// the sum over ranks, for a loss that is a sum over samples.
enum class GradReduction { mean, sum };
/// What happens when a rank's gradient holds NaN or infinity. keep: nothing (for a loss scaler, which sees it on every
/// rank). skip: every rank's gradients become undefined, so that the optimizer does nothing, and rank 0 says so. raise:
/// backward() raises DistError on every rank.
enum class NonFinite { keep, skip, raise };

/// What the last reduction did; the same on every rank.
struct ReductionReport {
  int64_t step = 0;                    ///< reductions so far
  std::vector<int64_t> samples;        ///< of each rank; -1: it has joined
  std::vector<std::string> unused;     ///< parameters that no rank used
  std::vector<std::string> nonfinite;  ///< "'fc.weight' of rank 1"
  bool skipped = false;                ///< gradients were made undefined
};

/// Samples of a rank that has no steps left and only takes part in the others' reductions.
inline constexpr int64_t kJoined = -1;

/// The steps of a reduction, in the order they come: begin(), ready() for each gradient, finish(). begin() and finish()
/// are collective. Buckets leave from ready() as soon as the weights of the ranks are known, the rest from finish().
/// After an exception of finish() or ready(), reset(). One thread at a time.
class GradientReducer {
 public:
  /// Parameters by name, as they were registered. `name`: see GradientBuckets.
  GradientReducer(std::shared_ptr<Communicator> communicator, const std::string& name, std::vector<std::string> names,
                  std::vector<Tensor> parameters, GradReduction reduction, NonFinite nonfinite, BucketOptions options);

  /// A backward pass begins in which this rank has so many samples.
  void begin(int64_t samples);
  bool is_active() const { return active_; }
  /// The gradient of parameter p has its last contribution. Raises Error when it cannot be reduced.
  void ready(size_t p);
  /// The gradient of parameter p holds a sum of this rank's own that has not been reduced (no_sync).
  void set_unreduced(size_t p) { unreduced_[p] = true; }
  /// Reduces what is left, waits, and gives the gradients out. False when every rank has joined: then nothing happened.
  bool finish();
  /// Forgets the pass that was begun.
  void reset();

  const ReductionReport& report() const { return report_; }
  const GradientBuckets& buckets() const { return buckets_; }
  /// True when a rank had joined in the last reduction.
  bool someone_joined() const;

 private:
  CollectiveOptions named(const char* what) const;
  void learn_weights(bool wait);
  void keep_first_share();
  void start_full_buckets();
  Tensor exchange_use();
  void give_out(const std::vector<bool>& used);
  void judge(const std::vector<int32_t>& worst);
  void adopt_order();

  std::shared_ptr<Communicator> communicator_;
  std::string name_;
  std::vector<std::string> names_;
  std::vector<Tensor> parameters_;
  GradReduction reduction_;
  NonFinite nonfinite_;
  GradientBuckets buckets_;
  ReductionReport report_;
  bool arranged_ = false;

  bool active_ = false;
  int64_t samples_ = 0;
  Tensor counts_;  ///< int64 [size]: this rank's samples in its place; after the exchange, everyone's
  Work counts_work_;
  bool weights_known_ = false;
  Weighting weighting_;
  std::vector<bool> ready_, unreduced_, bad_;
  std::vector<size_t> missing_, order_;
};

}  // namespace anello::dist
