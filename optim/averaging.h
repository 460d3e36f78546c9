// Averages of weights over training, which often predict better than the last ones.
// Main entry: WeightAverage.
#pragma once

#include <anello/core/state.h>

#include <string>
#include <utility>
#include <vector>

namespace anello::optim {

struct WeightAverageOptions {
  double decay = 0.999;  ///< average = decay average + (1 - decay) value
  bool equal = false;    ///< the plain mean over all updates instead of the decay; arXiv 1803.05407
  bool warmup = false;   ///< decay is at most (1 + n) / (10 + n) at update n: the first values fade sooner
};

/// Keeps an average beside named tensors: parameters, and buffers such as running statistics; integer tensors are
/// copied. Averages are of accumulate_type (float32 for 16-bit floats).
///   WeightAverage average(net.named_parameters(), {.decay = 0.99});  average.add(net.named_buffers());
class WeightAverage {
 public:
  using Named = std::vector<std::pair<std::string, Tensor>>;
  /// Starts at the present values. Raises ValueError unless 0 <= decay <= 1, and for a name given twice.
  explicit WeightAverage(const Named& tensors, const WeightAverageOptions& options = {});
  void add(const Named& tensors);
  /// Takes the present values in; call it after each optimizer step.
  void update();
  int64_t update_count() const { return count_; }
  /// Exchanges averages and values in place: once to evaluate with the averages, again to train on.
  void swap();
  /// Overwrites the values with the averages.
  void copy_to_values() const;
  /// The averages by name (shared memory).
  const TensorMap& averages() const { return averages_; }
  State state_dict() const;
  /// Takes over copies. Raises ValueError, having changed nothing, when names or shapes do not fit.
  void load_state_dict(const State& state);

 private:
  WeightAverageOptions options_;
  TensorMap values_, averages_;
  int64_t count_ = 0;
};

}  // namespace anello::optim
