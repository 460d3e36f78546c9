// Data-parallel training: each rank computes its part of a batch; gradients are added up while backward still runs.
// Main entry: DataParallel.
//
//   dist::DataParallel model(net);                    // parameters and buffers are rank 0's from here on
//   optim::SGD optimizer(model->parameters(), {.lr = 0.1});
//   for (const data::Batch& batch : loader) {         // this rank's share: LoaderOptions rank and size
//     optimizer.zero_grad();
//     cross_entropy(model(batch.inputs), batch.labels).backward();  // gradients are final when it returns
//     optimizer.step();
//   }
#pragma once

#include <anello/dist/communicator.h>
#include <anello/dist/reducer.h>
#include <anello/layers/module.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace anello::dist {

struct DataParallelOptions {
  GradReduction reduction = GradReduction::mean;
  BucketOptions buckets = {};
  NonFinite nonfinite = NonFinite::skip;
  int64_t check_every = 500;                             ///< steps between comparisons of the parameters; 0: never
  std::shared_ptr<Communicator> communicator = nullptr;  ///< null: world()
};

/// Wraps a module. Its forward arms it and counts the samples; the rest follows from on_grad_ready and
/// on_backward_end: a bucket (dist/bucket.h) whose last gradient is there starts on its way round, several may be under
/// way, and backward() returns when all are done. Every rank ends with the same bits.
///
/// In step 1 buckets follow the reverse order of registration, afterwards the order in which gradients became ready on
/// rank 0. A parameter that a rank did not use counts as zero there; one that no rank used keeps no gradient. Ranks are
/// weighted by the samples of the forwards whose graph backward saw; a rank without samples is left out. When backward
/// fails, the communicator is aborted, so that the others do not wait.
///
/// Collective: construction, and each backward() that follows a forward. One thread at a time. Parameters that require
/// a gradient do so before construction, and keep shape and dtype. For second derivatives use grad(outputs, inputs,
/// create_graph), which this does not see.
class DataParallel {
  struct State;

 public:
  /// Raises DistError when the ranks' modules differ in names, shapes or dtypes.
  explicit DataParallel(std::shared_ptr<nn::Module> module, DataParallelOptions options = {});

  /// module->forward(x), counting x.size(0) samples, or as many as said.
  Tensor operator()(const Tensor& x);
  Tensor operator()(const Tensor& x, int64_t samples);
  nn::Module& module() const;
  nn::Module* operator->() const { return &module(); }
  const std::shared_ptr<Communicator>& communicator() const;

  /// A forward of any form: while it lives, the calling thread is in this model's forward. Its outputs go through
  /// output(), which tells backward that their samples count.
  class Forward {
   public:
    Forward(const DataParallel& model, int64_t samples);
    ~Forward();
    Forward(const Forward&) = delete;
    Forward& operator=(const Forward&) = delete;
    Tensor output(const Tensor& y) const;

   private:
    struct Token;
    friend class DataParallel;
    std::shared_ptr<Token> token_;
    std::optional<int64_t> outer_;
  };

  /// While it lives, backward() only accumulates on this rank; the first one after it reduces the whole sum.
  class NoSync {
   public:
    explicit NoSync(const DataParallel& model);
    ~NoSync();
    NoSync(const NoSync&) = delete;
    NoSync& operator=(const NoSync&) = delete;

   private:
    std::shared_ptr<State> state_;
  };
  NoSync no_sync() const { return NoSync(*this); }

  /// Replaces the count of samples of the next backward().
  void set_samples(int64_t samples);

  /// For a loop of the user's own with other numbers of steps on other ranks: called after it, takes part in the
  /// others' reductions without samples until all have come here. `step` (may be null) runs after each, with the same
  /// gradients as on the others: optimizer.step() and zero_grad() keep this rank's parameters and optimizer equal to
  /// theirs. Without it, parameters and buffers become at the end those of the rank that made most steps. Raises Error
  /// for a model with SyncBatchNorm, whose forward is collective: use a loader that gives empty batches.
  void join(const std::function<void()>& step = nullptr);

  const ReductionReport& report() const;
  /// Compares the parameters now; raises DistError on every rank, naming the rank that differs. Collective.
  void check_parameters() const;
  /// Gives rank `root`'s buffers (running statistics) to all. Collective.
  void broadcast_buffers(int root = 0) const;
  /// Bytes of gradient memory.
  int64_t gradient_bytes() const;
  size_t bucket_count() const;

 private:
  std::shared_ptr<State> state_;
};

namespace detail {
/// Samples of the DataParallel forward that the calling thread is in, if their number weights gradients.
std::optional<int64_t> forward_samples();
}  // namespace detail

}  // namespace anello::dist
