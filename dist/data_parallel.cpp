// DataParallel: what connects a module and autograd's hooks with a GradientReducer.
// Main entry: DataParallel::State::on_backward_end().
#include <anello/autograd/hooks.h>
#include <anello/autograd/node.h>
#include <anello/core/random.h>
#include <anello/dist/data_parallel.h>
#include <anello/dist/parameter_check.h>
#include <anello/layers/norm.h>

#include <algorithm>
#include <atomic>

namespace anello::dist {
namespace {

thread_local std::optional<int64_t> samples_of_forward;

/// Equal for calls of one thread.
const void* this_thread() {
  static thread_local const char place = 0;
  return &place;
}

std::atomic<int64_t> models_made{0};

/// The same on all ranks and no other model's: rank 0 counts.
std::string new_name(Communicator& communicator) {
  return "model " + communicator.broadcast_bytes(std::to_string(models_made++));
}

}  // namespace

std::optional<int64_t> detail::forward_samples() { return samples_of_forward; }

/// The samples of one forward, for as long as its graph or the model keeps it.
struct DataParallel::Forward::Token {
  std::weak_ptr<DataParallel::State> model;
  int64_t samples = 0;
  bool training = true, counted = false;
};

struct DataParallel::State {
  using Token = Forward::Token;
  State(std::shared_ptr<nn::Module> wrapped, DataParallelOptions given);
  ~State() {
    for (const HookHandle& hook : hooks) hook.remove();
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  void on_grad_ready(size_t p);
  void on_output_backward();
  void on_backward_end(const BackwardStatus& status);
  void begin();
  int64_t armed_samples(bool& armed);
  void forget_forwards();
  void check_now_and_then();
  NamedTensors named_parameters() const;

  std::shared_ptr<nn::Module> module;
  DataParallelOptions options;
  std::shared_ptr<Communicator> communicator;
  std::vector<Tensor> parameters;  ///< those that require a gradient
  std::unique_ptr<GradientReducer> reducer;
  std::vector<HookHandle> hooks;

  int no_sync = 0;
  int64_t carried = 0;       ///< samples of backward passes under no_sync
  int64_t last_samples = 0;  ///< for a second backward over one graph
  std::optional<int64_t> override_samples;
  std::vector<std::weak_ptr<Token>> tokens;
  std::shared_ptr<Token> kept;  ///< of a forward without an output that backward could see
  std::atomic<const void*> thread{nullptr};
};

DataParallel::State::State(std::shared_ptr<nn::Module> wrapped, DataParallelOptions given)
    : module(std::move(wrapped)), options(std::move(given)) {
  check<ValueError>(module != nullptr, "DataParallel", "the module is null");
  check<ValueError>(options.buckets.bytes > 0 && options.buckets.first_bytes > 0, "DataParallel",
                    "bucket sizes are positive, these are ", options.buckets.first_bytes, " and ",
                    options.buckets.bytes);
  communicator = options.communicator != nullptr ? options.communicator : world();
  std::vector<std::string> names;
  for (const auto& [name, parameter] : module->named_parameters()) {
    if (!parameter.requires_grad()) continue;
    check<Error>(!parameter.grad_destination().defined(), "DataParallel", "'", name,
                 "' belongs to another DataParallel. Hint: wrap a module once.");
    names.push_back(name);
    parameters.push_back(parameter);
  }
  broadcast_module(*communicator, *module);
  if (launched()) set_dropout_key(static_cast<uint64_t>(communicator->rank()));
  reducer = std::make_unique<GradientReducer>(communicator, new_name(*communicator), std::move(names), parameters,
                                              options.reduction, options.nonfinite, options.buckets);
}

NamedTensors DataParallel::State::named_parameters() const { return module->named_parameters(); }

// --- Forward ---

DataParallel::Forward::Forward(const DataParallel& model, int64_t samples) : outer_(samples_of_forward) {
  check<ValueError>(samples >= 0, "DataParallel", "samples is ", samples, ", a number of at least 0 is needed");
  State& state = *model.state_;
  if (state.options.reduction == GradReduction::mean) samples_of_forward = samples;
  if (!is_grad_enabled()) return;
  token_ = std::make_shared<Token>(Token{model.state_, samples, state.module->is_training()});
  std::erase_if(state.tokens, [](const std::weak_ptr<Token>& t) { return t.expired(); });
  state.tokens.push_back(token_);
  state.kept = token_;
  state.thread = this_thread();
}

DataParallel::Forward::~Forward() { samples_of_forward = outer_; }

Tensor DataParallel::Forward::output(const Tensor& y) const {
  if (token_ == nullptr || !y.defined() || !y.requires_grad()) return y;
  if (const auto state = token_->model.lock(); state != nullptr && state->kept == token_) state->kept = nullptr;
  return record("data_parallel", {&y}, {}, y.detach(), [token = token_](Backward& bw) {
    if (bw.accumulates())
      if (const auto state = token->model.lock()) state->on_output_backward();
    bw.give(0, bw.grad());
  });
}

DataParallel::DataParallel(std::shared_ptr<nn::Module> module, DataParallelOptions options)
    : state_(std::make_shared<State>(std::move(module), std::move(options))) {
  const std::weak_ptr<State> weak = state_;
  for (size_t p = 0; p < state_->parameters.size(); ++p)
    state_->hooks.push_back(state_->parameters[p].on_grad_ready([weak, p](const Tensor&) {
      if (const auto state = weak.lock()) state->on_grad_ready(p);
    }));
  state_->hooks.push_back(anello::on_backward_end([weak](const BackwardStatus& status) {
    if (const auto state = weak.lock()) state->on_backward_end(status);
  }));
}

Tensor DataParallel::operator()(const Tensor& x) { return (*this)(x, x.dim() == 0 ? 1 : x.shape()[0]); }

Tensor DataParallel::operator()(const Tensor& x, int64_t samples) {
  const Forward forward(*this, samples);
  return forward.output(state_->module->forward(x));
}

// --- Backward ---

/// The samples of the forwards that have not been counted and whose graph, or output, is still there. Forwards in
/// evaluation mode count when there are no others.
int64_t DataParallel::State::armed_samples(bool& armed) {
  int64_t training = 0, evaluating = 0;
  bool trains = false;
  armed = false;
  for (const auto& weak : tokens) {
    const auto token = weak.lock();
    if (token == nullptr || token->counted) continue;
    armed = true;
    trains = trains || token->training;
    (token->training ? training : evaluating) += token->samples;
  }
  return trains ? training : evaluating;
}

void DataParallel::State::begin() {
  bool armed = false;
  int64_t samples = armed_samples(armed);
  if (!armed && carried == 0) samples = last_samples;
  last_samples = samples;
  samples += std::exchange(carried, 0);
  thread = this_thread();
  reducer->begin(override_samples.value_or(samples));
}

void DataParallel::State::on_output_backward() {
  if (no_sync == 0 && !reducer->is_active()) begin();
}

void DataParallel::State::on_grad_ready(size_t p) {
  if (no_sync > 0) {
    reducer->set_unreduced(p);
    thread = this_thread();
    return;
  }
  if (!reducer->is_active()) begin();
  reducer->ready(p);
}

void DataParallel::State::forget_forwards() {
  for (const auto& weak : tokens)
    if (const auto token = weak.lock()) token->counted = true;
  tokens.clear();
  kept = nullptr;
}

void DataParallel::State::on_backward_end(const BackwardStatus& status) {
  if (thread != this_thread()) return;  // another thread's backward
  bool armed = false;
  const int64_t samples = armed_samples(armed);
  if (!armed && !reducer->is_active()) return;
  if (!status.ok) {
    reducer->reset();
    forget_forwards();
    if (communicator->size() > 1)
      communicator->abort(concat("backward failed on rank ", communicator->rank(), ": ", status.error));
    return;
  }
  if (no_sync > 0) {
    carried += override_samples.value_or(samples);
    override_samples = std::nullopt;
    forget_forwards();
    return;
  }
  if (!reducer->is_active()) begin();  // nothing of this model was used here, but others wait for this rank
  forget_forwards();
  override_samples = std::nullopt;
  try {
    reducer->finish();
  } catch (...) {
    reducer->reset();
    throw;
  }
  check_now_and_then();
}

void DataParallel::State::check_now_and_then() {
  const int64_t step = reducer->report().step;
  if (options.check_every <= 0 || step % options.check_every != 0 || reducer->someone_joined()) return;
  check_same_values(*communicator, named_parameters(), concat("after ", step, " steps"));
}

// --- The rest ---

DataParallel::NoSync::NoSync(const DataParallel& model) : state_(model.state_) { ++state_->no_sync; }
DataParallel::NoSync::~NoSync() { --state_->no_sync; }

nn::Module& DataParallel::module() const { return *state_->module; }
const std::shared_ptr<Communicator>& DataParallel::communicator() const { return state_->communicator; }
const ReductionReport& DataParallel::report() const { return state_->reducer->report(); }
int64_t DataParallel::gradient_bytes() const { return state_->reducer->buckets().bytes(); }
size_t DataParallel::bucket_count() const { return state_->reducer->buckets().count(); }

void DataParallel::set_samples(int64_t samples) {
  check<ValueError>(samples >= 0, "DataParallel.set_samples", "samples is ", samples,
                    ", a number of at least 0 is needed");
  state_->override_samples = samples;
}

void DataParallel::check_parameters() const {
  check_same_values(*state_->communicator, state_->named_parameters(), concat("after ", report().step, " steps"));
}

void DataParallel::broadcast_buffers(int root) const {
  broadcast_tensors(*state_->communicator, state_->module->named_buffers(), root);
}

void DataParallel::join(const std::function<void()>& step) {
  State& state = *state_;
  Communicator& communicator = *state.communicator;
  for (const auto& [path, module] : state.module->named_modules()) {
    const auto* norm = dynamic_cast<const nn::BatchNorm*>(module);
    check<Error>(norm == nullptr || !norm->training_function() || communicator.size() == 1, "DataParallel.join", "'",
                 path, "' computes its statistics over all ranks in every forward, which a rank that has no more ",
                 "batches does not run. Hint: a loader that gives empty batches (anello.dist.even_batches).");
  }
  state.forget_forwards();
  const int64_t own_steps = report().step;
  const auto zero_grad = [&] {
    for (const Tensor& parameter : state.parameters) parameter.zero_grad();
  };
  for (bool others = true; others;) {
    zero_grad();
    state.reducer->begin(kJoined);
    others = state.reducer->finish();
    if (others && step) step();
  }
  // All ranks have seen the same reductions; they differ in how many were their own.
  std::vector<int64_t> mine{own_steps, step ? 1 : 0};
  const std::vector<int64_t> all = communicator.all_gather(from_vector(mine)).to_vector<int64_t>();
  int root = 0;
  bool all_step = true;
  for (int r = 0; r < communicator.size(); ++r) {
    if (all[static_cast<size_t>(2 * r)] > all[static_cast<size_t>(2 * root)]) root = r;
    all_step = all_step && all[static_cast<size_t>(2 * r) + 1] != 0;
  }
  zero_grad();
  NamedTensors tensors = state.module->named_buffers();
  if (!all_step)
    for (auto& entry : state.named_parameters()) tensors.push_back(entry);
  broadcast_tensors(communicator, tensors, root);
}

}  // namespace anello::dist
