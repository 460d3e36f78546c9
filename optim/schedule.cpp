// Learning rates over time.
// Main entry: Schedule::step(), OneCycleLR::lr_at().
#include <anello/core/suggest.h>
#include <anello/optim/schedule.h>

#include <algorithm>
#include <cmath>
#include <numbers>

namespace anello::optim {

Schedule::Schedule(Optimizer& optimizer, Warmup warmup) : optimizer_(optimizer), warmup_(warmup) {
  check<ValueError>(warmup.steps >= 0 && warmup.start_factor >= 0, "Schedule", "warm-up of ", warmup.steps,
                    " steps from a factor of ", warmup.start_factor, ", both must be at least 0");
  see_new_groups();
}

void Schedule::see_new_groups() {
  const auto& groups = optimizer_.param_groups();
  for (size_t g = base_lrs_.size(); g < groups.size(); ++g) base_lrs_.push_back(groups[g].options.at("lr"));
}

void Schedule::apply() {
  see_new_groups();
  auto& groups = optimizer_.param_groups();
  const int64_t t = count_ - warmup_.steps;
  for (size_t g = 0; g < groups.size(); ++g) {
    double lr = lr_at(std::max<int64_t>(t, 0), g);
    if (t < 0) {
      const double done = static_cast<double>(count_) / static_cast<double>(warmup_.steps);
      lr *= warmup_.start_factor + (1 - warmup_.start_factor) * done;
    }
    groups[g].options.set("lr", lr);
  }
}

void Schedule::step() {
  ++count_;
  try {
    apply();
  } catch (...) {
    --count_;
    throw;
  }
}

std::vector<double> Schedule::last_lr() const {
  std::vector<double> rates;
  for (const ParamGroup& group : optimizer_.param_groups()) rates.push_back(group.options.at("lr"));
  return rates;
}

State Schedule::state_dict() const {
  State state;
  state.values = {{"kind", class_name()}, {"step_count", count_}, {"base_lrs", base_lrs_}};
  return state;
}

void Schedule::load_state_dict(const State& state) {
  const std::string op = class_name() + ".load_state_dict";
  const auto kind = state.get<std::string>("kind", op);
  check<ValueError>(kind == class_name(), op, "this is the state of a ", kind);
  auto base_lrs = state.get<std::vector<double>>("base_lrs", op);
  const auto count = state.get<int64_t>("step_count", op);
  check<ValueError>(base_lrs.size() == optimizer_.param_groups().size() && count >= 0, op, "the state has ",
                    base_lrs.size(), " groups at step ", count, ", the optimizer has ",
                    optimizer_.param_groups().size(), " groups");
  base_lrs_ = std::move(base_lrs);
  count_ = count;
  apply();
}

CosineAnnealingLR::CosineAnnealingLR(Optimizer& optimizer, int64_t T_max, double eta_min, Warmup warmup)
    : Schedule(optimizer, warmup), t_max_(T_max), eta_min_(eta_min) {
  check<ValueError>(T_max >= 1, "CosineAnnealingLR", "T_max is ", T_max, ", at least 1 is needed");
  apply();
}

double CosineAnnealingLR::lr_at(int64_t t, size_t group) const {
  const double part = static_cast<double>(t) / static_cast<double>(t_max_);
  return eta_min_ + (base_lr(group) - eta_min_) * (1 + std::cos(std::numbers::pi * part)) / 2;
}

MultiStepLR::MultiStepLR(Optimizer& optimizer, std::vector<int64_t> milestones, double gamma, Warmup warmup)
    : Schedule(optimizer, warmup), milestones_(std::move(milestones)), gamma_(gamma) {
  check<ValueError>(gamma >= 0, "MultiStepLR", "gamma is ", gamma, ", at least 0 is needed");
  std::sort(milestones_.begin(), milestones_.end());
  apply();
}

double MultiStepLR::lr_at(int64_t t, size_t group) const {
  const auto passed = std::upper_bound(milestones_.begin(), milestones_.end(), t) - milestones_.begin();
  return base_lr(group) * std::pow(gamma_, static_cast<double>(passed));
}

LinearLR::LinearLR(Optimizer& optimizer, double start_factor, double end_factor, int64_t total_iters, Warmup warmup)
    : Schedule(optimizer, warmup), start_(start_factor), end_(end_factor), total_(total_iters) {
  check<ValueError>(start_factor >= 0 && end_factor >= 0, "LinearLR", "start_factor is ", start_factor,
                    " and end_factor is ", end_factor, ", both must be at least 0");
  check<ValueError>(total_iters >= 1, "LinearLR", "total_iters is ", total_iters, ", at least 1 is needed");
  apply();
}

double LinearLR::lr_at(int64_t t, size_t group) const {
  const double part = static_cast<double>(std::min(t, total_)) / static_cast<double>(total_);
  return base_lr(group) * (start_ * (1 - part) + end_ * part);
}

LambdaLR::LambdaLR(Optimizer& optimizer, std::vector<std::function<double(int64_t)>> lr_lambda, Warmup warmup)
    : Schedule(optimizer, warmup), functions_(std::move(lr_lambda)) {
  check<ValueError>(functions_.size() == 1 || functions_.size() == group_count(), "LambdaLR", functions_.size(),
                    " functions for ", group_count(), " groups. Hint: give one for all, or one a group.");
  apply();
}

LambdaLR::LambdaLR(Optimizer& optimizer, std::function<double(int64_t)> lr_lambda, Warmup warmup)
    : LambdaLR(optimizer, std::vector<std::function<double(int64_t)>>{std::move(lr_lambda)}, warmup) {}

double LambdaLR::lr_at(int64_t t, size_t group) const {
  check<ValueError>(functions_.size() == 1 || group < functions_.size(), "LambdaLR", "group ", group,
                    " was added to the optimizer later and has no function");
  return base_lr(group) * functions_[functions_.size() == 1 ? 0 : group](t);
}

namespace {
/// The option that plays the part of momentum, or null.
const char* momentum_option(const Options& options) {
  if (options.contains("momentum")) return options.at("momentum") != 0 ? "momentum" : nullptr;
  return options.contains("beta1") ? "beta1" : nullptr;
}
}  // namespace

OneCycleLR::OneCycleLR(Optimizer& optimizer, const OneCycleOptions& options)
    : Schedule(optimizer, {}), options_(options) {
  const OneCycleOptions& o = options_;
  check<ValueError>(o.max_lr.size() == 1 || o.max_lr.size() == group_count(), "OneCycleLR", o.max_lr.size(),
                    " values of max_lr for ", group_count(), " groups. Hint: give one for all, or one a group.");
  check<ValueError>(o.total_steps >= 1, "OneCycleLR", "total_steps is ", o.total_steps, ", at least 1 is needed");
  check<ValueError>(o.pct_start >= 0 && o.pct_start <= 1, "OneCycleLR", "pct_start is ", o.pct_start,
                    ", a number from 0 to 1 is needed");
  check<ValueError>(o.div_factor > 0 && o.final_div_factor > 0, "OneCycleLR", "div_factor is ", o.div_factor,
                    " and final_div_factor is ", o.final_div_factor, ", both must be above 0");
  const bool known = o.anneal_strategy == "cos" || o.anneal_strategy == "linear";
  check<ValueError>(known, "OneCycleLR", "unknown anneal_strategy '", o.anneal_strategy, "'.",
                    known ? "" : suggest(o.anneal_strategy, {"cos", "linear"}));
  for (const ParamGroup& group : optimizer.param_groups())
    check<ValueError>(!o.cycle_momentum || momentum_option(group.options) != nullptr, "OneCycleLR",
                      "cycle_momentum is set, but a group of ", optimizer.class_name(),
                      " has no momentum. Hint: cycle_momentum = false.");
  apply();
}

double OneCycleLR::anneal(int64_t t, double low, double high, double last) const {
  // A loop that steps after every batch takes total_steps steps: the last leads past the end, and stays there.
  check<Error>(t <= options_.total_steps, "OneCycleLR", "step ", t, " of a schedule of total_steps ",
               options_.total_steps, ". Hint: total_steps = epochs * steps an epoch.");
  const auto between = [&](double from, double to, double part) {
    if (options_.anneal_strategy == "linear") return from + (to - from) * part;
    return to + (from - to) / 2 * (1 + std::cos(std::numbers::pi * part));
  };
  const double top = options_.pct_start * static_cast<double>(options_.total_steps) - 1;
  const double end = static_cast<double>(options_.total_steps) - 1, now = std::min(static_cast<double>(t), end);
  if (now <= top) return top > 0 ? between(low, high, now / top) : high;
  return between(high, last, end > top ? (now - top) / (end - top) : 1);
}

double OneCycleLR::lr_at(int64_t t, size_t group) const {
  const size_t place = options_.max_lr.size() == 1 ? 0 : group;
  check<ValueError>(place < options_.max_lr.size(), "OneCycleLR", "group ", group,
                    " was added to the optimizer later and has no max_lr");
  const double high = options_.max_lr[place], low = high / options_.div_factor;
  return anneal(t, low, high, low / options_.final_div_factor);
}

void OneCycleLR::apply() {
  Schedule::apply();
  if (!options_.cycle_momentum) return;
  const double momentum = anneal(step_count(), options_.max_momentum, options_.base_momentum, options_.max_momentum);
  for (ParamGroup& group : optimizer().param_groups())
    if (const char* name = momentum_option(group.options)) group.options.set(name, momentum);
}

}  // namespace anello::optim
