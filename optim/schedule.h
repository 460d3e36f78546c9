// Learning rates over time: each schedule is a formula of the step alone, so that a resumed run is the unbroken one.
// Main entry: OneCycleLR, CosineAnnealingLR, MultiStepLR, LinearLR, LambdaLR; step() after every optimizer step or
// epoch.
#pragma once

#include <anello/optim/optimizer.h>

#include <functional>
#include <string>
#include <vector>

namespace anello::optim {

/// Steps before a schedule proper, in which lr rises linearly from start_factor times its value to all of it. The
/// schedule's own count starts after them.
struct Warmup {
  int64_t steps = 0;
  double start_factor = 0.1;
};

/// Sets "lr" of every group of an optimizer. A group's base rate is its lr when the schedule is built (or when the
/// group is first seen). The optimizer must outlive the schedule.
class Schedule {
 public:
  Schedule(const Schedule&) = delete;
  Schedule& operator=(const Schedule&) = delete;
  virtual ~Schedule() = default;
  /// Goes one step on and sets the rates of that step.
  void step();
  /// Steps so far: 0 after construction, when the rates of step 0 are set.
  int64_t step_count() const { return count_; }
  /// The rate of each group now.
  std::vector<double> last_lr() const;
  /// The count and the base rates; options and functions are not saved.
  State state_dict() const;
  /// Takes count and base rates over and sets the rates of that step. Raises ValueError for the state of another kind
  /// of schedule or another number of groups.
  void load_state_dict(const State& state);
  virtual std::string class_name() const = 0;

 protected:
  Schedule(Optimizer& optimizer, Warmup warmup);
  /// The rate of a group at step t >= 0 of the schedule proper.
  virtual double lr_at(int64_t t, size_t group) const = 0;
  /// Sets the options of the present step; constructors call it last.
  virtual void apply();
  Optimizer& optimizer() { return optimizer_; }
  double base_lr(size_t group) const { return base_lrs_[group]; }
  size_t group_count() const { return base_lrs_.size(); }

 private:
  void see_new_groups();
  Optimizer& optimizer_;
  Warmup warmup_;
  int64_t count_ = 0;
  std::vector<double> base_lrs_;
};

/// lr = eta_min + (base - eta_min) (1 + cos(pi t / T_max)) / 2. arXiv 1608.03983, without restarts.
class CosineAnnealingLR final : public Schedule {
 public:
  /// Raises ValueError unless T_max is at least 1.
  CosineAnnealingLR(Optimizer& optimizer, int64_t T_max, double eta_min = 0, Warmup warmup = {});
  std::string class_name() const override { return "CosineAnnealingLR"; }

 protected:
  double lr_at(int64_t t, size_t group) const override;

 private:
  int64_t t_max_;
  double eta_min_;
};

/// lr = base gamma^(number of milestones that are at most t).
class MultiStepLR final : public Schedule {
 public:
  MultiStepLR(Optimizer& optimizer, std::vector<int64_t> milestones, double gamma = 0.1, Warmup warmup = {});
  std::string class_name() const override { return "MultiStepLR"; }

 protected:
  double lr_at(int64_t t, size_t group) const override;

 private:
  std::vector<int64_t> milestones_;
  double gamma_;
};

/// lr goes from start_factor base to end_factor base over total_iters steps, and stays there. {1, 0, n} decays to zero.
class LinearLR final : public Schedule {
 public:
  /// Raises ValueError for factors below 0 and total_iters below 1.
  LinearLR(Optimizer& optimizer, double start_factor = 1.0 / 3, double end_factor = 1.0, int64_t total_iters = 5,
           Warmup warmup = {});
  std::string class_name() const override { return "LinearLR"; }

 protected:
  double lr_at(int64_t t, size_t group) const override;

 private:
  double start_, end_;
  int64_t total_;
};

/// lr = base f(t), with one function for all groups or one a group.
class LambdaLR final : public Schedule {
 public:
  LambdaLR(Optimizer& optimizer, std::vector<std::function<double(int64_t)>> lr_lambda, Warmup warmup = {});
  LambdaLR(Optimizer& optimizer, std::function<double(int64_t)> lr_lambda, Warmup warmup = {});
  std::string class_name() const override { return "LambdaLR"; }

 protected:
  double lr_at(int64_t t, size_t group) const override;

 private:
  std::vector<std::function<double(int64_t)>> functions_;
};

struct OneCycleOptions {
  std::vector<double> max_lr;  ///< one for all groups, or one a group
  int64_t total_steps = 0;
  double pct_start = 0.3;               ///< part of the steps in which lr rises
  std::string anneal_strategy = "cos";  ///< "cos" or "linear"
  bool cycle_momentum = true;           ///< momentum (Adam: beta1) goes the other way
  double base_momentum = 0.85;
  double max_momentum = 0.95;
  double div_factor = 25;         ///< the start is max_lr / div_factor
  double final_div_factor = 1e4;  ///< the end is the start / final_div_factor
};

/// From a low rate up to max_lr and down to almost nothing; arXiv 1708.07120, in PyTorch's two-phase form: the top is
/// at step pct_start total_steps - 1, the end at total_steps - 1; one step more, as a loop over batches takes,
/// stays there, and another raises Error.
class OneCycleLR final : public Schedule {
 public:
  /// Raises ValueError for options out of range, and for cycle_momentum when the optimizer has no momentum.
  OneCycleLR(Optimizer& optimizer, const OneCycleOptions& options);
  std::string class_name() const override { return "OneCycleLR"; }

 protected:
  double lr_at(int64_t t, size_t group) const override;
  void apply() override;

 private:
  double anneal(int64_t t, double low, double high, double last) const;
  OneCycleOptions options_;
};

}  // namespace anello::optim
