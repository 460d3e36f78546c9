// The reduction of one backward pass.
// Main entry: GradientReducer::ready(), finish().
#include <anello/autograd/grad_mode.h>
#include <anello/core/kernels/optim.h>
#include <anello/core/registry.h>
#include <anello/dist/reducer.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>

namespace anello::dist {
namespace {

std::vector<size_t> last_first(size_t count) {
  std::vector<size_t> order(count);
  std::iota(order.rbegin(), order.rend(), size_t{0});
  return order;
}

/// Squares are added in float64, where those of the other dtypes do not overflow.
bool all_finite(const Tensor& t) {
  if (t.numel() == 0) return true;
  const OptimTensor list{nullptr, t.raw_data(), {}, t.numel(), 1};
  double squares = 0;
  launch<kSumSquares>(t.device(), t.dtype(), SumSquaresParams{&list, 1, &squares});
  if (std::isfinite(squares)) return true;
  if (t.dtype() != float64) return false;
  const auto* values = static_cast<const double*>(t.raw_data());
  return std::all_of(values, values + t.numel(), [](double v) { return std::isfinite(v); });
}

}  // namespace

GradientReducer::GradientReducer(std::shared_ptr<Communicator> communicator, const std::string& name,
                                 std::vector<std::string> names, std::vector<Tensor> parameters,
                                 GradReduction reduction, NonFinite nonfinite, BucketOptions options)
    : communicator_(std::move(communicator)),
      name_(name),
      names_(std::move(names)),
      parameters_(std::move(parameters)),
      reduction_(reduction),
      nonfinite_(nonfinite),
      buckets_(communicator_, name, parameters_, last_first(parameters_.size()), options),
      unreduced_(parameters_.size()) {}

CollectiveOptions GradientReducer::named(const char* what) const {
  CollectiveOptions options;
  options.name = name_ + what;
  return options;
}

void GradientReducer::begin(int64_t samples) {
  active_ = true;
  samples_ = samples;
  weights_known_ = false;
  ready_.assign(parameters_.size(), false);
  bad_.assign(parameters_.size(), false);
  order_.clear();
  missing_.clear();
  for (size_t b = 0; b < buckets_.count(); ++b) missing_.push_back(buckets_.members(b).size());
  std::vector<int64_t> counts(static_cast<size_t>(communicator_->size()));
  counts[static_cast<size_t>(communicator_->rank())] = samples;
  counts_ = from_vector(counts);
  counts_work_ = communicator_->all_reduce_async(counts_, ReduceOp::sum, named(".samples"));
  if (reduction_ == GradReduction::sum) keep_first_share();
}

/// Gradients that an earlier backward has summed over the ranks are the same on all, and must count once.
void GradientReducer::keep_first_share() {
  if (communicator_->rank() == 0) return;
  for (size_t p = 0; p < parameters_.size(); ++p)
    if (!unreduced_[p] && parameters_[p].grad().defined()) fill(parameters_[p].grad(), 0);
}

void GradientReducer::learn_weights(bool wait) {
  if (weights_known_ || (!wait && !counts_work_.test())) return;
  counts_work_.wait();
  weights_known_ = true;
  report_.samples = counts_.to_vector<int64_t>();
  int64_t total = 0;
  bool even = true;
  for (int64_t n : report_.samples) {
    total += std::max<int64_t>(n, 0);
    even = even && n == report_.samples[0];
  }
  weighting_ = Weighting();
  if (reduction_ == GradReduction::mean && (even || total == 0)) {
    weighting_.average = true;
  } else if (reduction_ == GradReduction::mean) {
    weighting_.scaled = true;
    weighting_.scale = static_cast<double>(std::max<int64_t>(samples_, 0)) / static_cast<double>(total);
  }
  weighting_.left_out = samples_ == kJoined || (samples_ == 0 && total > 0);
}

void GradientReducer::ready(size_t p) {
  const Tensor& parameter = parameters_[p];
  const Tensor grad = parameter.grad();
  const Tensor& view = buckets_.view(p);
  check<Error>(!grad.requires_grad(), "DataParallel", "the gradient of '", names_[p],
               "' was recorded (create_graph). Hint: autograd.grad(outputs, inputs, create_graph) gives second "
               "derivatives without touching the gradients of parameters.");
  check<Error>(grad.shape() == view.shape() && grad.dtype() == view.dtype(), "DataParallel", "'", names_[p],
               "' is now ", grad.dtype(), ' ', grad.shape(), ", it was ", view.dtype(), ' ', view.shape(),
               ". Hint: convert the module before it is wrapped.");
  if (!grad.is(view)) parameter.set_grad_destination(view);  // it was taken away; the gradient is copied over
  ready_[p] = true;
  order_.push_back(p);
  if (nonfinite_ != NonFinite::keep) bad_[p] = !all_finite(view);
  if (--missing_[buckets_.bucket_of(p)] == 0 || !weights_known_) start_full_buckets();
}

void GradientReducer::start_full_buckets() {
  learn_weights(false);
  // A rank that is left out cannot know yet which buckets the others want.
  if (!weights_known_ || weighting_.left_out) return;
  for (size_t b = 0; b < buckets_.count(); ++b)
    if (missing_[b] == 0 && !buckets_.started(b)) buckets_.start(b, weighting_);
}

/// int32 [2, parameters], the largest over ranks: whether anyone has a gradient, and size - rank of the lowest rank
/// whose gradient is not finite.
Tensor GradientReducer::exchange_use() {
  const size_t count = parameters_.size();
  std::vector<int32_t> use(2 * count);
  for (size_t p = 0; p < count; ++p) {
    const bool has = ready_[p] || parameters_[p].grad().defined();
    if (has && unreduced_[p] && !ready_[p] && nonfinite_ != NonFinite::keep) bad_[p] = !all_finite(buckets_.view(p));
    use[p] = has && !weighting_.left_out ? 1 : 0;
    use[count + p] = bad_[p] && !weighting_.left_out ? communicator_->size() - communicator_->rank() : 0;
    if (!has) fill(buckets_.view(p), 0);
  }
  const Tensor shared = from_vector(use, {2, static_cast<int64_t>(count)});
  communicator_->all_reduce(shared, ReduceOp::max, named(".use"));
  return shared;
}

bool GradientReducer::finish() {
  const NoGradGuard no_grad;
  learn_weights(true);
  if (std::all_of(report_.samples.begin(), report_.samples.end(), [](int64_t n) { return n == kJoined; })) {
    reset();
    return false;
  }
  start_full_buckets();
  const size_t count = parameters_.size();
  const std::vector<int32_t> use = exchange_use().to_vector<int32_t>();
  std::vector<bool> used(count), wanted(buckets_.count());
  for (size_t p = 0; p < count; ++p) {
    used[p] = use[p] != 0;
    if (used[p]) wanted[buckets_.bucket_of(p)] = true;
  }
  for (size_t b = 0; b < buckets_.count(); ++b)
    if (wanted[b] && !buckets_.started(b)) buckets_.start(b, weighting_);
  for (size_t b = 0; b < buckets_.count(); ++b)
    if (buckets_.started(b)) buckets_.finish(b);
  ++report_.step;
  give_out(used);
  judge({use.begin() + static_cast<std::ptrdiff_t>(count), use.end()});
  if (!arranged_ && std::find(used.begin(), used.end(), true) != used.end()) adopt_order();
  reset();
  if (report_.skipped && nonfinite_ == NonFinite::raise) {
    std::string list;
    for (const std::string& one : report_.nonfinite) list += (list.empty() ? "" : ", ") + one;
    fail<DistError>("DataParallel", "the gradient of ", list, " is NaN or infinite in step ", report_.step,
                    ". Hint: lower the learning rate, or look for the first loss that is not finite.");
  }
  return true;
}

void GradientReducer::give_out(const std::vector<bool>& used) {
  report_.unused.clear();
  for (size_t p = 0; p < parameters_.size(); ++p) {
    const Tensor &parameter = parameters_[p], &view = buckets_.view(p);
    unreduced_[p] = false;
    if (!used[p]) {
      report_.unused.push_back(names_[p]);
      parameter.zero_grad();
      continue;
    }
    const Tensor destination = parameter.grad_destination();
    if (!destination.defined() || !destination.is(view)) parameter.set_grad_destination(view);
    parameter.set_grad(view);
  }
}

void GradientReducer::judge(const std::vector<int32_t>& worst) {
  report_.nonfinite.clear();
  for (size_t p = 0; p < worst.size(); ++p)
    if (worst[p] != 0)
      report_.nonfinite.push_back(concat('\'', names_[p], "' of rank ", communicator_->size() - worst[p]));
  report_.skipped = !report_.nonfinite.empty();
  if (!report_.skipped) return;
  for (const Tensor& parameter : parameters_) parameter.zero_grad();
  if (nonfinite_ != NonFinite::skip || communicator_->rank() != 0) return;
  const size_t more = report_.nonfinite.size() - 1;
  const std::string text =
      concat("[DataParallel] step ", report_.step, " is skipped on all ranks: the gradient of ", report_.nonfinite[0],
             more == 0 ? "" : concat(" (and ", more, " more)"), " is NaN or infinite.\n");
  std::fputs(text.c_str(), stderr);
}

/// From step 2 on buckets follow the order in which gradients became ready on the first rank that had samples.
void GradientReducer::adopt_order() {
  const auto has_samples = [](int64_t n) { return n > 0; };
  const auto first = std::find_if(report_.samples.begin(), report_.samples.end(), has_samples);
  const int root = first == report_.samples.end() ? 0 : static_cast<int>(first - report_.samples.begin());
  std::vector<size_t> order = order_;
  for (size_t p : last_first(parameters_.size()))
    if (!ready_[p]) order.push_back(p);
  const Tensor shared = from_vector(std::vector<int64_t>(order.begin(), order.end()));
  communicator_->broadcast(shared, root, named(".order"));
  const std::vector<int64_t> chosen = shared.to_vector<int64_t>();
  order.assign(chosen.begin(), chosen.end());
  if (order != last_first(parameters_.size())) buckets_.arrange(order);
  arranged_ = true;
}

bool GradientReducer::someone_joined() const {
  return std::find(report_.samples.begin(), report_.samples.end(), kJoined) != report_.samples.end();
}

void GradientReducer::reset() {
  active_ = false;
  counts_work_ = Work();
  buckets_.reset();
}

}  // namespace anello::dist
