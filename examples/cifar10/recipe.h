// How each net is trained: optimizers, schedules, loss, augmentation. Every rate is a function of the step alone.
// Main entry: Recipe. The same recipes as recipes.py.
#pragma once

#include <anello/anello.h>

#include <memory>
#include <string>
#include <vector>

#include "options.h"

namespace cifar10 {

/// airbench: mirrored in alternation, cropped from a reflecting border of 2; ResNets: the usual crop of 4 and flip.
anello::data::Augmentation augmentation(const std::string& model);

/// Optimizers and schedules of one run; the model must outlive it.
class Recipe {
 public:
  Recipe(const anello::nn::Module& model, const Options& options, int64_t steps_per_epoch);
  /// airbench sums its loss over the batch, the others take the mean.
  anello::Tensor loss(const anello::Tensor& logits, const anello::Tensor& labels) const;
  bool sums_loss() const { return sums_loss_; }
  void zero_grad();
  /// After every backward.
  void step();
  anello::State state_dict() const;
  void load_state_dict(const anello::State& state);

 private:
  void make_airbench(const anello::nn::Module& model, int64_t steps_per_epoch);
  void make_usual(const anello::nn::Module& model);
  void add_schedule(anello::optim::Optimizer& optimizer);

  const Options options_;
  int64_t steps_;
  bool sums_loss_;
  std::vector<std::unique_ptr<anello::optim::Optimizer>> optimizers_;
  std::vector<std::unique_ptr<anello::optim::Schedule>> schedules_;
};

}  // namespace cifar10
