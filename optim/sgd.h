// Stochastic gradient descent.
// Main entry: SGD.
#pragma once

#include <anello/optim/optimizer.h>

namespace anello::optim {

struct SGDOptions {
  double lr = 1e-3;
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;  ///< added to the gradient, times the parameter
  bool nesterov = false;    ///< needs momentum above 0 and dampening 0
  bool maximize = false;
  operator Options() const;
};

/// g = grad + weight_decay p;  v = momentum v + (1 - dampening) g, v = g at first;
/// p = p - lr (nesterov ? g + momentum v : v). Sutskever, Martens, Dahl, Hinton, ICML 2013, in PyTorch's form.
class SGD final : public Optimizer {
 public:
  explicit SGD(const std::vector<Tensor>& params, const SGDOptions& options = {})
      : SGD(std::vector<ParamGroup>{{params, {}}}, options) {}
  explicit SGD(const std::vector<ParamGroup>& groups, const SGDOptions& options = {});
  std::string class_name() const override { return "SGD"; }

 protected:
  std::vector<std::string> slot_names() const override { return {"momentum_buffer"}; }
  void check_options(const Options& options) const override;
  void update(const Options& options, const std::vector<Update>& updates) override;
};

}  // namespace anello::optim
