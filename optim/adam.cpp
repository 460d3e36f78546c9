// Adam and AdamW.
// Main entry: Adam::update().
#include <anello/core/registry.h>
#include <anello/optim/adam.h>

namespace anello::optim {

AdamOptions::operator Options() const {
  return {{"lr", lr},
          {"beta1", beta1},
          {"beta2", beta2},
          {"eps", eps},
          {"weight_decay", weight_decay},
          {"amsgrad", static_cast<double>(amsgrad)},
          {"maximize", static_cast<double>(maximize)}};
}

Adam::Adam(const std::vector<ParamGroup>& groups, const AdamOptions& options) : Adam(options, false) {
  add_param_groups(groups);
}

AdamW::AdamW(const std::vector<ParamGroup>& groups, const AdamOptions& options) : Adam(options, true) {
  add_param_groups(groups);
}

void Adam::check_options(const Options& o) const {
  const auto between = [&](const char* name) {
    require_option(o.at(name) >= 0 && o.at(name) < 1, o, name, "a number from 0 to below 1");
  };
  require_option(o.at("lr") >= 0, o, "lr", "a number of at least 0");
  between("beta1");
  between("beta2");
  require_option(o.at("eps") >= 0, o, "eps", "a number of at least 0");
  require_option(o.at("weight_decay") >= 0, o, "weight_decay", "a number of at least 0");
}

void Adam::update(const Options& o, const std::vector<Update>& updates) {
  const bool amsgrad = o.at("amsgrad") != 0;
  const size_t slots = amsgrad ? 3 : 2;
  for (const Update& update : updates)
    for (size_t i = 0; i < slots; ++i)
      if (!update.state->slots[i].defined()) update.state->slots[i] = new_state(update.param);
  run_fused(updates, slots, [&](const FusedList& list) {
    launch<kAdam>(list.device, list.dtype,
                  AdamParams{list.tensors.data(), static_cast<int64_t>(list.tensors.size()), list.grad_dtype,
                             o.at("lr"), o.at("beta1"), o.at("beta2"), o.at("eps"), o.at("weight_decay"), decoupled_,
                             amsgrad, o.at("maximize") != 0});
  });
}

}  // namespace anello::optim
