// Batch normalisation over the last dim.
// Main entry: batch_norm() of autograd/functions.h.
#include <anello/autograd/functions.h>
#include <anello/autograd/node.h>
#include <anello/core/kernels/norm.h>
#include <anello/core/registry.h>

#include <algorithm>

namespace anello {
namespace {

void check_channels(const Tensor& t, const char* what, const Tensor& x) {
  if (!t.defined()) return;
  const int64_t channels = x.shape().back();
  check<ShapeError>(t.shape() == Shape{channels}, "batch_norm", what, " has shape ", t.shape(), ", the input ",
                    x.shape(), " has ", channels, " channels (its last dim).");
  check<DTypeError>(is_floating_point(t.dtype()), "batch_norm", what, " is ", t.dtype(), ". Hint: use a float dtype.");
  check<DeviceError>(t.device() == x.device(), "batch_norm", what, " is on ", t.device(), ", the input on ", x.device(),
                     ".");
}

void* data_or_null(const Tensor& t) { return t.defined() ? t.raw_data() : nullptr; }

/// A running statistic as the kernel needs it: of the statistics' dtype, contiguous; written back when that is a copy.
class Running {
 public:
  Running(const Tensor& owner, DType dtype) : owner_(owner) {
    if (owner.defined()) data_ = owner.dtype() == dtype && owner.is_contiguous() ? owner : copy_as(owner, dtype);
  }
  void* data() const { return data_or_null(data_); }
  void changed() const {
    if (!owner_.defined()) return;
    if (data_.is(owner_))
      owner_.bump_version();
    else
      copy_into(owner_, data_);
  }

 private:
  Tensor owner_, data_;
};

std::vector<int64_t> all_but_last(const Tensor& x) {
  std::vector<int64_t> dims;
  for (int i = 0; i + 1 < x.dim(); ++i) dims.push_back(i);
  return dims;
}

/// The backward in public functions, so that it can itself be differentiated. saved: x, weight, mean, rstd.
void composite_backward(Backward& bw, bool training, double eps) {
  const DType wide = bw.saved(2).dtype();
  const Tensor x = cast(bw.saved(0), wide), dy = cast(bw.grad(), wide), weight = bw.saved(1);
  const std::vector<int64_t> rows = all_but_last(x);
  // One row: nothing to sum over (an empty list would mean all dims).
  const auto total = [&](const Tensor& t) { return rows.empty() ? t : sum(t, rows); };
  Tensor average = bw.saved(2), scale = bw.saved(3);
  const double n = static_cast<double>(x.numel()) / static_cast<double>(std::max<int64_t>(1, x.shape().back()));
  if (training) {
    average = total(x) / n;
    scale = rsqrt(total(square(x - average)) / n + eps);
  }
  const Tensor xhat = (x - average) * scale, dbias = total(dy), dweight = total(dy * xhat);
  if (bw.needs(0)) {
    const Tensor factor = weight.defined() ? scale * weight : scale;
    bw.give(0, factor * (training ? dy - (dbias + xhat * dweight) / n : dy));
  }
  if (bw.needs(1)) bw.give(1, dweight);
  if (bw.needs(2)) bw.give(2, dbias);
}

void fused_backward(Backward& bw, bool training) {
  const Tensor x = contiguous_data(bw.saved(0)), dy = contiguous_data(bw.grad());
  const Tensor weight = bw.saved(1), mean = bw.saved(2), rstd = bw.saved(3);
  const int64_t channels = x.shape().back();
  const auto wanted = [&](int input, const Shape& shape, DType dtype) {
    return bw.needs(input) ? empty(shape, dtype, x.device()) : Tensor();
  };
  const Tensor dx = wanted(0, x.shape(), x.dtype());
  const Tensor dweight = wanted(1, {channels}, mean.dtype()), dbias = wanted(2, {channels}, mean.dtype());
  if (channels > 0) {
    launch<kBatchNormGrad>(
        x.device(), x.dtype(),
        {data_or_null(dx), dy.raw_data(), x.raw_data(), x.numel() / channels, channels, data_or_null(weight),
         mean.raw_data(), rstd.raw_data(), data_or_null(dweight), data_or_null(dbias), training});
  }
  bw.give_all({dx, dweight, dbias});
}

}  // namespace

Tensor batch_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& running_mean,
                  const Tensor& running_var, bool training, double momentum, double eps) {
  check<ShapeError>(x.dim() >= 1, "batch_norm", "the input is a scalar. Hint: channels are the last dim.");
  check<DTypeError>(is_floating_point(x.dtype()), "batch_norm", "the input is ", x.dtype(),
                    ". Hint: cast it to a float dtype.");
  check_channels(weight, "weight", x);
  check_channels(bias, "bias", x);
  check_channels(running_mean, "running_mean", x);
  check_channels(running_var, "running_var", x);
  check<ValueError>(
      training || (running_mean.defined() && running_var.defined()), "batch_norm",
      "evaluation needs running_mean and running_var. Hint: pass both, or normalise by the batch in training.");
  const int64_t channels = x.shape().back(), rows = channels == 0 ? 0 : x.numel() / channels;
  check<ShapeError>(!training || rows != 1, "batch_norm",
                    "training needs more than one value per channel, the input has shape ", x.shape(),
                    ". Hint: use a larger batch, or evaluation mode.");

  const DType wide = accumulate_type(x.dtype());
  const auto parameter = [&](const Tensor& t) { return t.defined() ? contiguous(cast(t, wide)) : t; };
  const Tensor w = parameter(weight), b = parameter(bias);
  const Tensor y = empty(x.shape(), x.dtype(), x.device());
  const Tensor mean = zeros({channels}, wide, x.device()), rstd = zeros({channels}, wide, x.device());
  if (rows > 0) {
    for (const Tensor* t : {&running_mean, &running_var}) {
      if (training && t->defined()) require_writable("batch_norm", *t);
    }
    const Tensor source = contiguous_data(x);
    const Running average(running_mean, wide), variance(running_var, wide);
    launch<kBatchNorm>(x.device(), x.dtype(),
                       {y.raw_data(), source.raw_data(), rows, channels, data_or_null(w), data_or_null(b),
                        mean.raw_data(), rstd.raw_data(), average.data(), variance.data(), training, momentum, eps});
    if (training) {
      average.changed();
      variance.changed();
    }
  }
  return record("batch_norm", {&x, &w, &b}, {&x, &w, &mean, &rstd}, y, [training, eps](Backward& bw) {
    if (bw.create_graph())
      composite_backward(bw, training, eps);
    else
      fused_backward(bw, training);
  });
}

}  // namespace anello
