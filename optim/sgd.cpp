// Stochastic gradient descent.
// Main entry: SGD::update().
#include <anello/core/registry.h>
#include <anello/optim/sgd.h>

namespace anello::optim {

SGDOptions::operator Options() const {
  return {{"lr", lr},
          {"momentum", momentum},
          {"dampening", dampening},
          {"weight_decay", weight_decay},
          {"nesterov", static_cast<double>(nesterov)},
          {"maximize", static_cast<double>(maximize)}};
}

SGD::SGD(const std::vector<ParamGroup>& groups, const SGDOptions& options) : Optimizer(options) {
  add_param_groups(groups);
}

void SGD::check_options(const Options& o) const {
  require_option(o.at("lr") >= 0, o, "lr", "a number of at least 0");
  require_option(o.at("momentum") >= 0, o, "momentum", "a number of at least 0");
  require_option(true, o, "dampening", "a number");
  require_option(o.at("weight_decay") >= 0, o, "weight_decay", "a number of at least 0");
  check<ValueError>(o.at("nesterov") == 0 || (o.at("momentum") > 0 && o.at("dampening") == 0), "SGD",
                    "nesterov needs momentum above 0 and dampening 0, got momentum ", o.at("momentum"),
                    " and dampening ", o.at("dampening"));
}

void SGD::update(const Options& o, const std::vector<Update>& updates) {
  const double momentum = o.at("momentum");
  // The kernel starts the velocity at a parameter's update 1. Momentum may be switched on later, so that is the update
  // that makes the buffer, whatever the count.
  std::vector<ParamState> first_or_not(updates.size());
  std::vector<Update> view = updates;
  for (size_t i = 0; i < updates.size() && momentum != 0; ++i) {
    Tensor& velocity = updates[i].state->slots[0];
    const bool first = !velocity.defined();
    if (first) velocity = new_state(updates[i].param, false);
    first_or_not[i] = {first ? 1 : 2, {velocity}};
    view[i].state = &first_or_not[i];
  }
  run_fused(view, momentum != 0 ? 1 : 0, [&](const FusedList& list) {
    launch<kSgd>(
        list.device, list.dtype,
        SgdParams{list.tensors.data(), static_cast<int64_t>(list.tensors.size()), list.grad_dtype, o.at("lr"), momentum,
                  o.at("dampening"), o.at("weight_decay"), o.at("nesterov") != 0, o.at("maximize") != 0});
  });
}

}  // namespace anello::optim
