// Batch statistics over all ranks, and what backward has to add up for them.
// Main entry: sync_batch_norm().
#include <anello/autograd/functions.h>
#include <anello/autograd/grad_mode.h>
#include <anello/autograd/node.h>
#include <anello/core/kernels/norm.h>
#include <anello/core/registry.h>
#include <anello/dist/data_parallel.h>
#include <anello/dist/sync_batch_norm.h>

#include <algorithm>

namespace anello::dist {
namespace {

void* data_or_null(const Tensor& t) { return t.defined() ? t.raw_data() : nullptr; }

/// The statistics of all ranks' rows.
struct Statistics {
  Tensor mean, variance;  ///< biased variance
  double rows = 0;        ///< of all ranks
  double factor = 1;      ///< this rank's weight in the loss, relative to the largest
};

/// Each rank sends its rows, its weight, mean and sum of squared deviations; all combine them in rank order.
Statistics gather_statistics(Communicator& communicator, const Tensor& x, DType wide) {
  const int64_t channels = x.shape().back();
  const int64_t rows = x.numel() / std::max<int64_t>(channels, 1);
  const Tensor mine = zeros({1, 2 * channels + 2}, wide);
  const double samples = static_cast<double>(detail::forward_samples().value_or(1));
  copy_into(slice(mine, 1, 0, 1), full({1, 1}, static_cast<double>(rows), wide));
  copy_into(slice(mine, 1, 1, 2), full({1, 1}, samples, wide));
  if (rows > 0) {
    const Tensor values = reshape(cast(x, wide), {rows, channels});
    copy_into(slice(mine, 1, 2, 2 + channels), mean(values, {0}, true));
    copy_into(slice(mine, 1, 2 + channels, 2 + 2 * channels), var(values, {0}, 0, true) * static_cast<double>(rows));
  }
  const Tensor all = communicator.all_gather(mine);
  const std::vector<double> table = all.to_vector<double>();
  const auto width = static_cast<size_t>(2 * channels + 2);
  Statistics result;
  std::vector<double> average(static_cast<size_t>(channels)), squares(static_cast<size_t>(channels));
  double largest = 0;
  for (int r = 0; r < communicator.size(); ++r) {
    const double* row = table.data() + static_cast<size_t>(r) * width;
    const double count = row[0], before = result.rows;
    largest = std::max(largest, row[1]);
    if (count == 0) continue;
    result.rows += count;
    for (size_t c = 0; c < static_cast<size_t>(channels); ++c) {
      const double delta = row[2 + c] - average[c];
      average[c] += delta * count / result.rows;
      squares[c] += row[2 + c + static_cast<size_t>(channels)] + delta * delta * before * count / result.rows;
    }
  }
  for (double& square : squares) square /= std::max(result.rows, 1.0);
  result.mean = copy_as(from_vector(average), wide);
  result.variance = copy_as(from_vector(squares), wide);
  result.factor = largest > 0 ? samples / largest : 1;
  return result;
}

void update_running(const Tensor& running, const Tensor& batch, double momentum) {
  if (running.defined()) copy_into(running, cast(running, batch.dtype()) * (1 - momentum) + batch * momentum);
}

/// x a + b for each channel, in one pass.
Tensor affine(const Tensor& x, const Tensor& a, const Tensor& b) {
  const int64_t channels = x.shape().back();
  const Tensor y = empty(x.shape(), x.dtype(), x.device());
  if (y.numel() == 0) return y;
  const Tensor zero = zeros({channels}, a.dtype()), one = ones({channels}, a.dtype());
  const Tensor used_mean = zeros({channels}, a.dtype()), used_rstd = zeros({channels}, a.dtype());
  launch<kBatchNorm>(x.device(), x.dtype(),
                     {y.raw_data(), x.raw_data(), x.numel() / channels, channels, a.raw_data(), b.raw_data(),
                      used_mean.raw_data(), used_rstd.raw_data(), zero.raw_data(), one.raw_data(), false, 0, 0});
  return y;
}

/// What a rank's loss did to the statistics reaches the rows of all ranks:
///   dx = weight rstd (dy - (sum dy + xhat sum(dy xhat)) / rows), the sums over all ranks, each weighted as its loss
///   is.
void backward_of(Backward& bw, Communicator& communicator, const Statistics& statistics) {
  check<Error>(!bw.create_graph(), "sync_batch_norm", "there is no second derivative. Hint: batch_norm() has one.");
  const Tensor x = bw.saved(0), weight = bw.saved(1), average = bw.saved(2), rstd = bw.saved(3);
  const DType wide = average.dtype();
  const int64_t channels = average.numel(), rows = x.numel() / std::max<int64_t>(channels, 1);
  // 16-bit gradients are computed in float32 and rounded at the end.
  const Tensor source = contiguous_data(cast(x, wide)), dy = contiguous_data(cast(bw.grad(), wide));
  const Tensor dx = empty(x.shape(), wide, x.device());
  const Tensor sums = zeros({2, channels}, wide);
  const Tensor dweight = select(sums, 0, 0), dbias = select(sums, 0, 1);
  if (rows > 0)
    launch<kBatchNormGrad>(x.device(), wide,
                           {dx.raw_data(), dy.raw_data(), source.raw_data(), rows, channels, data_or_null(weight),
                            average.raw_data(), rstd.raw_data(), dweight.raw_data(), dbias.raw_data(), false});
  const Tensor total = statistics.factor == 1 ? clone(sums) : sums * statistics.factor;
  communicator.all_reduce(total);
  if (bw.needs(0)) {
    if (rows > 0 && statistics.factor > 0) {
      const Tensor scale = weight.defined() ? rstd * weight : rstd;
      const double n = statistics.rows * statistics.factor;
      const Tensor slope = neg(scale * rstd * select(total, 0, 0)) / n;
      const Tensor shift = neg(scale * select(total, 0, 1)) / n - average * slope;
      add_(dx, affine(source, slope, shift));
    }
    bw.give(0, cast(dx, x.dtype()));
  }
  if (bw.needs(1)) bw.give(1, clone(dweight));
  if (bw.needs(2)) bw.give(2, clone(dbias));
}

}  // namespace

Tensor sync_batch_norm(Communicator& communicator, const Tensor& x, const Tensor& weight, const Tensor& bias,
                       const Tensor& running_mean, const Tensor& running_var, double momentum, double eps) {
  check<ShapeError>(x.dim() >= 1, "sync_batch_norm", "the input is a scalar. Hint: channels are the last dim.");
  check<DTypeError>(is_floating_point(x.dtype()), "sync_batch_norm", "the input is ", x.dtype(),
                    ". Hint: cast it to a float dtype.");
  const int64_t channels = x.shape().back();
  for (const Tensor* t : {&weight, &bias, &running_mean, &running_var})
    check<ShapeError>(!t->defined() || t->shape() == Shape{channels}, "sync_batch_norm", "a parameter has shape ",
                      t->defined() ? t->shape() : Shape{}, ", the input ", x.shape(), " has ", channels,
                      " channels (its last dim).");
  const DType wide = x.dtype() == float64 ? float64 : float32;
  const auto parameter = [&](const Tensor& t) { return t.defined() ? contiguous(cast(t, wide)) : t; };
  const Tensor w = parameter(weight), b = parameter(bias);
  const Tensor y = empty(x.shape(), x.dtype(), x.device());
  const Tensor average = zeros({channels}, wide), rstd = zeros({channels}, wide);
  Statistics statistics;
  {
    const NoGradGuard no_grad;
    const Tensor source = contiguous_data(x);
    statistics = gather_statistics(communicator, source, wide);
    check<ShapeError>(statistics.rows != 1, "sync_batch_norm",
                      "training needs more than one value per channel, all ranks together have one. Hint: use a larger "
                      "batch, or evaluation mode.");
    if (y.numel() > 0)
      launch<kBatchNorm>(x.device(), x.dtype(),
                         {y.raw_data(), source.raw_data(), x.numel() / channels, channels, data_or_null(w),
                          data_or_null(b), average.raw_data(), rstd.raw_data(), statistics.mean.raw_data(),
                          statistics.variance.raw_data(), false, momentum, eps});
    if (statistics.rows > 1) {
      update_running(running_mean, statistics.mean, momentum);
      update_running(running_var, statistics.variance * (statistics.rows / (statistics.rows - 1)), momentum);
    }
  }
  return record("sync_batch_norm", {&x, &w, &b}, {&x, &w, &average, &rstd}, y,
                [group = communicator.shared_from_this(), statistics](Backward& bw) {
                  const NoGradGuard no_grad;
                  backward_of(bw, *group, statistics);
                });
}

namespace {
nn::BatchNormFunction over_ranks(std::shared_ptr<Communicator> communicator) {
  return [communicator](const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& running_mean,
                        const Tensor& running_var, double momentum, double eps) {
    const std::shared_ptr<Communicator> group = communicator != nullptr ? communicator : world();
    return sync_batch_norm(*group, x, weight, bias, running_mean, running_var, momentum, eps);
  };
}
}  // namespace

SyncBatchNorm::SyncBatchNorm(int64_t num_features, nn::BatchNormOptions options,
                             std::shared_ptr<Communicator> communicator)
    : BatchNorm(num_features, options) {
  set_training_function(over_ranks(std::move(communicator)));
}

void SyncBatchNorm::convert(nn::Module& module, std::shared_ptr<Communicator> communicator) {
  const nn::BatchNormFunction function = over_ranks(std::move(communicator));
  module.apply([&](nn::Module& m) {
    if (auto* norm = dynamic_cast<nn::BatchNorm*>(&m)) norm->set_training_function(function);
  });
}

void SyncBatchNorm::check_input(const Tensor& x) const {
  check<ShapeError>(x.dim() >= 2 && x.shape().back() == num_features_, "SyncBatchNorm", "the input is ", x.shape(),
                    ", not [N, ..., ", num_features_, "]. Hint: channels are the last dim.");
}

}  // namespace anello::dist
