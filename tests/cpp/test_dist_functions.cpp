// Gradients of collective functions against numbers: the sum of the losses of all ranks, each input changed on its
// rank. Main entry: the test cases.
#include <anello/autograd/engine.h>
#include <anello/autograd/functions.h>
#include <anello/dist/functions.h>

#include <functional>

#include "ranks.h"
#include "support.h"

using namespace anello;
using dist::ReduceOp;
using support::CommunicatorPtr;
using support::on_ranks;
using support::sample;

namespace {

using Function = std::function<Tensor(dist::Communicator&, const Tensor&)>;
using Rows = std::function<int64_t(int)>;

Tensor input(int rank, const Rows& rows) { return sample({rows(rank), 2}, 100 + static_cast<uint64_t>(rank)); }
/// A loss that weights every element of y differently, on every rank.
Tensor loss_of(const Tensor& y, int rank) {
  return sum(square(y) * sample(y.shape(), 200 + static_cast<uint64_t>(rank)));
}

/// The sum of the losses with element `at` of rank `changed`'s input moved by `step`.
double total_loss(int size, const Function& f, const Rows& rows, int changed, int64_t at, double step) {
  const auto losses = on_ranks(size, [&](const CommunicatorPtr& c) {
    const Tensor x = input(c->rank(), rows);
    if (c->rank() == changed) x.data<double>()[at] += step;
    return loss_of(f(*c, x), c->rank()).item<double>();
  });
  double total = 0;
  for (double loss : losses) total += loss;
  return total;
}

void check_gradient(int size, const Function& f, const Rows& rows) {
  const auto gradients = on_ranks(size, [&](const CommunicatorPtr& c) {
    const Tensor x = input(c->rank(), rows).set_requires_grad();
    loss_of(f(*c, x), c->rank()).backward();
    return x.grad().defined() ? support::values(x.grad()) : std::vector<double>(static_cast<size_t>(x.numel()));
  });
  for (int rank = 0; rank < size; ++rank)
    for (int64_t at = 0; at < std::min<int64_t>(2 * rows(rank), 4); ++at) {
      const double h = 1e-5;
      const double slope = (total_loss(size, f, rows, rank, at, h) - total_loss(size, f, rows, rank, at, -h)) / (2 * h);
      INFO(size << " ranks, element " << at << " of rank " << rank);
      REQUIRE(gradients[static_cast<size_t>(rank)][static_cast<size_t>(at)] ==
              Approx(slope).epsilon(1e-6).margin(1e-6));
    }
}

const Rows kEven = [](int) { return 6; };

}  // namespace

TEST_CASE("gradients of collective functions") {
  for (int size : {1, 2, 3}) {
    for (ReduceOp op : {ReduceOp::sum, ReduceOp::average, ReduceOp::min, ReduceOp::max})
      check_gradient(
          size, [op](dist::Communicator& c, const Tensor& x) { return dist::all_reduce(c, x, op, "x"); }, kEven);
    check_gradient(
        size, [](dist::Communicator& c, const Tensor& x) { return dist::all_gather(c, x); }, kEven);
    check_gradient(
        size, [](dist::Communicator& c, const Tensor& x) { return dist::all_gather(c, x, "rows"); },
        [](int rank) { return rank + 1; });
    check_gradient(
        size, [size](dist::Communicator& c, const Tensor& x) { return dist::broadcast(c, x, size - 1); }, kEven);
    for (ReduceOp op : {ReduceOp::sum, ReduceOp::average})
      for (int64_t rows : {6, 5})
        check_gradient(
            size, [op](dist::Communicator& c, const Tensor& x) { return dist::reduce_scatter(c, x, op); },
            [rows](int) { return rows; });
    check_gradient(
        size, [](dist::Communicator& c, const Tensor& x) { return dist::all_to_all(c, x); }, kEven);
    // Rank r sends r + d rows to rank d.
    check_gradient(
        size,
        [size](dist::Communicator& c, const Tensor& x) {
          std::vector<int64_t> counts;
          for (int d = 0; d < size; ++d) counts.push_back(c.rank() + d);
          return dist::all_to_all(c, x, counts, "uneven");
        },
        [size](int rank) {
          int64_t rows = 0;
          for (int d = 0; d < size; ++d) rows += rank + d;
          return rows;
        });
  }
}

TEST_CASE("ties of max share the gradient, and a product has none") {
  const auto results = on_ranks(2, [](const CommunicatorPtr& c) {
    const Tensor x = from_vector(std::vector<double>{1, c->rank() == 0 ? 2.0 : 1.0}).set_requires_grad();
    sum(dist::all_reduce(*c, x, ReduceOp::max)).backward();
    std::string error;
    try {
      dist::all_reduce(*c, x, ReduceOp::product);
    } catch (const Error& e) {
      error = e.what();
    }
    const Tensor y = dist::all_reduce(*c, x.detach(), ReduceOp::product);
    return std::make_tuple(support::values(x.grad()), error, support::values(y));
  });
  REQUIRE(std::get<0>(results[0]) == std::vector<double>{1, 2});
  REQUIRE(std::get<0>(results[1]) == std::vector<double>{1, 0});
  for (const auto& [g, error, y] : results) {
    REQUIRE_THAT(error, contains_text("no gradient"));
    REQUIRE(y == std::vector<double>{1, 2});
  }
}

TEST_CASE("collective functions can be differentiated twice") {
  const auto results = on_ranks(2, [](const CommunicatorPtr& c) {
    const Tensor x = sample({4}, static_cast<uint64_t>(c->rank())).set_requires_grad();
    const Tensor y = dist::all_reduce(*c, x * x * x);
    const Tensor slope = grad({sum(y)}, {x}, {}, false, true)[0];  // 2 * 3 x^2: both ranks' losses count
    sum(slope).backward();
    return std::make_pair(support::values(x), support::values(x.grad()));
  });
  for (const auto& [x, g] : results)
    for (size_t i = 0; i < 4; ++i) REQUIRE(g[i] == Approx(12 * x[i]));
}
