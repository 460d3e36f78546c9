// Central differences against backward, element by element.
// Main entry: gradcheck().
#include <anello/autograd/engine.h>
#include <anello/autograd/functions.h>
#include <anello/autograd/grad_mode.h>
#include <anello/autograd/gradcheck.h>

#include <cmath>

namespace anello {
namespace {

using Outputs = std::vector<Tensor>;
using TensorFunction = std::function<Outputs(const Outputs&)>;

/// A scalar that depends on every output element by a different weight, so that errors cannot cancel.
Tensor weighted_sum(const Outputs& outputs) {
  Tensor total;
  for (const Tensor& out : outputs) {
    if (!is_floating_point(out.dtype())) continue;
    std::vector<double> weights(static_cast<size_t>(out.numel()));
    for (size_t i = 0; i < weights.size(); ++i) weights[i] = 0.5 + 0.37 * std::sin(1.0 + 1.7 * static_cast<double>(i));
    const Tensor term = sum(mul(cast(out, float64), from_vector(weights, out.shape())));
    total = total.defined() ? add(total, term) : term;
  }
  check<ValueError>(total.defined(), "gradcheck", "the function returned no floating-point tensor.");
  return total;
}

double evaluate(const TensorFunction& f, const Outputs& inputs) { return weighted_sum(f(inputs)).item<double>(); }

void check_input(const TensorFunction& f, const Outputs& inputs, size_t which, const Tensor& analytic,
                 const GradcheckOptions& options) {
  Outputs moved;
  for (const Tensor& t : inputs) moved.push_back(t.defined() ? copy_as(t, t.dtype()) : t);
  for (size_t i = 0; i < moved.size(); ++i)
    if (inputs[i].defined() && inputs[i].requires_grad()) moved[i].set_requires_grad();
  double* values = moved[which].data<double>();
  const std::vector<double> grads = analytic.defined()
                                        ? analytic.to_vector<double>()
                                        : std::vector<double>(static_cast<size_t>(moved[which].numel()), 0.0);
  for (size_t k = 0; k < grads.size(); ++k) {
    const double before = values[k];
    values[k] = before + options.eps;
    const double up = evaluate(f, moved);
    values[k] = before - options.eps;
    const double down = evaluate(f, moved);
    values[k] = before;
    const double numeric = (up - down) / (2 * options.eps);
    const bool close = std::fabs(numeric - grads[k]) <= options.atol + options.rtol * std::fabs(numeric);
    check<Error>(close || (std::isnan(numeric) && std::isnan(grads[k])), "gradcheck", "input ", which, ", element ", k,
                 ": analytic ", grads[k], ", numeric ", numeric, ".");
  }
}

}  // namespace

bool gradcheck(const TensorFunction& f, const std::vector<Tensor>& inputs, const GradcheckOptions& options) {
  const EnableGradGuard recording;
  Outputs wanted;
  std::vector<size_t> places;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].defined() || !inputs[i].requires_grad()) continue;
    check<DTypeError>(inputs[i].dtype() == float64, "gradcheck", "input ", i, " is ", inputs[i].dtype(),
                      ". Hint: finite differences need float64.");
    wanted.push_back(inputs[i]);
    places.push_back(i);
  }
  check<ValueError>(!wanted.empty(), "gradcheck", "no input requires a gradient.");
  const Tensor total = weighted_sum(f(inputs));
  const Outputs analytic =
      total.requires_grad() ? grad({total}, wanted, {}, false, false, true) : Outputs(wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i) check_input(f, inputs, places[i], analytic[i], options);
  if (!options.second_order) return true;

  const TensorFunction gradient = [&](const Outputs& at) {
    Outputs leaves;
    for (size_t i : places) leaves.push_back(at[i]);
    Outputs grads = grad({weighted_sum(f(at))}, leaves, {}, false, true, true);
    Outputs defined;
    for (Tensor& g : grads)
      if (g.defined()) defined.push_back(std::move(g));
    return defined;
  };
  GradcheckOptions first = options;
  first.second_order = false;
  Outputs probe = gradient(inputs);
  const bool depends = std::any_of(probe.begin(), probe.end(), [](const Tensor& g) { return g.requires_grad(); });
  return !depends || gradcheck(gradient, inputs, first);
}

}  // namespace anello
