// The base of all optimizers: parameter groups with options of their own, state per parameter, saving and loading.
// Main entry: Optimizer::step(), Optimizer::add_param_group(). Derived: SGD, Adam, AdamW, Muon.
#pragma once

#include <anello/core/kernels/optim.h>
#include <anello/core/state.h>

#include <array>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace anello::optim {

/// Options of one group: numbers by name ("lr", "momentum"). Yes and no are 1 and 0. The names are those of the
/// optimizer.
class Options {
 public:
  using Item = std::pair<std::string, double>;
  Options() = default;
  Options(std::initializer_list<Item> items) : items_(items) {}
  /// Raises ValueError naming the nearest option when there is none of this name.
  double at(std::string_view name) const;
  /// Changes an option; takes effect with the next step. Raises like at().
  void set(std::string_view name, double value);
  bool contains(std::string_view name) const;
  size_t size() const { return items_.size(); }
  auto begin() const { return items_.begin(); }
  auto end() const { return items_.end(); }

 private:
  const Item* find(std::string_view name) const;
  [[noreturn]] void fail_unknown(std::string_view name) const;
  std::vector<Item> items_;
};

struct ParamGroup {
  std::vector<Tensor> params;
  Options options;  ///< as given: some; in an optimizer: all
};

/// Parameters are leaves that require a gradient; the optimizer holds handles and changes the values in place. One
/// thread at a time. Build it after Module::to(): its state has the dtype and device of the parameters at their first
/// step.
class Optimizer {
 public:
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;
  virtual ~Optimizer() = default;

  /// Adds parameters with options that differ from the defaults. Raises ValueError for an empty list, an unknown or
  /// impossible option, a parameter that is here already, one that is no leaf or no float tensor.
  void add_param_group(const std::vector<Tensor>& params, const Options& options = {});
  /// The groups; their options may be changed, their parameters not.
  std::vector<ParamGroup>& param_groups() { return groups_; }
  const std::vector<ParamGroup>& param_groups() const { return groups_; }
  const Options& defaults() const { return defaults_; }

  /// Makes all gradients undefined; gradient destinations stay.
  void zero_grad();
  /// Updates every parameter that has a gradient; the others are left alone, with their state. Raises ValueError for an
  /// impossible option, Error when a parameter's dtype or device changed since its first step.
  void step();

  /// Tensors "<number of the parameter>.<state>" and values: the kind, the sizes and options of the groups, the updates
  /// each parameter has had. The tensors share memory with the optimizer.
  State state_dict() const;
  /// Takes over copies. Raises ValueError, having changed nothing, when kind, group sizes or shapes do not fit.
  void load_state_dict(const State& state);

  /// "SGD", "AdamW".
  virtual std::string class_name() const = 0;

 protected:
  static constexpr size_t kMaxSlots = 3;
  struct ParamState {
    int64_t step = 0;  ///< updates so far
    std::array<Tensor, kMaxSlots> slots;
  };
  struct Update {
    Tensor param, grad;
    ParamState* state;
  };

  explicit Optimizer(Options defaults) : defaults_(std::move(defaults)) {}
  /// Adds the groups a constructor was given.
  void add_param_groups(const std::vector<ParamGroup>& groups);
  /// The names of the state tensors a parameter may have, at most kMaxSlots.
  virtual std::vector<std::string> slot_names() const = 0;
  /// Raises ValueError unless the values of the options make sense.
  virtual void check_options(const Options& options) const = 0;
  /// Raises ValueError for a parameter that this optimizer cannot update.
  virtual void check_param(const Tensor& param) const;
  /// Updates the parameters of one group; nothing is recorded. state->step has been counted up already.
  virtual void update(const Options& options, const std::vector<Update>& updates) = 0;

  /// The updates of one (device, dtype, dtype of the gradient) in the form the fused kernels take.
  struct FusedList {
    Device device;
    DType dtype, grad_dtype;
    std::vector<OptimTensor> tensors;
  };
  /// Sorts updates into lists with the first `slots` states, calls run(list) on each, and takes note of the change.
  /// States must be there; non-contiguous parameters and gradients go through contiguous copies.
  template <class Run>
  void run_fused(const std::vector<Update>& updates, size_t slots, const Run& run) {
    std::vector<Tensor> copies, params;
    for (const FusedList& list : fuse(updates, slots, params, copies)) run(list);
    finish(updates, params);
  }
  /// A state tensor like the parameter, in the dtype it is accumulated in.
  static Tensor new_state(const Tensor& param, bool zero = true);

  /// Raises ValueError: "[op] <option> is <value>, <what> is needed".
  void require_option(bool ok, const Options& options, std::string_view name, std::string_view what) const;

 private:
  std::vector<FusedList> fuse(const std::vector<Update>& updates, size_t slots, std::vector<Tensor>& params,
                              std::vector<Tensor>& copies) const;
  static void finish(const std::vector<Update>& updates, const std::vector<Tensor>& params);

  Options defaults_;
  std::vector<ParamGroup> groups_;
  std::vector<std::vector<ParamState>> states_;  // [group][parameter]
};

}  // namespace anello::optim
