// The base of all optimizers: groups, the step over them, and the lists that the fused kernels take.
// Main entry: Optimizer::step(). Saving and loading is in optimizer_state.cpp.
#include <anello/optim/optimizer.h>

#include <anello/autograd/grad_mode.h>
#include <anello/core/suggest.h>

#include <algorithm>
#include <cmath>
#include <unordered_set>

namespace anello::optim {

const Options::Item* Options::find(std::string_view name) const {
  const auto place = std::find_if(items_.begin(), items_.end(), [&](const Item& item) { return item.first == name; });
  return place == items_.end() ? nullptr : &*place;
}

void Options::fail_unknown(std::string_view name) const {
  std::vector<std::string_view> names;
  for (const Item& item : items_) names.push_back(item.first);
  fail<ValueError>("optim", "unknown option '", name, "'.", suggest(name, names));
}

double Options::at(std::string_view name) const {
  const Item* item = find(name);
  if (item == nullptr) fail_unknown(name);
  return item->second;
}

void Options::set(std::string_view name, double value) {
  const Item* item = find(name);
  if (item == nullptr) fail_unknown(name);
  items_[static_cast<size_t>(item - items_.data())].second = value;
}

bool Options::contains(std::string_view name) const { return find(name) != nullptr; }

void Optimizer::require_option(bool ok, const Options& options, std::string_view name, std::string_view what) const {
  check<ValueError>(ok && std::isfinite(options.at(name)), class_name(), name, " is ", options.at(name), ", ", what,
                    ok ? " that is finite" : "", " is needed");
}

void Optimizer::check_param(const Tensor& param) const {
  check<ValueError>(param.defined(), class_name(), "a parameter is undefined");
  check<ValueError>(is_floating_point(param.dtype()), class_name(), "a parameter is ", param.dtype(),
                    ", not a float type");
  check<ValueError>(param.is_leaf(), class_name(), "a parameter of shape ", param.shape(),
                    " was computed by an operation, only leaves can be optimized. Hint: pass model.parameters().");
  require_writable(class_name(), param);
}

void Optimizer::add_param_group(const std::vector<Tensor>& params, const Options& options) {
  check<ValueError>(!params.empty(), class_name(), "a group has no parameters. Hint: pass model.parameters().");
  std::unordered_set<const TensorImpl*> known;
  for (const ParamGroup& group : groups_)
    for (const Tensor& param : group.params) known.insert(param.ref().get());
  for (const Tensor& param : params) {
    check_param(param);
    check<ValueError>(known.insert(param.ref().get()).second, class_name(), "the parameter '", param.name(),
                      "' of shape ", param.shape(), " is given twice. Hint: each belongs to one group, once.");
  }
  Options all = defaults_;
  for (const auto& [name, value] : options) all.set(name, value);
  check_options(all);
  groups_.push_back({params, std::move(all)});
  states_.emplace_back(params.size());
}

void Optimizer::add_param_groups(const std::vector<ParamGroup>& groups) {
  check<ValueError>(!groups.empty(), class_name(), "there are no parameter groups. Hint: pass model.parameters().");
  check_options(defaults_);
  for (const ParamGroup& group : groups) add_param_group(group.params, group.options);
}

void Optimizer::zero_grad() {
  for (const ParamGroup& group : groups_)
    for (const Tensor& param : group.params) param.zero_grad();
}

void Optimizer::step() {
  const NoGradGuard no_grad;
  std::vector<Update> updates;
  for (size_t g = 0; g < groups_.size(); ++g) {
    const ParamGroup& group = groups_[g];
    check_options(group.options);
    updates.clear();
    for (size_t i = 0; i < group.params.size(); ++i) {
      const Tensor grad = group.params[i].grad();
      if (!grad.defined()) continue;
      ParamState& state = states_[g][i];
      for (const Tensor& slot : state.slots)
        check<Error>(
            !slot.defined() || (slot.dtype() == accumulate_type(grad.dtype()) && slot.device() == grad.device()),
            class_name(), "the parameter '", group.params[i].name(), "' is ", grad.dtype(), " on ", grad.device(),
            " now, its state ", slot.defined() ? slot.dtype() : grad.dtype(),
            ". Hint: build the optimizer after model.to().");
      updates.push_back({group.params[i], grad, &state});
    }
    for (const Update& update : updates) ++update.state->step;
    if (!updates.empty()) update(group.options, updates);
  }
}

Tensor Optimizer::new_state(const Tensor& param, bool zero) {
  const DType dtype = accumulate_type(param.dtype());
  return zero ? zeros(param.shape(), dtype, param.device()) : empty(param.shape(), dtype, param.device());
}

std::vector<Optimizer::FusedList> Optimizer::fuse(const std::vector<Update>& updates, size_t slots,
                                                  std::vector<Tensor>& params, std::vector<Tensor>& copies) const {
  std::vector<FusedList> lists;
  for (const Update& update : updates) {
    require_writable(class_name(), update.param);  // set_data() may have given it other memory
    params.push_back(contiguous_data(update.param));
    copies.push_back(contiguous_data(update.grad));
    const DType dtype = update.param.dtype(), grad_dtype = update.grad.dtype();
    const Device device = update.param.device();
    auto list = std::find_if(lists.begin(), lists.end(), [&](const FusedList& l) {
      return l.device == device && l.dtype == dtype && l.grad_dtype == grad_dtype;
    });
    if (list == lists.end()) list = lists.insert(lists.end(), {device, dtype, grad_dtype, {}});
    OptimTensor entry{params.back().raw_data(), copies.back().raw_data(), {}, update.param.numel(), update.state->step};
    for (size_t i = 0; i < slots; ++i)
      if (update.state->slots[i].defined()) entry.state[i] = update.state->slots[i].raw_data();
    list->tensors.push_back(entry);
  }
  return lists;
}

void Optimizer::finish(const std::vector<Update>& updates, const std::vector<Tensor>& params) {
  for (size_t i = 0; i < updates.size(); ++i) {
    if (params[i].is(updates[i].param))
      updates[i].param.bump_version();
    else
      copy_into(updates[i].param, params[i]);  // went through a contiguous copy
  }
}

}  // namespace anello::optim
