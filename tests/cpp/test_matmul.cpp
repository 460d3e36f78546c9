// Matrix products against the definition, over random sizes, layouts and every float dtype; gradients by differences.
// Main entry: tag [matmul].
#include "reference.h"

using namespace anello;
using namespace reference;

namespace {

std::vector<double> naive(const Tensor& a, const Tensor& b) {
  const int64_t m = a.shape()[0], k = a.shape()[1], n = b.shape()[1];
  const std::vector<double> left = doubles(a), right = doubles(b);
  std::vector<double> out(static_cast<size_t>(m * n));
  for (int64_t i = 0; i < m; ++i)
    for (int64_t t = 0; t < k; ++t)
      for (int64_t j = 0; j < n; ++j)
        out[static_cast<size_t>(i * n + j)] +=
            left[static_cast<size_t>(i * k + t)] * right[static_cast<size_t>(t * n + j)];
  return out;
}

/// A random m x n matrix: contiguous, transposed, or part of a larger one.
Tensor random_matrix(RandomSizes& random, int64_t m, int64_t n, DType dtype) {
  switch (random(0, 3)) {
    case 0:
      return random_tensor(random, {m, n}, dtype);
    case 1:
      return transpose(random_tensor(random, {n, m}, dtype), 0, 1);
    case 2:
      return slice(slice(random_tensor(random, {m + 3, n + 2}, dtype), 0, 2, m + 2), 1, 1, n + 1);
    default:
      return slice(random_tensor(random, {m, 2 * n}, dtype), 1, 0, 2 * n, 2);
  }
}

}  // namespace

TEST_CASE("matmul agrees with the definition", "[matmul]") {
  RandomSizes random(1);
  for (int i = 0; i < 200; ++i) {
    const int64_t m = random(1, random.chance(3) ? 210 : 30), n = random(1, random.chance(3) ? 300 : 40);
    const int64_t k = random.chance(5) ? random(500, 1300) : random(1, 60);
    const DType dtype = kFloats[i % 4];
    const Tensor a = random_matrix(random, m, k, dtype), b = random_matrix(random, k, n, dtype);
    INFO(m << " x " << k << " x " << n << " " << dtype << " strides " << a.strides() << " " << b.strides());
    const Tensor out = matmul(a, b);
    REQUIRE(out.dtype() == dtype);
    REQUIRE(out.shape() == Shape{m, n});
    require_close(out, naive(a, b), tolerance(dtype));
  }
}

TEST_CASE("matmul broadcasts batches", "[matmul]") {
  RandomSizes random(2);
  const auto check = [&](const Shape& a_shape, const Shape& b_shape, const Shape& expected) {
    const Tensor a = random_tensor(random, a_shape), b = random_tensor(random, b_shape), out = matmul(a, b);
    INFO(a_shape << " @ " << b_shape);
    REQUIRE(out.shape() == expected);
    // By definition: broadcast products of rows and columns, summed.
    const Tensor left = a.dim() == 1 ? reshape(a, {1, a.shape()[0]}) : a,
                 right = b.dim() == 1 ? reshape(b, {b.shape()[0], 1}) : b;
    const Tensor products = unsqueeze(left, -1) * unsqueeze(right, -3);
    require_close(out, doubles(sum(products, {-2})), 1e-12);
  };
  check({3}, {3}, {});
  check({4, 3}, {3}, {4});
  check({3}, {3, 5}, {5});
  check({2, 4, 3}, {3, 5}, {2, 4, 5});
  check({2, 4, 3}, {3}, {2, 4});
  check({4, 3}, {2, 3, 5}, {2, 4, 5});
  check({3}, {2, 3, 5}, {2, 5});
  check({2, 1, 4, 3}, {5, 3, 6}, {2, 5, 4, 6});
  check({2, 5, 4, 3}, {2, 1, 3, 6}, {2, 5, 4, 6});
  check({7, 2, 5, 4, 3}, {7, 1, 5, 3, 6}, {7, 2, 5, 4, 6});
  check({1, 4, 3}, {1, 3, 2}, {1, 4, 2});
  const Tensor a = permute(random_tensor(random, {3, 4, 2, 5}), {2, 0, 1, 3}), b = random_tensor(random, {2, 3, 5, 6});
  require_close(matmul(a, b), doubles(matmul(contiguous(a), b)), 1e-12);
}

TEST_CASE("matmul of nothing", "[matmul]") {
  REQUIRE(matmul(zeros({0, 3}), zeros({3, 4})).shape() == Shape{0, 4});
  REQUIRE(doubles(matmul(zeros({2, 0}), zeros({0, 2}))) == std::vector<double>(4, 0.0));
  REQUIRE(matmul(zeros({0, 2, 3}), zeros({3, 4})).shape() == Shape{0, 2, 4});
  REQUIRE(matmul(zeros({0, 2, 3}), zeros({0, 3, 4})).shape() == Shape{0, 2, 4});
  REQUIRE(doubles(linear(zeros({2, 0}), zeros({3, 0}), ones({3}))) == std::vector<double>(6, 1.0));
  const Tensor weight = ones({3, 2}).set_requires_grad();
  linear(zeros({0, 2}), weight).backward(zeros({0, 3}));
  REQUIRE(doubles(weight.grad()) == std::vector<double>(6, 0.0));
}

TEST_CASE("matmul gives the same bits for any number of threads", "[matmul]") {
  RandomSizes random(3);
  for (const auto& [m, k, n] : {std::array<int64_t, 3>{200, 700, 90}, {3, 900, 5000}, {10, 5000, 40}, {300, 20, 10}}) {
    const Tensor a = random_tensor(random, {m, k}, float32), b = random_tensor(random, {n, k}, float32);
    require_same_bits([&] { return linear(a, b); });
    const Tensor dy = random_tensor(random, {m, n}, float32);
    require_same_bits([&] { return matmul(transpose(dy, 0, 1), a); });
    require_same_bits([&] { return matmul(dy, b); });
  }
}

TEST_CASE("wrong arguments of matmul and linear name what is wrong", "[matmul]") {
  REQUIRE_THROWS_WITH(matmul(zeros({8, 3}), zeros({4, 2})),
                      "[matmul] inner sizes differ: (8, 3) @ (4, 2). Hint: transpose the second argument.");
  REQUIRE_THROWS_AS(matmul(zeros({}), zeros({2})), ShapeError);
  REQUIRE_THROWS_AS(matmul(zeros({2, 3, 4}), zeros({3, 4, 5})), ShapeError);
  REQUIRE_THROWS_AS(matmul(zeros({2, 2}, int64), zeros({2, 2})), DTypeError);
  REQUIRE_THROWS_WITH(linear(zeros({5, 6}), zeros({7, 4})),
                      contains_text("(5, 6)") && contains_text("(7, 4)") && contains_text("Hint:"));
  REQUIRE_THROWS_AS(linear(zeros({5, 4}), zeros({7, 4}), zeros({4})), ShapeError);
  REQUIRE_THROWS_AS(linear(zeros({5, 4}), zeros({4})), ShapeError);
}

TEST_CASE("mixed dtypes of matmul are promoted", "[matmul]") {
  REQUIRE(matmul(zeros({2, 2}, float16), zeros({2, 2}, bfloat16)).dtype() == float32);
  REQUIRE(matmul(zeros({2, 2}, float16), zeros({2, 2}, float64)).dtype() == float64);
}

TEST_CASE("16-bit products are accumulated in float32 and rounded once", "[matmul]") {
  // 4,096 products of 1 in 8-bit mantissas: added in bfloat16 the sum would stop at 256.
  for (const int64_t m : {1, 40})
    REQUIRE(doubles(matmul(ones({m, 4096}, bfloat16), ones({4096, 1}, bfloat16))) ==
            std::vector<double>(static_cast<size_t>(m), 4096.0));
}

TEST_CASE("gradients of matmul and linear to second order", "[matmul]") {
  RandomSizes random(4);
  const auto leaf = [&](const Shape& s) { return random_tensor(random, s).set_requires_grad(); };
  GradcheckOptions second;
  second.second_order = true;
  const auto product = [](const std::vector<Tensor>& t) { return std::vector<Tensor>{matmul(t[0], t[1])}; };
  const std::vector<std::pair<Shape, Shape>> shapes = {{{3}, {3}},
                                                       {{2, 3}, {3}},
                                                       {{3}, {3, 2}},
                                                       {{2, 3}, {3, 4}},
                                                       {{2, 2, 3}, {3}},
                                                       {{2, 2, 3}, {3, 2}},
                                                       {{2, 1, 2, 3}, {2, 3, 2}}};
  for (const auto& [a, b] : shapes) REQUIRE(gradcheck(product, {leaf(a), leaf(b)}, second));
  const auto layer = [](const std::vector<Tensor>& t) { return std::vector<Tensor>{linear(t[0], t[1], t[2])}; };
  REQUIRE(gradcheck(layer, {leaf({2, 3}), leaf({4, 3}), leaf({4})}, second));
  REQUIRE(gradcheck(layer, {leaf({2, 2, 3}), leaf({4, 3}), leaf({4})}, second));
  REQUIRE(gradcheck(layer, {leaf({3}), leaf({4, 3}), leaf({4})}, second));
}

TEST_CASE("gradients of linear go into their destinations", "[matmul]") {
  RandomSizes random(5);
  const Tensor x = random_tensor(random, {40, 9}, float32), dy = random_tensor(random, {40, 5}, float32);
  const Tensor weight = random_tensor(random, {5, 9}, float32).set_requires_grad();
  const Tensor bias = random_tensor(random, {5}, float32).set_requires_grad();
  linear(x, weight, bias).backward(dy);
  const std::vector<double> dw = doubles(weight.grad()), db = doubles(bias.grad());
  weight.zero_grad(), bias.zero_grad();
  const Tensor weight_place = zeros({5, 9}), bias_place = zeros({5});
  weight.set_grad_destination(weight_place), bias.set_grad_destination(bias_place);
  for (const double times : {1.0, 2.0}) {
    linear(x, weight, bias).backward(dy);
    std::vector<double> expected = dw;
    for (double& v : expected) v *= times;
    require_close(weight_place, expected, 1e-6);
  }
  std::vector<double> twice = db;
  for (double& v : twice) v *= 2;
  require_close(bias_place, twice, 1e-6);
}
