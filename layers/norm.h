// Normalisation layers.
// Main entry: BatchNorm2d, BatchNorm1d.
#pragma once

#include <anello/layers/module.h>

#include <functional>
#include <optional>

namespace anello::nn {

struct BatchNormOptions {
  double eps = 1e-5;
  /// running = (1 - momentum) running + momentum batch; nullopt averages over all batches so far.
  std::optional<double> momentum = 0.1;
  bool affine = true;               ///< learn a scale (starts at 1) and a shift (starts at 0)
  bool track_running_stats = true;  ///< false: batch statistics in evaluation too
};

/// Stands in for batch_norm() in training: (x, weight, bias, running_mean, running_var, momentum, eps) -> y, of x's
/// shape and dtype. Undefined tensors as there.
using BatchNormFunction =
    std::function<Tensor(const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&, double, double)>;

/// Normalises each channel (the last dim) over all other dims; arXiv 1502.03167. Training uses the batch's statistics
/// and updates the running ones (with the unbiased variance), evaluation uses the running ones. One value a channel in
/// training raises ShapeError; an empty batch changes nothing.
class BatchNorm : public Module {
 public:
  using Options = BatchNormOptions;
  Tensor forward(const Tensor& x) override;
  /// Running mean 0, variance 1, count 0.
  void reset_running_stats();
  /// Computes training batches by `function` from now on (statistics over several processes, say); null: by
  /// batch_norm(). Whoever fuses this layer with its neighbours leaves it alone while there is one.
  void set_training_function(BatchNormFunction function) { training_function_ = std::move(function); }
  const BatchNormFunction& training_function() const { return training_function_; }
  std::string extra_repr() const override;

  Tensor weight, bias;               ///< [num_features], or undefined
  Tensor running_mean, running_var;  ///< buffers [num_features], or undefined
  Tensor num_batches_tracked;        ///< buffer, int64 scalar: training batches seen

 protected:
  BatchNorm(int64_t num_features, BatchNormOptions options);
  /// Raises ShapeError unless x has a shape this class normalises.
  virtual void check_input(const Tensor& x) const = 0;
  int64_t num_features_;

 private:
  BatchNormOptions options_;
  BatchNormFunction training_function_;
};

/// x [N, H, W, num_features].
class BatchNorm2d : public BatchNorm {
 public:
  explicit BatchNorm2d(int64_t num_features, BatchNormOptions options = {}) : BatchNorm(num_features, options) {}
  std::string class_name() const override { return "BatchNorm2d"; }

 protected:
  void check_input(const Tensor& x) const override;
};

/// x [N, num_features] or [N, L, num_features].
class BatchNorm1d : public BatchNorm {
 public:
  explicit BatchNorm1d(int64_t num_features, BatchNormOptions options = {}) : BatchNorm(num_features, options) {}
  std::string class_name() const override { return "BatchNorm1d"; }

 protected:
  void check_input(const Tensor& x) const override;
};

}  // namespace anello::nn
