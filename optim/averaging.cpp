// Averages of weights over training.
// Main entry: WeightAverage::update().
#include <anello/optim/averaging.h>

#include <anello/core/kernels/optim.h>
#include <anello/core/registry.h>

#include <algorithm>

namespace anello::optim {

WeightAverage::WeightAverage(const Named& tensors, const WeightAverageOptions& options) : options_(options) {
  check<ValueError>(options.decay >= 0 && options.decay <= 1, "WeightAverage", "decay is ", options.decay,
                    ", a number from 0 to 1 is needed");
  add(tensors);
}

void WeightAverage::add(const Named& tensors) {
  for (const auto& [name, tensor] : tensors) {
    check<ValueError>(!values_.contains(name), "WeightAverage", "the name '", name, "' is given twice");
    values_.set(name, tensor);
    const DType dtype = tensor.dtype();
    averages_.set(name, copy_as(tensor.detach(), is_floating_point(dtype) ? accumulate_type(dtype) : dtype));
  }
}

void WeightAverage::update() {
  ++count_;
  const double n = static_cast<double>(count_);
  double decay = options_.equal ? (n - 1) / n : options_.decay;
  if (options_.warmup && !options_.equal) decay = std::min(decay, (1 + n) / (10 + n));
  struct List {
    Device device;
    DType dtype, source_dtype;
    std::vector<OptimTensor> tensors;
  };
  std::vector<List> lists;
  std::vector<Tensor> sources;  // kept until the kernels are through
  auto value = values_.begin();
  for (const auto& [name, average] : averages_) {
    const Tensor& source = (value++)->second;
    if (!is_floating_point(average.dtype())) {
      copy_into(average, source);
      continue;
    }
    sources.push_back(contiguous_data(source));
    auto list = std::find_if(lists.begin(), lists.end(), [&](const List& l) {
      return l.device == average.device() && l.dtype == average.dtype() && l.source_dtype == source.dtype();
    });
    if (list == lists.end()) list = lists.insert(lists.end(), {average.device(), average.dtype(), source.dtype(), {}});
    list->tensors.push_back({average.raw_data(), sources.back().raw_data(), {}, average.numel(), count_});
    average.bump_version();
  }
  for (const List& list : lists)
    launch<kLerp>(
        list.device, list.dtype,
        LerpParams{list.tensors.data(), static_cast<int64_t>(list.tensors.size()), list.source_dtype, 1 - decay});
}

void WeightAverage::swap() {
  auto average = averages_.begin();
  for (auto value = values_.begin(); value != values_.end(); ++value, ++average) {
    const Tensor before = copy_as(value->second, average->second.dtype());
    copy_into(value->second, average->second);
    copy_into(average->second, before);
  }
}

void WeightAverage::copy_to_values() const {
  auto average = averages_.begin();
  for (auto value = values_.begin(); value != values_.end(); ++value, ++average)
    copy_into(value->second, average->second);
}

State WeightAverage::state_dict() const {
  State state(averages_);
  state.values["update_count"] = count_;
  return state;
}

void WeightAverage::load_state_dict(const State& state) {
  const std::string_view op = "WeightAverage.load_state_dict";
  const auto count = state.get<int64_t>("update_count", op);
  check<ValueError>(state.tensors.size() == averages_.size(), op, "the state has ", state.tensors.size(), " tensors, ",
                    averages_.size(), " are averaged");
  for (const auto& [name, average] : averages_) {
    const Tensor& given = state.tensors.at(name);
    check<ShapeError>(given.shape() == average.shape(), op, "'", name, "' is ", given.shape(), " in the state, ",
                      average.shape(), " here");
  }
  for (const auto& [name, average] : averages_)
    copy_into(average, copy_to_device(state.tensors.at(name), average.device()));
  count_ = count;
}

}  // namespace anello::optim
