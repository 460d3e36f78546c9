// Momentum whose matrix is brought close to an orthogonal one before it is applied.
// Main entry: Muon, orthogonalize().
#pragma once

#include <anello/optim/optimizer.h>

namespace anello::optim {

/// The nearest orthogonal matrix, roughly: all singular values of g (2-d) are brought near 1 (between about 0.7
/// and 1.2) by `steps` rounds of the quintic X = a X + (b A + c A A) X, A = X X^T, from X = g / (|g| + eps). Computed
/// in accumulate_type; the result has g's dtype. Not recorded by autograd. Raises ShapeError unless g is a matrix.
/// Source: K. Jordan et al., "Muon: an optimizer for hidden layers in neural networks", 2024.
Tensor orthogonalize(const Tensor& g, int64_t steps = 3, std::array<double, 3> coefficients = {3.4445, -4.7750, 2.0315},
                     double eps = 1e-7);

struct MuonOptions {
  double lr = 0.02;
  double momentum = 0.9;
  bool nesterov = true;
  int64_t steps = 3;  ///< rounds of the iteration; its coefficients are a, b, c of orthogonalize()
  double a = 3.4445, b = -4.7750, c = 2.0315;
  bool normalize =
      false;  ///< rescale each weight to Frobenius norm sqrt(out) before its update (weights before a norm layer)
  double weight_decay = 0;  ///< p is scaled by 1 - lr weight_decay
  operator Options() const;
};

/// v = momentum v + grad;  u = nesterov ? grad + momentum v : v;  p = p - lr orthogonalize(u as [out, the rest]).
/// For parameters of two dims or more (convolution filters are flattened); give biases and scales to another optimizer.
/// The recipe for small images follows the successor of arXiv 2404.00498.
class Muon final : public Optimizer {
 public:
  explicit Muon(const std::vector<Tensor>& params, const MuonOptions& options = {})
      : Muon(std::vector<ParamGroup>{{params, {}}}, options) {}
  /// Raises ShapeError at a parameter with fewer than two dims.
  explicit Muon(const std::vector<ParamGroup>& groups, const MuonOptions& options = {});
  std::string class_name() const override { return "Muon"; }

 protected:
  std::vector<std::string> slot_names() const override { return {"momentum_buffer"}; }
  void check_options(const Options& options) const override;
  void check_param(const Tensor& param) const override;
  void update(const Options& options, const std::vector<Update>& updates) override;
};

}  // namespace anello::optim
