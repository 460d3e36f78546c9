// Momentum whose matrix is brought close to an orthogonal one before it is applied.
// Main entry: Muon::update().
#include <anello/optim/muon.h>

#include <anello/autograd/functions.h>
#include <anello/autograd/grad_mode.h>

#include <cmath>

namespace anello::optim {

Tensor orthogonalize(const Tensor& g, int64_t steps, std::array<double, 3> coefficients, double eps) {
  check<ShapeError>(g.dim() == 2, "orthogonalize", "a matrix is needed, got shape ", g.shape());
  const NoGradGuard no_grad;
  const auto [a, b, c] = coefficients;
  // The product X X^T is cheaper on the short side.
  const bool tall = g.size(0) > g.size(1);
  Tensor x = cast(tall ? contiguous(transpose(g, 0, 1)) : g, accumulate_type(g.dtype()));
  x = x / (norm(x) + eps);
  for (int64_t i = 0; i < steps; ++i) {
    const Tensor square = matmul(x, transpose(x, 0, 1));
    const Tensor polynomial = square * b + matmul(square, square) * c;
    x = x * a + matmul(polynomial, x);
  }
  return cast(tall ? transpose(x, 0, 1) : x, g.dtype());
}

MuonOptions::operator Options() const {
  return {{"lr", lr},
          {"momentum", momentum},
          {"nesterov", static_cast<double>(nesterov)},
          {"steps", static_cast<double>(steps)},
          {"a", a},
          {"b", b},
          {"c", c},
          {"normalize", static_cast<double>(normalize)},
          {"weight_decay", weight_decay}};
}

Muon::Muon(const std::vector<ParamGroup>& groups, const MuonOptions& options) : Optimizer(options) {
  add_param_groups(groups);
}

void Muon::check_options(const Options& o) const {
  require_option(o.at("lr") >= 0, o, "lr", "a number of at least 0");
  require_option(o.at("momentum") >= 0 && o.at("momentum") < 1, o, "momentum", "a number from 0 to below 1");
  require_option(o.at("steps") >= 1 && o.at("steps") == std::floor(o.at("steps")), o, "steps",
                 "a whole number above 0");
  require_option(o.at("weight_decay") >= 0, o, "weight_decay", "a number of at least 0");
}

void Muon::check_param(const Tensor& param) const {
  Optimizer::check_param(param);
  check<ShapeError>(param.dim() >= 2, "Muon", "the parameter '", param.name(), "' has shape ", param.shape(),
                    ", two dims or more are needed. Hint: give biases and scales to SGD or AdamW.");
}

void Muon::update(const Options& o, const std::vector<Update>& updates) {
  const double lr = o.at("lr"), momentum = o.at("momentum");
  const std::array<double, 3> coefficients = {o.at("a"), o.at("b"), o.at("c")};
  for (const auto& [param, grad, state] : updates) {
    if (param.numel() == 0) continue;
    Tensor& velocity = state->slots[0];
    const Tensor g = cast(grad, accumulate_type(grad.dtype()));
    if (!velocity.defined()) velocity = new_state(param);
    mul_(velocity, momentum);
    add_(velocity, g);
    const Tensor direction = o.at("nesterov") != 0 ? g + velocity * momentum : velocity;
    const Tensor matrix = reshape(direction, {param.size(0), -1});
    const Tensor step = orthogonalize(matrix, static_cast<int64_t>(o.at("steps")), coefficients);
    if (o.at("normalize") != 0) {
      const double size = norm(cast(param, g.dtype())).item<double>();
      if (size > 0) mul_(param, std::sqrt(static_cast<double>(param.size(0))) / size);
    }
    if (o.at("weight_decay") != 0) mul_(param, 1 - lr * o.at("weight_decay"));
    add_(param, reshape(step, param.shape()), -lr);
  }
}

}  // namespace anello::optim
