// Saving and loading of optimizers.
// Main entry: Optimizer::state_dict(), Optimizer::load_state_dict().
#include <anello/optim/optimizer.h>

namespace anello::optim {

State Optimizer::state_dict() const {
  State state;
  state.values["kind"] = class_name();
  std::vector<int64_t> sizes, steps;
  const std::vector<std::string> names = slot_names();
  size_t number = 0;
  for (size_t g = 0; g < groups_.size(); ++g) {
    sizes.push_back(static_cast<int64_t>(groups_[g].params.size()));
    for (const auto& [name, value] : groups_[g].options) state.values[concat("group", g, ".", name)] = value;
    for (const ParamState& param : states_[g]) {
      steps.push_back(param.step);
      for (size_t i = 0; i < names.size(); ++i)
        if (param.slots[i].defined()) state.tensors.set(concat(number, ".", names[i]), param.slots[i]);
      ++number;
    }
  }
  state.values["group_sizes"] = sizes;
  state.values["steps"] = steps;
  return state;
}

void Optimizer::load_state_dict(const State& state) {
  const std::string op = class_name() + ".load_state_dict";
  check<ValueError>(state.get<std::string>("kind", op) == class_name(), op, "this is the state of a ",
                    state.get<std::string>("kind", op));
  const auto sizes = state.get<std::vector<int64_t>>("group_sizes", op);
  const auto steps = state.get<std::vector<int64_t>>("steps", op);
  check<ValueError>(sizes.size() == groups_.size(), op, "the state has ", sizes.size(), " groups, the optimizer ",
                    groups_.size());
  std::vector<Options> options;
  std::vector<std::vector<ParamState>> states;
  const std::vector<std::string> names = slot_names();
  size_t number = 0, used = 0;
  for (size_t g = 0; g < groups_.size(); ++g) {
    const std::vector<Tensor>& params = groups_[g].params;
    check<ValueError>(sizes[g] == static_cast<int64_t>(params.size()), op, "group ", g, " has ", sizes[g],
                      " parameters in the state, ", params.size(), " in the optimizer");
    options.push_back(groups_[g].options);
    for (const auto& [name, value] : groups_[g].options)
      options[g].set(name, state.get<double>(concat("group", g, ".", name), op));
    check_options(options[g]);
    states.emplace_back(params.size());
    for (size_t i = 0; i < params.size(); ++i, ++number) {
      check<ValueError>(number < steps.size() && steps[number] >= 0, op, "'steps' does not fit the parameters");
      states[g][i].step = steps[number];
      for (size_t s = 0; s < names.size(); ++s) {
        const std::string name = concat(number, ".", names[s]);
        const Tensor* given = state.tensors.find(name);
        if (given == nullptr) continue;
        check<ShapeError>(given->shape() == params[i].shape(), op, "'", name, "' is ", given->shape(),
                          ", the parameter '", params[i].name(), "' is ", params[i].shape());
        Tensor copy = new_state(params[i], false);
        copy_into(copy, copy_to_device(*given, params[i].device()));
        states[g][i].slots[s] = copy;
        ++used;
      }
    }
  }
  check<ValueError>(steps.size() == number, op, "the state has ", steps.size(), " parameters, the optimizer ", number);
  check<ValueError>(used == state.tensors.size(), op, "the state has ", state.tensors.size(), " tensors, ", used,
                    " of them fit a parameter");
  for (size_t g = 0; g < groups_.size(); ++g) groups_[g].options = options[g];
  states_ = std::move(states);
}

}  // namespace anello::optim
