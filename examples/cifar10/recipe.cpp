// How each net is trained.
// Main entry: Recipe.
#include "recipe.h"

#include <algorithm>
#include <functional>
#include <utility>

namespace cifar10 {

namespace optim = anello::optim;
using anello::Tensor;

anello::data::Augmentation augmentation(const std::string& model) {
  if (model == "airbench") return anello::data::Augmentation::airbench();
  anello::data::Augmentation usual;
  usual.crop_padding = 4;
  usual.padding = anello::data::Padding::zero;
  usual.flip = anello::data::Flip::random;
  return usual;
}

Recipe::Recipe(const anello::nn::Module& model, const Options& options, int64_t steps_per_epoch)
    : options_(options),
      steps_(std::max<int64_t>(1, *options.epochs * steps_per_epoch)),
      sums_loss_(*options.optimizer == "airbench") {
  if (sums_loss_)
    make_airbench(model, steps_per_epoch);
  else
    make_usual(model);
}

Tensor Recipe::loss(const Tensor& logits, const Tensor& labels) const {
  return anello::cross_entropy(logits, labels,
                               {.label_smoothing = *options_.label_smoothing,
                                .reduction = sums_loss_ ? anello::Reduction::sum : anello::Reduction::mean});
}

void Recipe::zero_grad() {
  for (const auto& optimizer : optimizers_) optimizer->zero_grad();
}

void Recipe::step() {
  for (const auto& optimizer : optimizers_) optimizer->step();
  for (const auto& schedule : schedules_) schedule->step();
}

anello::State Recipe::state_dict() const {
  anello::State state;
  for (size_t i = 0; i < optimizers_.size(); ++i)
    state.put("optimizer" + std::to_string(i), optimizers_[i]->state_dict());
  for (size_t i = 0; i < schedules_.size(); ++i) state.put("schedule" + std::to_string(i), schedules_[i]->state_dict());
  return state;
}

void Recipe::load_state_dict(const anello::State& state) {
  for (size_t i = 0; i < optimizers_.size(); ++i)
    optimizers_[i]->load_state_dict(state.part("optimizer" + std::to_string(i)));
  for (size_t i = 0; i < schedules_.size(); ++i)
    schedules_[i]->load_state_dict(state.part("schedule" + std::to_string(i)));
}

// Muon on the filters, SGD on the rest, every rate falling linearly to 0; the whitening bias's by epoch 3.
void Recipe::make_airbench(const anello::nn::Module& model, int64_t steps_per_epoch) {
  std::vector<Tensor> whiten, biases, head, filters;
  for (const auto& [name, parameter] : model.named_parameters()) {
    if (!parameter.requires_grad()) continue;
    if (name == "whiten.bias")
      whiten.push_back(parameter);
    else if (name == "head.weight" || name == "fc.weight")
      head.push_back(parameter);
    else if (parameter.dim() == 4)
      filters.push_back(parameter);
    else if (parameter.dim() < 2)
      biases.push_back(parameter);
  }
  const int64_t early = std::min(steps_, 3 * steps_per_epoch);
  const auto down_to_zero = [](int64_t at) {
    return [at](int64_t step) { return std::max(0.0, 1.0 - static_cast<double>(step) / static_cast<double>(at)); };
  };
  std::vector<optim::ParamGroup> groups;
  std::vector<std::function<double(int64_t)>> factors;
  const auto add_group = [&](const std::vector<Tensor>& parameters, double rate, int64_t end) {
    if (parameters.empty()) return;
    const double lr = rate * *options_.lr;
    // The decay of a step is lr weight_decay p: dividing by the first lr makes it the same for every group.
    groups.push_back({parameters, {{"lr", lr}, {"weight_decay", lr > 0 ? *options_.weight_decay / lr : 0}}});
    factors.push_back(down_to_zero(end));
  };
  add_group(whiten, 0.053, early);
  add_group(biases, 0.053, steps_);
  add_group(head, 0.67, steps_);
  auto sgd = std::make_unique<optim::SGD>(groups, optim::SGDOptions{.momentum = 0.85, .nesterov = true});
  auto muon = std::make_unique<optim::Muon>(
      filters, optim::MuonOptions{.lr = 0.24 * *options_.lr, .momentum = 0.6, .nesterov = true, .normalize = true});
  schedules_.push_back(std::make_unique<optim::LambdaLR>(*sgd, factors));
  schedules_.push_back(std::make_unique<optim::LambdaLR>(*muon, down_to_zero(steps_)));
  optimizers_.push_back(std::move(sgd));
  optimizers_.push_back(std::move(muon));
}

void Recipe::make_usual(const anello::nn::Module& model) {
  std::vector<Tensor> trained, matrices, vectors;
  for (const Tensor& parameter : model.parameters()) {
    if (!parameter.requires_grad()) continue;
    trained.push_back(parameter);
    (parameter.dim() >= 2 ? matrices : vectors).push_back(parameter);
  }
  const double lr = *options_.lr, decay = *options_.weight_decay, momentum = *options_.momentum;
  const std::string& kind = *options_.optimizer;
  if (kind == "sgd") {
    optimizers_.push_back(std::make_unique<optim::SGD>(
        trained, optim::SGDOptions{.lr = lr, .momentum = momentum, .weight_decay = decay, .nesterov = momentum > 0}));
  } else if (kind == "adam") {
    optimizers_.push_back(std::make_unique<optim::Adam>(trained, optim::AdamOptions{.lr = lr, .weight_decay = decay}));
  } else if (kind == "adamw") {
    optimizers_.push_back(std::make_unique<optim::AdamW>(trained, optim::AdamOptions{.lr = lr, .weight_decay = decay}));
  } else {
    optimizers_.push_back(std::make_unique<optim::Muon>(
        matrices, optim::MuonOptions{.lr = lr, .momentum = momentum, .weight_decay = decay}));
    optimizers_.push_back(std::make_unique<optim::AdamW>(vectors, optim::AdamOptions{.lr = lr / 10}));
  }
  for (const auto& optimizer : optimizers_) add_schedule(*optimizer);
}

// One rate a step, over the whole run.
void Recipe::add_schedule(optim::Optimizer& optimizer) {
  const std::string& kind = *options_.schedule;
  if (kind == "onecycle") {
    std::vector<double> rates;
    for (const optim::ParamGroup& group : optimizer.param_groups()) rates.push_back(group.options.at("lr"));
    schedules_.push_back(std::make_unique<optim::OneCycleLR>(
        optimizer, optim::OneCycleOptions{.max_lr = rates, .total_steps = steps_, .cycle_momentum = false}));
  } else if (kind == "cosine") {
    schedules_.push_back(std::make_unique<optim::CosineAnnealingLR>(optimizer, steps_));
  } else if (kind == "linear") {
    schedules_.push_back(std::make_unique<optim::LinearLR>(optimizer, 1.0, 0.0, steps_));
  } else if (kind == "multistep") {
    const std::vector<int64_t> milestones = {(steps_ + 1) / 2, (3 * steps_ + 3) / 4};
    schedules_.push_back(std::make_unique<optim::MultiStepLR>(optimizer, milestones, 0.1));
  }
}

}  // namespace cifar10
