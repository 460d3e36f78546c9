// What the tests of optimizers and schedules share: parameters, and steps with a given gradient.
// Main entry: parameter(), step_with().
#pragma once

#include <anello/optim/optimizer.h>

#include <vector>

namespace anello::optim {

inline Tensor parameter(const std::vector<double>& values, DType dtype = float64) {
  Tensor p = copy_as(from_vector(values), dtype);
  p.set_requires_grad();
  return p;
}
/// One step with these gradients.
inline void step_with(Optimizer& optimizer, const Tensor& p, const std::vector<double>& grad) {
  p.set_grad(copy_as(from_vector(grad, p.shape()), p.dtype()));
  optimizer.step();
}
inline double value(const Tensor& p) { return p.to_vector<double>()[0]; }
inline std::vector<double> values(const Tensor& p) { return p.to_vector<double>(); }

}  // namespace anello::optim
