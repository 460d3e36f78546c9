// The engine: order, hooks, accumulation, destinations, in-place rules, higher derivatives, depth.
// Main entry: tag [engine].
#include "catch.h"

#include <anello/anello.h>

#include <cmath>
#include <thread>

using namespace anello;

namespace {

Tensor leaf(std::vector<double> values) { return from_vector(values).set_requires_grad(); }
std::vector<double> values(const Tensor& t) { return t.to_vector<double>(); }

/// y = x, with a note in a log when its backward runs.
Tensor trace(const Tensor& x, std::string what, std::vector<std::string>& log) {
  return record("trace", {&x}, {}, copy_as(x, x.dtype()), [what, &log](Backward& bw) {
    log.push_back(what);
    bw.give(0, bw.grad());
  });
}

}  // namespace

TEST_CASE("gradients add up over paths, calls and shared leaves", "[engine]") {
  const Tensor x = leaf({2, 3});
  const Tensor y = x * x + x;  // dy/dx = 2x + 1
  sum(y).backward();
  REQUIRE(values(x.grad()) == std::vector<double>{5, 7});
  sum(x * 10.0).backward();
  REQUIRE(values(x.grad()) == std::vector<double>{15, 17});
  x.zero_grad();
  REQUIRE_FALSE(x.grad().defined());
  backward({sum(x), sum(x * x)});
  REQUIRE(values(x.grad()) == std::vector<double>{5, 7});
}

TEST_CASE("a gradient that others hold is never changed", "[engine]") {
  const Tensor a = leaf({1, 2}), b = leaf({3, 4});
  const Tensor seed = from_vector<double>({1, 1});
  (a + b).backward(seed);
  (a + b).backward(seed);
  REQUIRE(values(a.grad()) == std::vector<double>{2, 2});
  REQUIRE(values(b.grad()) == std::vector<double>{2, 2});
  REQUIRE(values(seed) == std::vector<double>{1, 1});
}

TEST_CASE("numerics 6: a broadcast bias gets its gradient in its own shape", "[engine]") {
  const Tensor bias = zeros({1, 4}, float64).set_requires_grad();
  sum(ones({3, 4}, float64) + bias).backward();
  REQUIRE(bias.grad().shape() == Shape{1, 4});
  REQUIRE(values(bias.grad()) == std::vector<double>{3, 3, 3, 3});
}

TEST_CASE("numerics 7: in-place change of a saved tensor raises, of an unsaved one is legal", "[engine]") {
  const Tensor a = leaf({1, 2, 3});
  const Tensor b = sigmoid(a);
  index_set(b, {1}, full({}, 2, float64));
  REQUIRE_THROWS_WITH(sum(b).backward(), contains_text("sigmoid") && contains_text("changed in place"));

  const Tensor c = 1.0 / (1.0 + exp(-a));
  index_set(c, {1}, full({}, 2, float64));
  sum(c).backward();
  const auto g = values(a.grad());
  REQUIRE(g[0] == Approx(0.19661193324148185).epsilon(1e-12));
  REQUIRE(g[1] == 0);
  REQUIRE(g[2] == Approx(0.04517665973091213).epsilon(1e-12));
}

TEST_CASE("the error names the tensor that was changed", "[engine]") {
  const Tensor w = leaf({1, 2}).set_name("layer1.weight");
  const Tensor y = w * w;
  {
    const NoGradGuard no_grad;
    add_(w, Scalar(1));
  }
  REQUIRE_THROWS_WITH(sum(y).backward(), contains_text("layer1.weight") && contains_text("mul"));
}

TEST_CASE("an in-place change through another handle of the memory loses no gradient in silence", "[engine]") {
  const Tensor x = leaf({1, 2, 3}), square = x * x;
  {
    const Tensor base = zeros({2, 3}, float64), row = select(base, 0, 0);
    copy_(row, square);
    REQUIRE_THROWS_WITH(sum(base), contains_text("outdated") && contains_text("base[i] = value"));
    REQUIRE_THROWS_WITH(add_(base, square), contains_text("outdated"));
    REQUIRE_THROWS_WITH(select(base, 0, 0), contains_text("outdated"));
    REQUIRE(values(base.detach()) == std::vector<double>{1, 4, 9, 0, 0, 0});  // the values alone are there
    sum(row).backward();                                                      // and what was changed has its history
    REQUIRE(values(x.grad()) == std::vector<double>{2, 4, 6});
  }
  const Tensor base = zeros({3}, float64), alias = base.detach();
  add_(alias, square);
  REQUIRE_THROWS_WITH(base * 2.0, contains_text("outdated"));
  const Tensor other = zeros({2, 3}, float64);
  index_set(select(other, 0, 0), {Index::all()}, square);
  REQUIRE_THROWS_WITH(sum(other), contains_text("outdated"));
  {
    const NoGradGuard no_grad;
    REQUIRE(sum(other).item<double>() == 14);
    const Tensor late = select(other, 0, 0);  // a view taken of an outdated tensor is outdated too
    const EnableGradGuard recording;
    REQUIRE_THROWS_WITH(sum(late), contains_text("outdated"));
  }
  const Tensor filled = x * 2.0;
  x.zero_grad();
  fill_(filled, 1);
  sum(filled).backward();
  REQUIRE(values(x.grad()) == std::vector<double>{0, 0, 0});  // known to be zero, not unknown
}

TEST_CASE("in-place rules for leaves, views and bases", "[engine]") {
  const Tensor x = leaf({1, 2, 3});
  REQUIRE_THROWS_WITH(add_(x, Scalar(1)), contains_text("leaf"));
  const Tensor y = x * 2.0;
  const Tensor view = slice(y, 0, 0, 2);
  REQUIRE_THROWS_WITH(mul_(view, Scalar(3)), contains_text("view"));
  mul_(y, Scalar(3));  // rewrites y's history
  REQUIRE_THROWS_WITH(sum(view * 1.0), contains_text("outdated"));
  sum(y).backward();
  REQUIRE(values(x.grad()) == std::vector<double>{6, 6, 6});

  x.zero_grad();
  const Tensor z = x * 1.0;
  mul_(z, x);  // the old z is needed for x's gradient: z = x * x
  sum(z).backward();
  REQUIRE(values(x.grad()) == std::vector<double>{2, 4, 6});

  const Tensor plain = zeros({3}, float64);  // becomes tracked
  index_set(plain, {Index::slice(0, 3)}, x);
  x.zero_grad();
  sum(plain * plain).backward();
  REQUIRE(values(x.grad()) == std::vector<double>{2, 4, 6});
}

TEST_CASE("index_set sends gradients to the value and zero to what it replaced", "[engine]") {
  const Tensor x = leaf({1, 2, 3}), v = leaf({5});
  const Tensor y = x * 2.0;
  index_set(y, {Index::slice(1, 2)}, v);
  sum(y * from_vector<double>({1, 10, 100})).backward();
  REQUIRE(values(x.grad()) == std::vector<double>{2, 0, 200});
  REQUIRE(values(v.grad()) == std::vector<double>{10});
}

TEST_CASE("released and retained graphs", "[engine]") {
  const Tensor x = leaf({3});
  const Tensor y = x * x;
  y.backward({}, true);
  y.backward();
  REQUIRE(values(x.grad()) == std::vector<double>{12});
  REQUIRE_THROWS_WITH(y.backward(), contains_text("released") && contains_text("retain_graph"));
  REQUIRE_THROWS_WITH(zeros({2}).backward(), contains_text("does not require a gradient"));
  REQUIRE_THROWS_AS((x * ones({2}, float64)).backward(), ShapeError);
  REQUIRE_THROWS_AS(x.backward(zeros({2}, float64)), ShapeError);
}

TEST_CASE("no_grad, detach and integer results carry no history", "[engine]") {
  const Tensor x = leaf({1, -1});
  {
    const NoGradGuard no_grad;
    REQUIRE_FALSE((x * 2.0).requires_grad());
    const EnableGradGuard again;
    REQUIRE((x * 2.0).requires_grad());
  }
  REQUIRE((x * 2.0).requires_grad());
  REQUIRE_FALSE((x * 2.0).detach().requires_grad());
  REQUIRE_FALSE(gt(x, Scalar(0)).requires_grad());
  REQUIRE_THROWS_AS(arange(0, 3).set_requires_grad(), DTypeError);
}

TEST_CASE("leaves accumulate as soon as they can: the last layer's hook runs before the first layer's backward",
          "[engine]") {
  std::vector<std::string> log;
  const Tensor w1 = leaf({2}), w2 = leaf({3}), w3 = leaf({4});
  const auto note = [&](const char* what) { return [&log, what](const Tensor&) { log.push_back(what); }; };
  w1.on_grad_ready(note("w1 ready"));
  w2.on_grad_ready(note("w2 ready"));
  w3.on_grad_ready(note("w3 ready"));
  Tensor h = trace(w1 * leaf({1}), "layer 1", log);
  h = trace(h * w2, "layer 2", log);
  h = trace(h * w3, "layer 3", log);
  h.backward();
  REQUIRE(log == std::vector<std::string>{"layer 3", "w3 ready", "layer 2", "w2 ready", "layer 1", "w1 ready"});
}

TEST_CASE("on_grad_ready fires once, after the last contribution, with the final gradient", "[engine]") {
  const Tensor x = leaf({2}), unused = leaf({1});
  int fired = 0, idle = 0;
  double seen = 0;
  const HookHandle handle = x.on_grad_ready([&](const Tensor& t) { ++fired, seen = t.grad().item<double>(); });
  unused.on_grad_ready([&](const Tensor&) { ++idle; });
  Tensor y = x * x + x;
  y = y * x;  // x^3 + x^2: 3x^2 + 2x = 16
  y.backward({}, true);
  REQUIRE(fired == 1);
  REQUIRE(seen == 16);
  REQUIRE(idle == 0);
  grad({y}, {x}, {}, true);  // not for grad(outputs, inputs)
  REQUIRE(fired == 1);
  y.backward({}, true);
  REQUIRE(fired == 2);
  REQUIRE(seen == 32);
  handle.remove();
  handle.remove();
  y.backward();
  REQUIRE(fired == 2);
  REQUIRE_THROWS_AS((x * 2.0).on_grad_ready([](const Tensor&) {}), Error);
}

TEST_CASE("a hook may remove itself and a leaf may receive nothing", "[engine]") {
  const Tensor x = leaf({2}), z = leaf({5});
  int fired = 0;
  HookHandle handle;
  handle = x.on_grad_ready([&](const Tensor&) { ++fired, handle.remove(); });
  z.on_grad_ready([&](const Tensor&) { ++fired; });
  const Tensor blocked = record("blocked", {&z}, {}, copy_as(z, float64), [](Backward& bw) { bw.give(0, Tensor()); });
  (x * 2.0 + blocked).backward();
  (x * 2.0).backward();
  REQUIRE(fired == 1);
  REQUIRE_FALSE(z.grad().defined());
}

TEST_CASE("a nested backward belongs to the outer one", "[engine]") {
  std::vector<std::string> log;
  const Tensor w = leaf({3}), x = leaf({2});
  w.on_grad_ready(
      [&](const Tensor& t) { log.push_back("w " + std::to_string(static_cast<int>(t.grad().item<double>()))); });
  const HookHandle end = on_backward_end([&](const BackwardStatus& s) { log.push_back(s.ok ? "end" : "failed"); });
  // y = w * x computed as a checkpoint: its backward builds the graph again and runs it.
  const auto checkpointed = [&](const Tensor& input) {
    Tensor out;
    {
      const NoGradGuard no_grad;
      out = w * input;
    }
    out = record("checkpoint", {&input}, {}, out, [w, input](Backward& bw) {
      const EnableGradGuard recording;
      const Tensor again = input.detach().set_requires_grad();
      backward({w * again}, {bw.grad()});
      bw.give(0, again.grad());
    });
    grad_fn(out)->reentrant_ = true;
    return out;
  };
  // w is used outside (twice) and inside two checkpoints: y = (w * (w * x)) * w = w^3 x, dy/dw = 3 w^2 x = 54
  (checkpointed(checkpointed(x)) * w).backward();
  REQUIRE(w.grad().item<double>() == 54);
  REQUIRE(x.grad().item<double>() == 27);
  REQUIRE(log == std::vector<std::string>{"w 54", "end"});
  end.remove();
}

TEST_CASE("on_backward_end tells success and failure", "[engine]") {
  std::vector<BackwardStatus> seen;
  const HookHandle handle = on_backward_end([&](const BackwardStatus& s) { seen.push_back(s); });
  const Tensor x = leaf({1});
  (x * 2.0).backward();
  const Tensor bad = record("bad", {&x}, {}, zeros({1}, float64), [](Backward&) { fail<ValueError>("bad", "broken"); });
  REQUIRE_THROWS_AS(bad.backward(), ValueError);
  grad({x * 2.0}, {x});
  REQUIRE(seen.size() == 2);
  REQUIRE(seen[0].ok);
  REQUIRE_FALSE(seen[1].ok);
  REQUIRE_THAT(seen[1].error, contains_text("broken"));
  handle.remove();
  (x * 2.0).backward();
  REQUIRE(seen.size() == 2);
}

TEST_CASE("gradients go straight into their destination", "[engine]") {
  const Tensor w = full({2, 3}, 1, float64).set_requires_grad(), x = full({4, 3}, 2, float64);
  const Tensor memory = full({2, 3}, -7, float64);
  w.set_grad_destination(memory);
  sum(linear(x, w)).backward();
  REQUIRE(w.grad().is(memory));
  REQUIRE(values(memory) == std::vector<double>(6, 8));  // overwritten, not added to the -7
  sum(linear(x, w)).backward();
  REQUIRE(values(memory) == std::vector<double>(6, 16));
  w.zero_grad();
  REQUIRE_FALSE(w.grad().defined());
  sum(linear(x, w) + linear(x * 2.0, w) + sum(w))
      .backward();  // shared: two direct writes (8 + 16) and one plain gradient (8 each)
  REQUIRE(w.grad().is(memory));
  REQUIRE(values(memory) == std::vector<double>(6, 32));
  REQUIRE_THROWS_AS(w.set_grad_destination(zeros({3, 2}, float64)), ShapeError);
  REQUIRE_THROWS_AS(w.set_grad_destination(zeros({2, 3}, float32)), DTypeError);
  w.set_grad_destination({});
  fill(memory, 0);
  REQUIRE(values(w.grad()) == std::vector<double>(6, 32));
}

TEST_CASE("grad() of inner tensors, unused inputs, and higher orders", "[engine]") {
  const Tensor x = leaf({2}), unused = leaf({1});
  const Tensor y = x * x;
  const Tensor z = y * x;
  REQUIRE(grad({z}, {y, x}, {}, true)[0].item<double>() == 2);
  REQUIRE(grad({z}, {y, x}, {}, true)[1].item<double>() == 12);
  REQUIRE_FALSE(x.grad().defined());
  REQUIRE_THROWS_WITH(grad({z}, {unused}, {}, true), contains_text("allow_unused"));
  REQUIRE_FALSE(grad({z}, {unused}, {}, true, false, true)[0].defined());
  const Tensor first = grad({z}, {x}, {}, false, true)[0];       // 3x^2
  const Tensor second = grad({first}, {x}, {}, false, true)[0];  // 6x
  const Tensor third = grad({second}, {x}, {}, false, true)[0];  // 6
  REQUIRE(first.item<double>() == 12);
  REQUIRE(second.item<double>() == 12);
  REQUIRE(third.item<double>() == 6);
}

TEST_CASE("outputs saved by their node make no cycle and come back under create_graph", "[engine]") {
  const Tensor x = leaf({0.5});
  const auto live = [] { return memory_stats().current; };
  const int64_t before = live();
  { const Tensor y = exp(x); }
  REQUIRE(live() == before);
  const Tensor first = grad({exp(x)}, {x}, {}, false, true)[0];
  REQUIRE(grad({first}, {x})[0].item<double>() == Approx(std::exp(0.5)));
}

TEST_CASE("a chain of a million nodes recurses neither in backward nor in destruction", "[engine]") {
  const Tensor x = leaf({1});
  {
    Tensor y = x;
    for (int i = 0; i < 1'000'000; ++i)
      y = record("step", {&y}, {}, y.detach(), [](Backward& bw) { bw.give(0, bw.grad()); });
    y.backward();
    REQUIRE(x.grad().item<double>() == 1);
    Tensor w = x;  // and one that is dropped without a backward
    for (int i = 0; i < 1'000'000; ++i)
      w = record("step", {&w}, {&w}, w.detach(), [](Backward& bw) { bw.give(0, bw.grad()); });
  }
  SUCCEED();
}

TEST_CASE("retain_grad keeps the gradient of an inner tensor", "[engine]") {
  const Tensor x = leaf({3});
  const Tensor y = x * 2.0;
  y.retain_grad();
  {
    const Tensor dropped = x * 5.0;
    dropped.retain_grad();
  }
  (y * y).backward();
  REQUIRE(y.grad().item<double>() == 12);
}

TEST_CASE("backward in several threads at once", "[engine]") {
  const Tensor shared = leaf({2});
  std::vector<std::thread> threads;
  std::atomic<int> right{0};
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&, i] {
      for (int k = 0; k < 50; ++k) {
        const Tensor own = leaf({double(i)});
        (own * own * shared.detach()).backward();
        right += own.grad().item<double>() == 4.0 * i;
      }
    });
  for (auto& t : threads) t.join();
  REQUIRE(right == 200);
}

namespace {
struct Scale {
  double factor;
  std::vector<Tensor> forward(FunctionContext& ctx, const std::vector<Tensor>& in) {
    ctx.save_for_backward({in[0]});
    return {in[0] * in[0] * factor};
  }
  std::vector<Tensor> backward(FunctionContext& ctx, const std::vector<Tensor>& grads) {
    return {grads[0] * ctx.saved_tensors()[0] * (2 * factor)};
  }
};
struct Wrong {
  std::vector<Tensor> forward(FunctionContext&, const std::vector<Tensor>& in) { return {in[0]}; }
  std::vector<Tensor> backward(FunctionContext&, const std::vector<Tensor>&) { return {}; }
};
}  // namespace

TEST_CASE("custom functions and gradcheck", "[engine]") {
  const Tensor x = leaf({1, 2});
  sum(apply(Scale{3}, {x})[0]).backward();
  REQUIRE(values(x.grad()) == std::vector<double>{6, 12});
  GradcheckOptions both;
  both.second_order = true;
  REQUIRE(gradcheck([](const std::vector<Tensor>& in) { return apply(Scale{3}, in); }, {x}, both));
  REQUIRE_THROWS_WITH(sum(apply(Wrong{}, {x})[0]).backward(), contains_text("returned 0 gradients for 1 inputs"));
  const auto wrong = [](const std::vector<Tensor>& in) {
    const Tensor& t = in[0];
    return std::vector<Tensor>{record("half", {&t}, {}, t.detach(), [](Backward& bw) { bw.give(0, bw.grad() * 0.5); })};
  };
  REQUIRE_THROWS_WITH(gradcheck(wrong, {x}), contains_text("element 0"));
  REQUIRE_THROWS_AS(gradcheck(wrong, {ones({1}).set_requires_grad()}), DTypeError);
}
