// The backward pass: discovery of the graph, dependency counts, and the loop that runs ready nodes.
// Main entry: backward(), grad().
#include <anello/autograd/engine.h>
#include <anello/autograd/functions.h>
#include <anello/autograd/grad_meta.h>
#include <anello/core/interrupt.h>

#include <algorithm>
#include <queue>
#include <unordered_map>

namespace anello {
namespace {

using detail::AccumulateGrad;

/// What one run knows about a node: the gradients that arrived so far and how many edges are still to deliver.
struct NodeState {
  std::vector<Tensor> grads;
  int64_t pending = 0;
  bool written = false;  ///< a leaf: part of its gradient already lies in its destination
  bool needed = true;
};

/// One place of grad(outputs, inputs): where the gradient of an input passes by.
struct Capture {
  uint32_t slot;
  size_t input;
};

class GraphRun {
 public:
  GraphRun(bool retain_graph, bool create_graph, bool accumulates);
  ~GraphRun();
  void add_root(const Tensor& output, const Tensor& gradient, size_t index);
  void discover();
  void capture(const Tensor& input, size_t index) {
    const Edge edge = gradient_edge(input);
    captures_[edge.node.get()].push_back({edge.slot, index});
    captured_.resize(std::max(captured_.size(), index + 1));
  }
  void mark_needed();
  void run();
  std::vector<Tensor> take_captured() { return std::move(captured_); }
  bool is_outermost() const { return outer_ == nullptr; }

 private:
  void run_node(Node& node);
  void deliver(Edge edge, Tensor grad, bool written);
  void finish_leaf(AccumulateGrad& accumulator);
  void leaf_ready(AccumulateGrad& accumulator);
  void fire_deferred();

  bool retain_graph_, create_graph_, accumulates_;
  std::vector<Ref<Node>> roots_;
  std::unordered_map<Node*, NodeState> states_;
  std::unordered_map<Node*, std::vector<Capture>> captures_;
  std::vector<Tensor> captured_;
  std::priority_queue<std::pair<uint64_t, Node*>> ready_;  // newest first
  std::vector<const Node*> written_;
  std::vector<bool> needed_;

  // Hooks: a nested backward() belongs to the outermost one of its thread.
  GraphRun* outer_ = nullptr;
  int64_t reentrant_left_ = 0;
  std::vector<Ref<Node>> deferred_;
  std::vector<const Node*> fired_;
  static thread_local GraphRun* outermost_;
};

thread_local GraphRun* GraphRun::outermost_ = nullptr;

GraphRun::GraphRun(bool retain_graph, bool create_graph, bool accumulates)
    : retain_graph_(retain_graph || create_graph), create_graph_(create_graph), accumulates_(accumulates) {
  if (!accumulates_) return;
  outer_ = outermost_;
  if (outer_ == nullptr) outermost_ = this;
}

GraphRun::~GraphRun() {
  if (outermost_ == this) outermost_ = nullptr;
}

void GraphRun::add_root(const Tensor& output, const Tensor& gradient, size_t index) {
  check<Error>(
      output.defined() && output.requires_grad(), "backward", "output ", index,
      " does not require a gradient. Hint: was it computed under no_grad, or from inputs without requires_grad?");
  Tensor g = gradient;
  if (!g.defined()) {
    check<ShapeError>(
        output.numel() == 1, "backward", "output ", index, " has shape ", output.shape(),
        "; a gradient is implied only for a single element. Hint: pass gradient, or reduce with sum() or mean().");
    g = ones_like(output);
  }
  check<ShapeError>(g.shape() == output.shape(), "backward", "gradient ", index, " has shape ", g.shape(),
                    ", the output ", output.shape(), ".");
  check<DeviceError>(g.device() == output.device(), "backward", "gradient ", index, " is on ", g.device(),
                     ", the output on ", output.device(), ".");
  if (g.dtype() != output.dtype()) g = cast(g, output.dtype());
  const Edge edge = gradient_edge(output);
  roots_.push_back(edge.node);
  NodeState& state = states_[edge.node.get()];
  state.grads.resize(edge.node->outputs_.size());
  Tensor& place = state.grads[edge.slot];
  place = place.defined() ? add(place, g) : g;
}

/// Finds every node below the roots and counts the edges into each.
void GraphRun::discover() {
  std::vector<Node*> stack;
  for (const auto& [node, state] : states_) stack.push_back(node);
  while (!stack.empty()) {
    Node* node = stack.back();
    stack.pop_back();
    reentrant_left_ += node->reentrant_;
    for (const Edge& edge : node->next()) {
      if (!edge.node) continue;
      const auto [place, added] = states_.try_emplace(edge.node.get());
      ++place->second.pending;
      if (added) stack.push_back(edge.node.get());
    }
  }
}

/// For grad(outputs, inputs): leaves only nodes from which an input can be reached. Edges lead to older nodes, so one
/// pass from old to new is enough.
void GraphRun::mark_needed() {
  std::vector<Node*> nodes;
  nodes.reserve(states_.size());
  for (const auto& [node, state] : states_) nodes.push_back(node);
  std::sort(nodes.begin(), nodes.end(), [](const Node* a, const Node* b) { return a->sequence() < b->sequence(); });
  for (Node* node : nodes)
    states_[node].needed =
        captures_.contains(node) || std::any_of(node->next().begin(), node->next().end(),
                                                [&](const Edge& e) { return e.node && states_[e.node.get()].needed; });
}

void GraphRun::run() {
  std::vector<Node*> start;
  for (const Ref<Node>& root : roots_) {
    if (std::find(start.begin(), start.end(), root.get()) != start.end()) continue;
    start.push_back(root.get());
    if (states_[root.get()].pending == 0 && states_[root.get()].needed) ready_.emplace(root->sequence(), root.get());
  }
  while (!ready_.empty()) {
    check_interrupt();
    Node* node = ready_.top().second;
    ready_.pop();
    run_node(*node);
  }
  if (outer_ == nullptr) fire_deferred();
}

void GraphRun::run_node(Node& node) {
  if (node.is_accumulator()) return finish_leaf(static_cast<AccumulateGrad&>(node));
  NodeState& state = states_[&node];
  std::vector<Tensor> grads = std::move(state.grads);
  grads.resize(node.outputs_.size());
  if (accumulates_) node.store_retained(grads);
  if (const auto place = captures_.find(&node); place != captures_.end())
    for (const Capture& c : place->second) captured_[c.input] = grads[c.slot];

  needed_.assign(node.next().size(), true);
  bool any_needed = accumulates_;
  for (size_t i = 0; i < node.next().size() && !accumulates_; ++i) {
    const Edge& edge = node.next()[i];
    needed_[i] = edge.node && states_[edge.node.get()].needed;
    any_needed = any_needed || needed_[i];
  }
  const std::vector<bool> needed = needed_;  // a nested run must not change what this node sees
  Backward bw(node, grads, {accumulates_ ? nullptr : &needed, create_graph_, accumulates_, &written_});
  const bool arrived = std::any_of(grads.begin(), grads.end(), [](const Tensor& g) { return g.defined(); });
  if (arrived && any_needed) {
    check<Error>(!node.released(), concat("backward of ", node.name()),
                 "the saved tensors were released by an earlier backward. Hint: pass retain_graph=True to it.");
    node.backward(bw);
    if (!retain_graph_) node.release_saved();
  }
  grads.clear();
  for (size_t i = 0; i < node.next().size(); ++i) deliver(node.next()[i], std::move(bw.results[i]), bw.written[i]);
  if (node.reentrant_ && --reentrant_left_ == 0 && outer_ == nullptr) fire_deferred();
}

/// Adds a gradient (or the news that there is none) to the next node's sum, and readies the node after its last one.
void GraphRun::deliver(Edge edge, Tensor grad, bool written) {
  if (!edge.node) return;
  NodeState& state = states_[edge.node.get()];
  if (!state.needed) return;
  if (state.grads.empty()) state.grads.resize(edge.node->outputs_.size());
  state.written = state.written || written;
  if (grad.defined()) {
    Tensor& sum = state.grads[edge.slot];
    if (!sum.defined()) {
      sum = std::move(grad);
    } else if (!create_graph_ && sum.ref()->use_count() == 1 && sum.storage()->use_count() == 1 &&
               sum.is_contiguous()) {
      add_(sum, grad);  // nobody else sees this sum
    } else {
      sum = add(sum, grad);
    }
  }
  if (--state.pending > 0) return;
  // A leaf at once, so that its hooks run while the rest still has work; everything else by age.
  if (edge.node->is_accumulator())
    finish_leaf(static_cast<AccumulateGrad&>(*edge.node));
  else
    ready_.emplace(edge.node->sequence(), edge.node.get());
}

void GraphRun::finish_leaf(AccumulateGrad& accumulator) {
  NodeState& state = states_[&accumulator];
  Tensor grad = state.grads.empty() ? Tensor() : std::move(state.grads[0]);
  state.grads.clear();
  if (!accumulates_) {
    if (const auto place = captures_.find(&accumulator); place != captures_.end())
      for (const Capture& c : place->second) captured_[c.input] = grad;
    return;
  }
  if (!grad.defined() && !state.written) return;
  accumulator.accumulate(std::move(grad), state.written, create_graph_);
  leaf_ready(accumulator);
}

/// Fires the leaf's hooks now, or later when more may come from a nested backward.
void GraphRun::leaf_ready(AccumulateGrad& accumulator) {
  GraphRun& owner = outer_ == nullptr ? *this : *outer_;
  const Tensor leaf = accumulator.leaf();
  if (!leaf.defined()) return;
  const bool has_hooks = !detail::find_meta(leaf)->ready_hooks.empty();
  if (has_hooks && std::find(owner.fired_.begin(), owner.fired_.end(), &accumulator) != owner.fired_.end())
    fail<Error>("backward", "a nested backward added to the gradient of '", leaf.name(), "' (shape ", leaf.shape(),
                ") after its on_grad_ready hooks ran. Hint: declare the function that calls backward() as reentrant.");
  if (&owner != this || reentrant_left_ > 0) {
    const auto same = [&](const Ref<Node>& n) { return n.get() == &accumulator; };
    if (std::none_of(owner.deferred_.begin(), owner.deferred_.end(), same)) owner.deferred_.emplace_back(&accumulator);
    return;
  }
  if (const auto place =
          std::find_if(deferred_.begin(), deferred_.end(), [&](const Ref<Node>& n) { return n.get() == &accumulator; });
      place != deferred_.end())
    deferred_.erase(place);
  if (!has_hooks) return;
  fired_.push_back(&accumulator);
  detail::fire_ready_hooks(leaf);
}

void GraphRun::fire_deferred() {
  const std::vector<Ref<Node>> list = std::exchange(deferred_, {});
  for (const Ref<Node>& node : list) {
    // One that the outer graph still has edges to fires after its last one.
    if (const auto place = states_.find(node.get()); place != states_.end() && place->second.pending > 0) {
      deferred_.push_back(node);
      continue;
    }
    const Tensor leaf = static_cast<AccumulateGrad&>(*node).leaf();
    if (!leaf.defined() || detail::find_meta(leaf)->ready_hooks.empty()) continue;
    fired_.push_back(node.get());
    detail::fire_ready_hooks(leaf);
  }
}

void check_counts(const char* op, const std::vector<Tensor>& outputs, const std::vector<Tensor>& gradients) {
  check<ValueError>(!outputs.empty(), op, "there are no outputs.");
  check<ValueError>(gradients.empty() || gradients.size() == outputs.size(), op, gradients.size(), " gradients for ",
                    outputs.size(), " outputs.");
}

void add_roots(GraphRun& run, const std::vector<Tensor>& outputs, const std::vector<Tensor>& gradients) {
  for (size_t i = 0; i < outputs.size(); ++i) run.add_root(outputs[i], gradients.empty() ? Tensor() : gradients[i], i);
  run.discover();
}

}  // namespace

void backward(const std::vector<Tensor>& outputs, const std::vector<Tensor>& gradients, bool retain_graph,
              bool create_graph) {
  check_counts("backward", outputs, gradients);
  const GradModeGuard mode(create_graph);
  GraphRun run(retain_graph, create_graph, true);
  try {
    add_roots(run, outputs, gradients);
    run.run();
  } catch (const std::exception& e) {
    if (run.is_outermost()) {
      try {
        detail::fire_backward_end({false, e.what()});
      } catch (...) {
        // The first failure is the one to report.
      }
    }
    throw;
  }
  if (run.is_outermost()) detail::fire_backward_end({});
}

std::vector<Tensor> grad(const std::vector<Tensor>& outputs, const std::vector<Tensor>& inputs,
                         const std::vector<Tensor>& gradients, bool retain_graph, bool create_graph,
                         bool allow_unused) {
  check_counts("grad", outputs, gradients);
  const GradModeGuard mode(create_graph);
  GraphRun run(retain_graph, create_graph, false);
  for (size_t i = 0; i < inputs.size(); ++i) {
    check<Error>(inputs[i].defined() && inputs[i].requires_grad(), "grad", "input ", i,
                 " does not require a gradient.");
    run.capture(inputs[i], i);
  }
  add_roots(run, outputs, gradients);
  run.mark_needed();
  run.run();
  std::vector<Tensor> results = run.take_captured();
  results.resize(inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i)
    check<Error>(allow_unused || results[i].defined(), "grad", "the outputs do not depend on input ", i, " of shape ",
                 inputs[i].shape(), ". Hint: pass allow_unused=True to get None for it.");
  return results;
}

}  // namespace anello
