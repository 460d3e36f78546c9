// Indexing: basic indices, setting, gather and scatter, one-hot, padding.
// Main entry: tag [index].
#include <anello/anello.h>

#include "support.h"

using namespace anello;
using support::leaf;
using support::require_close;
using support::sample;
using support::values;

namespace {

const std::vector<DType> kDTypes = {bool_, uint8, int8, int16, int32, int64, float16, bfloat16, float32, float64};
using Doubles = std::vector<double>;

void check_gradients(const std::function<Tensor(const Tensor&)>& f, const Shape& shape) {
  GradcheckOptions options;
  options.second_order = true;
  REQUIRE(gradcheck([&](const std::vector<Tensor>& in) { return std::vector<Tensor>{square(f(in[0]))}; },
                    {leaf(shape, 5)}, options));
}
Tensor counting(const Shape& shape, DType dtype = float64) {
  return copy_as(as_strided(arange(0, numel(shape)), shape, contiguous_strides(shape), 0), dtype);
}
Tensor ints(const std::vector<int64_t>& v, const Shape& shape) { return from_vector(v, shape); }
Tensor ints(const std::vector<int64_t>& v) { return from_vector(v); }

}  // namespace

TEST_CASE("basic indices are views, as in NumPy", "[index]") {
  const Tensor x = counting({2, 3, 4});
  REQUIRE(values(index(x, {1, 2, 3})) == Doubles{23});
  REQUIRE(index(x, {1, 2, 3}).shape() == Shape{});
  REQUIRE(index(x, {}).shape() == x.shape());
  REQUIRE(values(index(x, {-1, Index::slice(0, 2), 0})) == Doubles{12, 16});
  REQUIRE(values(index(x, {Index::ellipsis(), 1})) == Doubles{1, 5, 9, 13, 17, 21});
  REQUIRE(index(x, {Index::new_dim(), Index::all(), 0, Index::new_dim()}).shape() == Shape{1, 2, 1, 4});
  REQUIRE(values(index(x, {0, Index::all(), Index::slice(0, 4, 3)})) == Doubles{0, 3, 4, 7, 8, 11});
  REQUIRE(index(x, {0}).storage() == x.storage());
  REQUIRE(values(index(transpose(x, 0, 2), {3, 1})) == Doubles{7, 19});
  REQUIRE_THROWS_AS(index(x, {2}), IndexError);
  REQUIRE_THROWS_AS(index(x, {0, 0, 0, 0}), IndexError);
  REQUIRE_THROWS_AS(index(x, {Index::ellipsis(), Index::ellipsis()}), IndexError);
  check_gradients(
      [](const Tensor& v) {
        return index(v, {Index::new_dim(), 1, Index::slice(0, 4, 2), Index::ellipsis()});
      },
      {2, 4, 2});
}

TEST_CASE("index_set writes in place and is recorded", "[index]") {
  for (DType dtype : kDTypes) {
    const Tensor x = zeros({2, 3}, dtype);
    const uint64_t version = x.version();
    index_set(x, {1, Index::slice(0, 2)}, ones({}, float64));
    REQUIRE(values(x) == Doubles{0, 0, 0, 1, 1, 0});
    REQUIRE(x.version() > version);
  }
  const Tensor y = counting({2, 2});
  index_set(y, {Index::all(), 0}, counting({2}));
  REQUIRE(values(y) == Doubles{0, 1, 1, 3});
  REQUIRE_THROWS_AS(index_set(y, {0}, zeros({3})), ShapeError);
  GradcheckOptions options;
  options.second_order = true;
  REQUIRE(gradcheck(
      [](const std::vector<Tensor>& in) {
        const Tensor z = in[0] * 2.0;
        index_set(z, {Index::all(), Index::slice(0, 2)}, in[1]);
        return std::vector<Tensor>{square(z)};
      },
      {leaf({2, 3}, 1), leaf({2}, 2)}, options));
  // A constant that becomes part of the graph by what is written into it.
  const Tensor a = leaf({2}, 3), c = zeros({2, 2}, float64);
  index_set(c, {1}, a);
  sum(c * 3.0).backward();
  REQUIRE(values(a.grad()) == Doubles{3, 3});
  REQUIRE_THROWS_AS(index_set(a, {0}, zeros({}, float64)), Error);  // a leaf that requires a gradient
  const NoGradGuard no_grad;
  index_set(a, {0}, full({}, 9, float64));
  REQUIRE(values(a)[0] == 9);
}

TEST_CASE("numerics 7: changing a saved output in place raises, a saved input's product does not", "[index]") {
  const Tensor a = from_vector<double>({1, 2, 3}).set_requires_grad();
  const Tensor b = sigmoid(a);
  index_set(b, {1}, full({}, 2, float64));
  REQUIRE_THROWS_WITH(sum(b).backward(), contains_text("sigmoid") && contains_text("changed in place"));
  a.zero_grad();
  const Tensor c = rdiv(1, exp(neg(a)) + 1.0);
  index_set(c, {1}, full({}, 2, float64));
  sum(c).backward();
  require_close(values(a.grad()), {0.19661193324148185, 0, 0.045176659730912}, 1e-12);
}

TEST_CASE("gather and scatter_add are adjoint, for every dtype", "[index]") {
  for (DType dtype : kDTypes) {
    const Tensor x = counting({3, 4}, dtype == bool_ ? int64 : dtype);
    const Tensor typed = copy_as(x, dtype), places = ints({3, 0, 1, 1, 2, 2}, {3, 2});
    const Doubles v = values(typed);
    REQUIRE(values(gather(typed, 1, places)) == Doubles{v[3], v[0], v[5], v[5], v[10], v[10]});
    if (dtype == bool_) continue;
    REQUIRE(values(scatter_add(gather(typed, 1, places), 1, places, 4)) ==
            Doubles{v[0], 0, 0, v[3], 0, 2 * v[5], 0, 0, 0, 0, 2 * v[10], 0});
  }
  const Tensor x = counting({3, 4});
  REQUIRE(values(gather(x, 0, ints({2, 1, 0}, {1, 3}))) == Doubles{8, 5, 2});  // smaller than x outside dim
  REQUIRE(values(gather(transpose(x, 0, 1), 0, ints({3, 0, 1}, {1, 3}))) == Doubles{3, 4, 9});
  REQUIRE(gather(x, 1, zeros({3, 0}, int32)).shape() == Shape{3, 0});
  REQUIRE(values(scatter_add(zeros({2, 0}, float64), 1, zeros({2, 0}, int64), 2)) == Doubles{0, 0, 0, 0});
  REQUIRE_THROWS_WITH(gather(x, 1, ints({0, 4, 0}, {3, 1})), contains_text("[gather]") && contains_text("index 4") &&
                                                                 contains_text("[0, 4)") &&
                                                                 contains_text("position 1"));
  REQUIRE_THROWS_AS(gather(x, 1, ints({0, -1, 0}, {3, 1})), IndexError);
  REQUIRE_THROWS_AS(gather(x, 1, ints({0, 0, 0, 0}, {4, 1})), ShapeError);
  REQUIRE_THROWS_AS(gather(x, 1, ints({0})), ShapeError);
  REQUIRE_THROWS_AS(gather(x, 1, zeros({3, 1}, float32)), DTypeError);
  REQUIRE_THROWS_AS(scatter_add(x, 1, zeros({3, 1}, int64), 4), ShapeError);
  REQUIRE_THROWS_AS(scatter_add(x, 1, full({3, 4}, 2, int64), 2), IndexError);
  check_gradients([](const Tensor& v) { return gather(v, 0, ints({1, 1, 0, 1}, {2, 2})); }, {2, 3});
  check_gradients([](const Tensor& v) { return scatter_add(v, 1, ints({1, 1, 0, 1, 4, 0}, {2, 3}), 5); }, {2, 3});
}

TEST_CASE("index_select takes rows, wraps negatives, and sums gradients of repeated rows", "[index]") {
  for (DType dtype : kDTypes) {
    const Tensor x = counting({3, 2}, dtype);
    const Doubles v = values(x);
    REQUIRE(values(index_select(x, 0, ints({2, -3, 2}))) == Doubles{v[4], v[5], v[0], v[1], v[4], v[5]});
    REQUIRE(values(index_select(x, 1, copy_as(ints({1}), uint8))) == Doubles{v[1], v[3], v[5]});
  }
  const Tensor x = counting({3, 2});
  REQUIRE(index_select(x, 0, zeros({0}, int64)).shape() == Shape{0, 2});
  REQUIRE_THROWS_WITH(index_select(x, 0, ints({0, 3})),
                      contains_text("[index_select]") && contains_text("index 3") && contains_text("[-3, 3)"));
  REQUIRE_THROWS_AS(index_select(x, 0, ints({-4})), IndexError);
  REQUIRE_THROWS_AS(index_select(zeros({0, 2}), 0, ints({0})), IndexError);
  check_gradients([](const Tensor& v) { return index_select(v, 0, ints({1, -1, 1})); }, {3, 2});
  check_gradients([](const Tensor& v) { return index_select(transpose(v, 0, 1), 1, ints({1, -1, 1})); }, {3, 2});
}

TEST_CASE("16-bit scatter_add accumulates in float32", "[index]") {
  // 4096 ones: in bfloat16 a running sum would stop at 256, in float16 at 2048.
  for (DType dtype : {float16, bfloat16}) {
    const Tensor total = scatter_add(ones({4096, 3}, dtype), 0, zeros({4096, 3}, int64), 2);
    REQUIRE(values(total) == Doubles{4096, 4096, 4096, 0, 0, 0});
  }
}

TEST_CASE("scatter_add and gather give the same bits for any number of threads", "[index]") {
  const Tensor src = sample({500, 200}, 1, float32);
  std::vector<int64_t> where_to(500 * 200);
  for (size_t i = 0; i < where_to.size(); ++i) where_to[i] = static_cast<int64_t>(i * 7919 % 50);
  const Tensor places = from_vector(where_to, {500, 200});
  support::require_same_bits([&] {
    const Tensor out = scatter_add(src, 0, places, 50);
    return std::vector<Tensor>{out, scatter_add(src, 1, places, 60), gather(out, 0, places),
                               scatter_add(copy_as(src, bfloat16), 0, places, 50)};
  });
}

TEST_CASE("one_hot rows, of every dtype; a label outside raises", "[index]") {
  for (DType dtype : kDTypes) {
    const Tensor y = one_hot(copy_as(ints({1, 0, 2}, {3}), int16), 3, dtype);
    REQUIRE(y.dtype() == dtype);
    REQUIRE(values(y) == Doubles{0, 1, 0, 1, 0, 0, 0, 0, 1});
  }
  REQUIRE(one_hot(zeros({2, 0}, int64), 4).shape() == Shape{2, 0, 4});
  REQUIRE_THROWS_WITH(one_hot(ints({0, 3}), 3), contains_text("label 3") && contains_text("[0, 3)"));
  REQUIRE_THROWS_AS(one_hot(ints({-1}), 3), IndexError);
  REQUIRE_THROWS_AS(one_hot(zeros({2}), 3), DTypeError);
}

TEST_CASE("pad: constant, reflect, replicate, circular, in any dims", "[index]") {
  const Tensor x = counting({4});
  REQUIRE(values(pad(x, {2, 1}, "constant", 9)) == Doubles{9, 9, 0, 1, 2, 3, 9});
  REQUIRE(values(pad(x, {-1, -2})) == Doubles{1});
  REQUIRE(values(pad(x, {-1, 1}, "constant", 7)) == Doubles{1, 2, 3, 7});
  REQUIRE(values(pad(x, {-6, 4}, "constant", 7)) == Doubles{7, 7});
  REQUIRE(values(pad(x, {3, 3}, "reflect")) == Doubles{3, 2, 1, 0, 1, 2, 3, 2, 1, 0});
  REQUIRE(values(pad(x, {2, 3}, "replicate")) == Doubles{0, 0, 0, 1, 2, 3, 3, 3, 3});
  REQUIRE(values(pad(x, {4, 2}, "circular")) == Doubles{0, 1, 2, 3, 0, 1, 2, 3, 0, 1});
  const Tensor m = counting({2, 2});
  REQUIRE(values(pad(m, {0, 1, 1, 0}, "constant", 5)) == Doubles{5, 5, 5, 0, 1, 5, 2, 3, 5});
  REQUIRE(values(pad(m, {1, 0, 0, 1}, "reflect")) == Doubles{1, 0, 1, 3, 2, 3, 1, 0, 1});
  REQUIRE(pad(zeros({0, 2}), {1, 1}).shape() == Shape{0, 4});
  REQUIRE(values(pad(zeros({0}, float64), {1, 1}, "constant", 3)) == Doubles{3, 3});
  for (DType dtype : kDTypes) {
    const Tensor y = pad(ones({1}, dtype), {1, 0}, "constant", 1);
    REQUIRE(y.dtype() == dtype);
    REQUIRE(values(y) == Doubles{1, 1});
  }
  REQUIRE_THROWS_AS(pad(x, {4, 0}, "reflect"), ShapeError);
  REQUIRE_THROWS_AS(pad(x, {5, 0}, "circular"), ShapeError);
  REQUIRE_THROWS_AS(pad(zeros({0}), {1, 0}, "replicate"), ShapeError);
  REQUIRE_THROWS_AS(pad(x, {-3, -2}), ShapeError);
  REQUIRE_THROWS_AS(pad(x, {1}), ShapeError);
  REQUIRE_THROWS_AS(pad(x, {1, 1, 1, 1}), ShapeError);
  REQUIRE_THROWS_WITH(pad(x, {1, 1}, "reflct"), contains_text("'reflect'"));
  for (const char* mode : {"constant", "reflect", "replicate", "circular"}) {
    check_gradients([&](const Tensor& v) { return pad(v, {2, 1, 1, 0}, mode, 3); }, {2, 3, 2, 3});
  }
  check_gradients([](const Tensor& v) { return pad(v, {-1, 1, 2, -1}); }, {2, 3});
}
