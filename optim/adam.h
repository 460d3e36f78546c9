// Adam and AdamW.
// Main entry: Adam, AdamW.
#pragma once

#include <anello/optim/optimizer.h>

namespace anello::optim {

struct AdamOptions {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay =
      0;  ///< Adam: added to the gradient, times the parameter; AdamW: p is scaled by 1 - lr weight_decay
  bool amsgrad = false;  ///< divide by the largest second moment so far; Reddi, Kale, Kumar, ICLR 2018
  bool maximize = false;
  operator Options() const;
};

/// arXiv 1412.6980, bias-corrected: m and v are the running means of g and g^2,
/// p = p - lr m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + eps).
class Adam : public Optimizer {
 public:
  explicit Adam(const std::vector<Tensor>& params, const AdamOptions& options = {})
      : Adam(std::vector<ParamGroup>{{params, {}}}, options) {}
  explicit Adam(const std::vector<ParamGroup>& groups, const AdamOptions& options = {});
  std::string class_name() const override { return "Adam"; }

 protected:
  Adam(const AdamOptions& options, bool decoupled) : Optimizer(options), decoupled_(decoupled) {}
  std::vector<std::string> slot_names() const override { return {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"}; }
  void check_options(const Options& options) const override;
  void update(const Options& options, const std::vector<Update>& updates) override;

 private:
  bool decoupled_ = false;
};

/// Adam with weight decay apart from the gradient; arXiv 1711.05101. weight_decay is 0.01 unless given.
class AdamW final : public Adam {
 public:
  explicit AdamW(const std::vector<Tensor>& params, const AdamOptions& options = {.weight_decay = 0.01})
      : AdamW(std::vector<ParamGroup>{{params, {}}}, options) {}
  explicit AdamW(const std::vector<ParamGroup>& groups, const AdamOptions& options = {.weight_decay = 0.01});
  std::string class_name() const override { return "AdamW"; }
};

}  // namespace anello::optim
