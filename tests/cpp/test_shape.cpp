// Functions that move elements: values by index arithmetic, gradients by differences, views, errors.
// Main entry: tag [shape].
#include <anello/anello.h>

#include "support.h"

using namespace anello;
using support::leaf;
using support::require_close;
using support::sample;
using support::values;

namespace {

const std::vector<DType> kDTypes = {bool_, uint8, int8, int16, int32, int64, float16, bfloat16, float32, float64};

/// First and second order, weighted by values that differ from place to place.
void check_gradients(const std::function<Tensor(const Tensor&)>& f, const Shape& shape) {
  GradcheckOptions options;
  options.second_order = true;
  // Squared, so that the second derivative is not zero.
  REQUIRE(gradcheck([&](const std::vector<Tensor>& in) { return std::vector<Tensor>{square(f(in[0]))}; },
                    {leaf(shape, 5)}, options));
}

Tensor counting(const Shape& shape, DType dtype = float64) {
  return copy_as(as_strided(arange(0, numel(shape)), shape, contiguous_strides(shape), 0), dtype);
}

}  // namespace

TEST_CASE("reshape keeps the order, shares memory where it can, and infers one size", "[shape]") {
  const Tensor x = counting({2, 3, 4});
  const Tensor y = reshape(x, {4, -1});
  REQUIRE(y.shape() == Shape{4, 6});
  REQUIRE(y.storage() == x.storage());
  REQUIRE(values(y) == values(x));
  const Tensor t = transpose(x, 0, 2);
  const Tensor flat = reshape(t, {-1});
  REQUIRE_FALSE(flat.storage() == x.storage());
  REQUIRE(values(flat) == values(t));
  REQUIRE(reshape(zeros({0, 3}), {3, 0}).shape() == Shape{3, 0});
  REQUIRE(reshape(zeros({1}), {}).shape() == Shape{});
  REQUIRE_THROWS_WITH(reshape(x, {5, -1}),
                      contains_text("[reshape]") && contains_text("(2, 3, 4)") && contains_text("(5, -1)"));
  REQUIRE_THROWS_AS(reshape(x, {-1, -1}), ShapeError);
  REQUIRE_THROWS_AS(reshape(x, {-2, 12}), ShapeError);
  REQUIRE_THROWS_AS(reshape(zeros({0, 3}), {0, -1}), ShapeError);
  REQUIRE_THROWS_AS(reshape(x, {int64_t{1} << 62, 4, 6}), ShapeError);
  check_gradients([](const Tensor& v) { return reshape(transpose(v, 0, 1), {-1}); }, {2, 3});
}

TEST_CASE("flatten merges a range of dims", "[shape]") {
  const Tensor x = counting({2, 3, 4, 5});
  REQUIRE(flatten(x).shape() == Shape{120});
  REQUIRE(flatten(x, 1).shape() == Shape{2, 60});
  REQUIRE(flatten(x, 1, 2).shape() == Shape{2, 12, 5});
  REQUIRE(flatten(x, -1).shape() == x.shape());
  REQUIRE(flatten(full({}, 7.0)).shape() == Shape{1});
  REQUIRE_THROWS_AS(flatten(x, 2, 1), ShapeError);
}

TEST_CASE("permute, transpose, squeeze, unsqueeze are views in the named order", "[shape]") {
  const Tensor x = counting({2, 3, 4});
  const Tensor p = permute(x, {2, 0, -2});
  REQUIRE(p.shape() == Shape{4, 2, 3});
  REQUIRE(p.storage() == x.storage());
  const std::vector<double> got = values(p);
  for (int a = 0; a < 4; ++a)
    for (int b = 0; b < 2; ++b)
      for (int c = 0; c < 3; ++c) REQUIRE(got[static_cast<size_t>((a * 2 + b) * 3 + c)] == (b * 3 + c) * 4 + a);
  REQUIRE(values(transpose(x, 0, -1)) == values(permute(x, {2, 1, 0})));
  REQUIRE(unsqueeze(x, -1).shape() == Shape{2, 3, 4, 1});
  REQUIRE(unsqueeze(x, 1).shape() == Shape{2, 1, 3, 4});
  REQUIRE(squeeze(unsqueeze(x, 1), 1).shape() == x.shape());
  REQUIRE(permute(full({}, 3.0), {}).shape() == Shape{});
  REQUIRE_THROWS_AS(permute(x, {0, 1}), ShapeError);
  REQUIRE_THROWS_WITH(permute(x, {0, 1, 1}), contains_text("listed twice"));
  REQUIRE_THROWS_AS(permute(x, {0, 1, 3}), ShapeError);
  REQUIRE(squeeze(x, 0).shape() == x.shape());
  REQUIRE_THROWS_AS(squeeze(x, 3), ShapeError);
  REQUIRE_THROWS_AS(unsqueeze(x, 4), ShapeError);
  check_gradients([](const Tensor& v) { return permute(v, {2, 0, 1}); }, {2, 3, 2});
  check_gradients([](const Tensor& v) { return squeeze(unsqueeze(transpose(v, 0, 1), 1), 1); }, {2, 3});
}

TEST_CASE("broadcast_to repeats without a copy, and its gradient is summed back", "[shape]") {
  const Tensor x = counting({3, 1});
  const Tensor y = broadcast_to(x, {2, 3, 2});
  REQUIRE(y.storage() == x.storage());
  REQUIRE(values(y) == std::vector<double>{0, 0, 1, 1, 2, 2, 0, 0, 1, 1, 2, 2});
  REQUIRE_THROWS_AS(broadcast_to(x, {2, 2}), ShapeError);
  REQUIRE(broadcast_to(zeros({0, 1}), {2, 0, 3}).shape() == Shape{2, 0, 3});
  check_gradients([](const Tensor& v) { return broadcast_to(v, {2, 3, 2}); }, {3, 1});
}

TEST_CASE("slice and select follow Python's rules", "[shape]") {
  const Tensor x = counting({10});
  const auto part = [&](int64_t start, int64_t stop, int64_t step = 1) {
    return values(slice(x, 0, start, stop, step));
  };
  REQUIRE(part(2, 5) == std::vector<double>{2, 3, 4});
  REQUIRE(part(-3, 100) == std::vector<double>{7, 8, 9});
  REQUIRE(part(-100, 2) == std::vector<double>{0, 1});
  REQUIRE(part(5, 2).empty());
  REQUIRE(part(10, 12).empty());
  REQUIRE(part(1, 9, 3) == std::vector<double>{1, 4, 7});
  REQUIRE(part(1, 8, 3) == std::vector<double>{1, 4, 7});
  REQUIRE(part(0, 10, 100) == std::vector<double>{0});
  REQUIRE_THROWS_AS(slice(x, 0, 0, 5, 0), ValueError);
  REQUIRE_THROWS_WITH(slice(x, 0, 5, 0, -1), contains_text("flip"));
  const Tensor m = counting({3, 4});
  REQUIRE(values(select(m, 0, -1)) == std::vector<double>{8, 9, 10, 11});
  REQUIRE(values(select(m, 1, 2)) == std::vector<double>{2, 6, 10});
  REQUIRE(select(m, 1, 2).storage() == m.storage());
  REQUIRE_THROWS_AS(select(m, 0, 3), IndexError);
  REQUIRE_THROWS_WITH(select(m, 0, -4), contains_text("-4") && contains_text("[-3, 3)"));
  REQUIRE_THROWS_AS(select(full({}, 1.0), 0, 0), ShapeError);
  check_gradients([](const Tensor& v) { return slice(v, 1, 1, 6, 2); }, {2, 6});
  check_gradients([](const Tensor& v) { return select(v, -1, 1); }, {2, 3});
}

TEST_CASE("flip reverses the named dims, of every dtype", "[shape]") {
  for (DType dtype : kDTypes) {
    const Tensor x = counting({2, 3, 2}, dtype);
    const std::vector<double> before = values(x), after = values(flip(x, {0, -1}));
    for (int a = 0; a < 2; ++a)
      for (int b = 0; b < 3; ++b)
        for (int c = 0; c < 2; ++c)
          REQUIRE(after[static_cast<size_t>((a * 3 + b) * 2 + c)] ==
                  before[static_cast<size_t>(((1 - a) * 3 + b) * 2 + 1 - c)]);
  }
  REQUIRE(flip(zeros({0, 2}), {0}).shape() == Shape{0, 2});
  check_gradients([](const Tensor& v) { return flip(v, {1}); }, {2, 3});
}

TEST_CASE("cat and stack join, promote and split their gradients", "[shape]") {
  const Tensor a = counting({2, 1}), b = counting({2, 2});
  REQUIRE(values(cat({a, b}, 1)) == std::vector<double>{0, 0, 1, 1, 2, 3});
  REQUIRE(values(cat({a, a}, -2)) == std::vector<double>{0, 1, 0, 1});
  REQUIRE(cat({a, zeros({2, 0}, float64)}, 1).shape() == Shape{2, 1});
  REQUIRE(cat({ones({1}, int32), ones({1}, float16)}).dtype() == float16);
  REQUIRE(stack({a, a}, 1).shape() == Shape{2, 2, 1});
  REQUIRE(values(stack({a, a}, -1)) == std::vector<double>{0, 0, 1, 1});
  for (DType dtype : kDTypes) REQUIRE(values(cat({counting({3}, dtype), counting({2}, dtype)})).size() == 5);
  REQUIRE_THROWS_WITH(cat({a, zeros({3, 1}, float64)}, 1), contains_text("tensor 1") && contains_text("(3, 1)"));
  REQUIRE_THROWS_AS(cat({}), ValueError);
  REQUIRE_THROWS_AS(cat({full({}, 1.0)}), ShapeError);
  REQUIRE_THROWS_AS(stack({a, b}), ShapeError);
  GradcheckOptions options;
  options.second_order = true;
  REQUIRE(gradcheck(
      [](const std::vector<Tensor>& in) {
        return std::vector<Tensor>{square(cat({in[0], in[1], in[0]}, 1))};
      },
      {leaf({2, 1}, 1), leaf({2, 3}, 2)}, options));
  REQUIRE(gradcheck(
      [](const std::vector<Tensor>& in) {
        return std::vector<Tensor>{square(stack({in[0], in[1]}, 1))};
      },
      {leaf({2, 2}, 1), leaf({2, 2}, 2)}, options));
}

TEST_CASE("split and chunk are views whose gradients are joined", "[shape]") {
  const Tensor x = counting({5, 2});
  const std::vector<Tensor> parts = split(x, 2);
  REQUIRE(parts.size() == 3);
  REQUIRE(values(parts[1]) == std::vector<double>{4, 5, 6, 7});
  REQUIRE(values(parts[2]) == std::vector<double>{8, 9});
  REQUIRE(parts[1].storage() == x.storage());
  REQUIRE(chunk(x, 2).size() == 2);
  REQUIRE(chunk(x, 2)[1].shape() == Shape{2, 2});
  REQUIRE(chunk(x, 4).size() == 3);  // pieces of ceil(5 / 4), as PyTorch documents
  REQUIRE(split(zeros({0, 2}), 3).size() == 1);
  REQUIRE_THROWS_AS(split(x, 0), ValueError);
  REQUIRE_THROWS_AS(chunk(x, 0), ValueError);
  check_gradients(
      [](const Tensor& v) {
        const std::vector<Tensor> p = split(v, 2, 1);
        return p[0] * p[2];  // the middle part gets no gradient
      },
      {2, 6});
  // A piece whose base is changed by a recorded operation afterwards has an outdated history.
  const Tensor base = leaf({4}, 1) * 2.0;
  const std::vector<Tensor> pieces = split(base, 2);
  mul_(base, Scalar(3.0));
  REQUIRE_THROWS_AS(square(pieces[0]), Error);
}

TEST_CASE("clone, contiguous, cast and to", "[shape]") {
  const Tensor x = counting({2, 3}), t = transpose(x, 0, 1);
  REQUIRE_FALSE(clone(x).storage() == x.storage());
  REQUIRE(contiguous(x).is(x));
  REQUIRE(contiguous(t).is_contiguous());
  REQUIRE(values(contiguous(t)) == values(t));
  REQUIRE(cast(x, float64).is(x));
  REQUIRE(cast(x, int32).dtype() == int32);
  REQUIRE(to(x, cpu).is(x));
  const Tensor v = sample({3}, 1, float32).set_requires_grad();
  REQUIRE_FALSE(cast(v, int64).requires_grad());
  sum(cast(v, float64) * 3.0).backward();
  REQUIRE(v.grad().dtype() == float32);
  REQUIRE(values(v.grad()) == std::vector<double>{3, 3, 3});
  check_gradients([](const Tensor& u) { return contiguous(transpose(clone(u), 0, 1)); }, {2, 3});
}
