// nn::Module: registration, replacing and tying, walking, state dicts, conversion, text.
// Main entry: tag [module].
#include "catch.h"

#include <anello/autograd/functions.h>
#include <anello/autograd/hooks.h>
#include <anello/layers/container.h>
#include <anello/layers/module.h>

#include <algorithm>
#include <memory>

using namespace anello;

namespace {
/// y = scale x + shift.
struct Affine : nn::Module {
  explicit Affine(double start = 1, bool with_shift = true) {
    register_parameter("scale", scale, full({2}, start));
    register_parameter("shift", shift, with_shift ? zeros({2}) : Tensor());
    register_buffer("seen", seen, zeros({}, int64));
  }
  Tensor forward(const Tensor& x) override { return shift.defined() ? x * scale + shift : x * scale; }
  std::string extra_repr() const override { return "2"; }
  Tensor scale, shift, seen;
};
struct Special : Affine {
  Tensor forward(const Tensor& x) override { return x * 0.0; }
};
struct Net : nn::Module {
  nn::Child<Affine> first = add<Affine>("first", 2.0);
  nn::Child<Affine> second = add("second", std::make_shared<Affine>(3.0, false));
  Tensor forward(const Tensor& x) override { return second(first(x)); }
};

std::vector<std::string> names(const std::vector<std::pair<std::string, Tensor>>& list) {
  std::vector<std::string> found;
  for (const auto& [name, tensor] : list) found.push_back(name);
  return found;
}
using Names = std::vector<std::string>;
const Tensor kOnes = ones({2});
double first_value(const Tensor& t) { return t.to_vector<double>()[0]; }
}  // namespace

TEST_CASE("a module computes through its children and lists what is in it", "[module]") {
  Net net;
  REQUIRE(first_value(net(kOnes)) == 6);
  REQUIRE(names(net.named_parameters()) == Names{"first.scale", "first.shift", "second.scale"});
  REQUIRE(names(net.named_parameters(false)).empty());
  REQUIRE(names(net.named_buffers()) == Names{"first.seen", "second.seen"});
  REQUIRE(net.parameters().size() == 3);
  REQUIRE(net.num_parameters() == 6);
  REQUIRE(net.children().size() == 2);
  Names modules;
  for (const auto& [name, module] : net.named_modules()) modules.push_back(name + ":" + module->class_name());
  REQUIRE(modules == Names{":Net", "first:Affine", "second:Affine"});
  REQUIRE(net.get_module("first").find_parameter("scale") == &net.first->scale);
  REQUIRE_THROWS_WITH(net.get_module("third"), contains_text("'third'") && contains_text("first, second"));
  REQUIRE_THROWS_WITH(nn::Module()(kOnes), contains_text("forward"));
  for (const Tensor& p : net.parameters()) REQUIRE(p.requires_grad());
}

TEST_CASE("parameters carry their path", "[module]") {
  nn::Sequential outer;
  outer.append(std::make_shared<Net>());
  const auto net = std::static_pointer_cast<Net>(outer.at(0));
  REQUIRE(net->first->scale.name() == "0.first.scale");
}

TEST_CASE("an assigned parameter is the one the C++ code uses", "[module]") {
  Net net;
  const Tensor tied = full({2}, 5);
  tied.set_requires_grad();
  net.first->set_parameter("scale", tied);
  net.second->set_parameter("scale", tied);
  REQUIRE(net.first->scale.is(tied));
  REQUIRE(first_value(net(kOnes)) == 25);
  REQUIRE(names(net.named_parameters()) == Names{"first.scale", "first.shift"});  // once, under its first name
  REQUIRE(net.num_parameters() == 4);
  // 25 = s * s: the gradient collects both uses, 2 s.
  net(kOnes).backward(kOnes);
  REQUIRE(first_value(tied.grad()) == 10);
  net.zero_grad();
  REQUIRE_FALSE(tied.grad().defined());
  net.first->set_parameter("shift", {});  // an absent one
  REQUIRE(names(net.named_parameters()) == Names{"first.scale"});
}

TEST_CASE("an assigned module is the one the C++ code uses", "[module]") {
  Net net;
  net.set_module("first", std::make_shared<Special>());
  REQUIRE(first_value(net(kOnes)) == 0);
  REQUIRE_THROWS_AS(net.set_module("second", std::make_shared<Net>()),
                    DTypeError);  // a Child<Affine> asks for an Affine
  REQUIRE(first_value(net.second(kOnes)) == 3);
}

TEST_CASE("dynamic registration, and what is refused", "[module]") {
  nn::Module module;
  module.set_parameter("w", ones({3}));
  module.set_buffer("b", zeros({1}), false);
  module.set_module("m", std::make_shared<Affine>());
  REQUIRE(names(module.named_parameters()) == Names{"w", "m.scale", "m.shift"});
  REQUIRE_FALSE(module.find_parameter("w")->requires_grad());  // left as it was given
  REQUIRE_FALSE(module.state_dict().contains("b"));
  REQUIRE_THROWS_WITH(module.set_buffer("w", zeros({1})), contains_text("parameter 'w'"));
  REQUIRE_THROWS_AS(module.set_parameter("m", ones({1})), ValueError);
  REQUIRE_THROWS_AS(module.set_module("b", std::make_shared<Affine>()), ValueError);
  REQUIRE_THROWS_WITH(module.set_parameter("a.b", ones({1})), contains_text("'a.b'"));
  REQUIRE_THROWS_AS(module.set_parameter("", ones({1})), ValueError);
  REQUIRE_THROWS_AS(module.set_parameter("i", zeros({1}, int64)), DTypeError);
  REQUIRE_THROWS_AS(module.set_module("n", nullptr), ValueError);
  Tensor leaf = ones({1});
  leaf.set_requires_grad();
  REQUIRE_THROWS_AS(module.set_parameter("p", leaf * 2.0), ValueError);
  module.remove("w");
  module.remove("m");
  REQUIRE(module.parameters().empty());
  REQUIRE_THROWS_AS(module.remove("w"), IndexError);
  Affine affine;
  REQUIRE_THROWS_WITH(affine.remove("scale"), contains_text("member"));
}

TEST_CASE("a module cannot hold itself", "[module]") {
  const auto a = std::make_shared<nn::Module>(), b = std::make_shared<nn::Module>(), c = std::make_shared<nn::Module>();
  a->set_module("b", b);
  b->set_module("c", c);
  REQUIRE_THROWS_WITH(c->set_module("a", a), contains_text("cycle") && contains_text("'b.c'"));
  REQUIRE_THROWS_WITH(a->set_module("a", a), contains_text("itself"));
  REQUIRE(c->children().empty());
}

TEST_CASE("a module in two places comes once, but is saved under both names", "[module]") {
  const auto shared = std::make_shared<Affine>();
  nn::Module module;
  module.set_module("a", shared);
  module.set_module("b", shared);
  REQUIRE(names(module.named_parameters()) == Names{"a.scale", "a.shift"});
  REQUIRE(module.children().size() == 1);
  REQUIRE(module.named_children().size() == 2);
  REQUIRE(module.state_dict().size() == 6);
  module.load_state_dict(module.state_dict());
}

TEST_CASE("train, eval, apply", "[module]") {
  Net net;
  REQUIRE(net.is_training());
  net.eval();
  REQUIRE_FALSE(net.first->is_training());
  net.train();
  REQUIRE(net.first->is_training());
  struct Fixed : Affine {
    void train(bool) override { Affine::train(false); }
  };
  nn::Module outer;
  outer.set_module("fixed", std::make_shared<Fixed>());
  outer.train();
  REQUIRE_FALSE(outer.find_module("fixed")->is_training());
  Names order;
  net.apply([&](nn::Module& m) { order.push_back(m.class_name()); });
  REQUIRE(order == Names{"Affine", "Affine", "Net"});
  net.requires_grad_(false);
  REQUIRE(net.num_parameters(true) == 0);
}

TEST_CASE("state dicts: values go over in place, with conversion", "[module]") {
  Net a, b;
  fill(a.first->scale, 7);
  fill(a.first->seen, 3);
  const TensorMap state = a.state_dict();
  REQUIRE(state.size() == 5);
  REQUIRE_FALSE(state.at("first.scale").requires_grad());
  const Tensor before = b.first->scale;
  b.to(float64);
  const nn::LoadReport report = b.load_state_dict(state);
  REQUIRE(report.missing.empty());
  REQUIRE(b.first->scale.is(before));
  REQUIRE(b.first->scale.dtype() == float64);
  REQUIRE(first_value(b.first->scale) == 7);
  REQUIRE(b.first->seen.item<int64_t>() == 3);
  REQUIRE(b.first->scale.requires_grad());
}

TEST_CASE("a state dict that does not fit is refused whole, naming everything", "[module]") {
  Net net;
  TensorMap state;
  state.set("first.scale", zeros({2}));
  state.set("first.shift", zeros({3}));
  state.set("first.seen", zeros({}));
  state.set("other", zeros({1}));
  state.set("another", zeros({1}));
  try {
    net.load_state_dict(state);
    FAIL("not refused");
  } catch (const ShapeError& e) {
    const std::string text = e.what();
    INFO(text);
    for (const char* part :
         {"[Net.load_state_dict]", "missing (2): second.scale, second.seen", "unexpected (2): other, another",
          "first.shift (3,) for (2,)", "first.seen float32 for int64"})
      REQUIRE(text.find(part) != std::string::npos);
  }
  REQUIRE(first_value(net.first->scale) == 2);                       // nothing was loaded
  REQUIRE_THROWS_AS(net.load_state_dict(state, false), ShapeError);  // misfits are never passed over
  REQUIRE(first_value(net.first->scale) == 2);

  TensorMap part;
  part.set("first.scale", zeros({2}));
  part.set("other", zeros({1}));
  REQUIRE_THROWS_WITH(net.load_state_dict(part), contains_text("strict"));
  REQUIRE(first_value(net.first->scale) == 2);
  const nn::LoadReport report = net.load_state_dict(part, false);
  REQUIRE(report.missing == Names{"first.shift", "first.seen", "second.scale", "second.seen"});
  REQUIRE(report.unexpected == Names{"other"});
  REQUIRE(first_value(net.first->scale) == 0);
}

TEST_CASE("conversion keeps the tensors that others hold", "[module]") {
  Net net;
  const Tensor held = net.first->scale;
  net.second->set_parameter("scale", held);  // tied
  int fired = 0;
  held.on_grad_ready([&](const Tensor&) { ++fired; });
  const Tensor y = net(kOnes);  // saved the float32 values
  net.to(float64);
  REQUIRE(held.dtype() == float64);
  REQUIRE(net.first->scale.is(held));
  REQUIRE(net.second->scale.is(held));
  REQUIRE(net.first->seen.dtype() == int64);
  REQUIRE(held.requires_grad());
  REQUIRE(held.name() == "first.scale");
  REQUIRE_THROWS_AS(y.backward(kOnes), Error);  // never silently with other values
  net(ones({2}, float64)).backward(ones({2}, float64));
  REQUIRE(held.grad().dtype() == float64);
  REQUIRE(first_value(held.grad()) == 4);
  REQUIRE(fired == 1);
  net.to(float32);
  REQUIRE_FALSE(held.grad().defined());
  REQUIRE_THROWS_AS(net.to(int32), DTypeError);
  REQUIRE_THROWS_AS(net.to(Device{DeviceType::cuda, 0}), DeviceError);
}

TEST_CASE("the text of a module is a tree with counts", "[module]") {
  Net net;
  net.second->requires_grad_(false);
  REQUIRE(net.repr() ==
          "Net(\n"
          "  (first): Affine(2)  [4]\n"
          "  (second): Affine(2)  [2]\n"
          ")  [6]\n"
          "Parameters: 6, of which trainable 4");
  nn::Module large;
  large.set_parameter("w", zeros({1234, 1000}));
  REQUIRE(large.repr() == "Module()  [1,234,000]\nParameters: 1,234,000, of which trainable 0");
  REQUIRE(nn::Module().repr() == "Module()");
}

TEST_CASE("containers", "[module]") {
  nn::Sequential net;
  net.append<Affine>(2.0).append<Affine>(3.0).append("last", std::make_shared<Affine>(5.0));
  REQUIRE(first_value(net(kOnes)) == 30);
  REQUIRE(net.size() == 3);
  REQUIRE(net.at(-1) == net.find_module("last"));
  REQUIRE(names(net.named_parameters())[4] == "last.scale");
  REQUIRE_THROWS_AS(net.at(3), IndexError);
  REQUIRE_THROWS_AS(net.append("last", std::make_shared<Affine>()), ValueError);
  net.set(1, std::make_shared<Special>());
  REQUIRE(first_value(net(kOnes)) == 0);
  REQUIRE(first_value(nn::Sequential()(kOnes)) == 1);
  const auto twice = std::make_shared<Affine>(2.0);
  nn::Sequential again(std::vector<std::shared_ptr<nn::Module>>{twice, twice});
  REQUIRE(first_value(again(kOnes)) == 4);
  nn::ModuleList list({twice});
  REQUIRE_THROWS_AS(list(kOnes), Error);
}
