// Batch normalisation whose statistics are those of all ranks' samples together.
// Main entry: SyncBatchNorm::convert(), SyncBatchNorm.
#pragma once

#include <anello/dist/communicator.h>
#include <anello/layers/norm.h>

#include <memory>

namespace anello::dist {

/// batch_norm() in training over the rows of all ranks: mean and variance are combined in rank order (Chan, Golub,
/// LeVeque 1983), the running statistics are the same on all ranks, and backward adds up what each rank's statistics
/// did to the others. Forward and backward are collective; the rows may differ in number and be none, but all ranks
/// together need more than one. Statistics are float32 (float64 for float64). Inside a DataParallel that weights by
/// samples, the ranks' losses are weighted alike, so that the gradients equal those of one process with the whole
/// batch. There is no second derivative: create_graph raises Error.
Tensor sync_batch_norm(Communicator& communicator, const Tensor& x, const Tensor& weight, const Tensor& bias,
                       const Tensor& running_mean, const Tensor& running_var, double momentum = 0.1, double eps = 1e-5);

/// A batch normalisation layer of any number of dims, x [..., num_features], that uses sync_batch_norm() in training.
class SyncBatchNorm : public nn::BatchNorm {
 public:
  /// `communicator` null: world(), at the first use.
  explicit SyncBatchNorm(int64_t num_features, nn::BatchNormOptions options = {},
                         std::shared_ptr<Communicator> communicator = nullptr);
  std::string class_name() const override { return "SyncBatchNorm"; }

  /// Makes every batch normalisation layer in `module` use the statistics of all ranks in training. The layers stay the
  /// objects they are, with their parameters and buffers.
  static void convert(nn::Module& module, std::shared_ptr<Communicator> communicator = nullptr);

 protected:
  void check_input(const Tensor& x) const override;
};

}  // namespace anello::dist
