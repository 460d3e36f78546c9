// Statistics over all ranks equal those of one big batch, forward and backward, and so does a whole training run.
// Main entry: the test cases.
#include <anello/autograd/functions.h>
#include <anello/dist/data_parallel.h>
#include <anello/dist/sync_batch_norm.h>
#include <anello/layers/activation.h>
#include <anello/layers/container.h>
#include <anello/layers/conv.h>
#include <anello/layers/linear.h>
#include <anello/layers/pool.h>
#include <anello/optim/sgd.h>

#include "ranks.h"
#include "support.h"

using namespace anello;
using dist::DataParallel;
using dist::DataParallelOptions;
using support::CommunicatorPtr;
using support::on_ranks;
using support::sample;

namespace {

/// y, dx, dweight, dbias, running mean and variance of one training batch with the loss sum(y * g).
std::vector<Tensor> run(const Tensor& data, const Tensor& g, const std::function<Tensor(std::vector<Tensor>&)>& norm) {
  const DType wide = data.dtype() == float64 ? float64 : float32;
  const int64_t channels = data.shape().back();
  const Tensor x = copy_as(data, data.dtype()).set_requires_grad();
  const Tensor w = sample({channels}, 11, wide).set_requires_grad(),
               b = sample({channels}, 12, wide).set_requires_grad();
  std::vector<Tensor> arguments{x, w, b, zeros({channels}, wide), ones({channels}, wide)};
  const Tensor y = norm(arguments);
  sum(y * g).backward();
  return {y.detach(), x.grad(), w.grad(), b.grad(), arguments[3], arguments[4]};
}

}  // namespace

TEST_CASE("forward and backward over ranks equal one big batch, in every dtype, with uneven and empty parts") {
  for (DType dtype : {float64, float32, bfloat16, float16})
    for (const auto& cuts : std::vector<std::vector<int64_t>>{{0, 6}, {0, 3, 6}, {0, 1, 5, 6}, {0, 4, 4, 6}}) {
      const int size = static_cast<int>(cuts.size()) - 1;
      const Tensor x = copy_as(sample({6, 2, 3, 5}, 1) + 4.0, dtype), g = sample({6, 2, 3, 5}, 2, dtype);
      const auto big = run(x, g, [](std::vector<Tensor>& a) { return batch_norm(a[0], a[1], a[2], a[3], a[4], true); });
      const auto results = on_ranks(size, [&](const CommunicatorPtr& c) {
        const auto r = static_cast<size_t>(c->rank());
        return run(slice(x, 0, cuts[r], cuts[r + 1]), slice(g, 0, cuts[r], cuts[r + 1]),
                   [&](std::vector<Tensor>& a) { return dist::sync_batch_norm(*c, a[0], a[1], a[2], a[3], a[4]); });
      });
      const double allowed = dtype == float64 ? 1e-12 : dtype == float32 ? 1e-5 : support::tolerance(dtype);
      for (size_t part : {0, 1}) {
        std::vector<Tensor> parts;
        for (const auto& rank : results) parts.push_back(rank[part]);
        support::require_close(cat(parts), big[part], allowed);
      }
      for (size_t parameter : {2, 3}) {
        Tensor total = zeros_like(big[parameter]);
        for (const auto& rank : results) total = total + rank[parameter];
        support::require_close(total, big[parameter], allowed);
      }
      for (size_t running : {4, 5})
        for (const auto& rank : results) {
          support::require_close(rank[running], big[running], allowed);
          REQUIRE(support::values(rank[running]) == support::values(results[0][running]));
        }
    }
}

TEST_CASE("one value a channel over all ranks is refused, one a rank is not") {
  const auto with = [](int size, std::vector<int64_t> rows) {
    return on_ranks(size, [&](const CommunicatorPtr& c) -> std::string {
      try {
        const Tensor x = sample({rows[static_cast<size_t>(c->rank())], 3}, 1);
        dist::sync_batch_norm(*c, x, {}, {}, {}, {});
      } catch (const ShapeError& e) {
        return e.what();
      }
      return "";
    });
  };
  for (const std::string& error : with(2, {1, 0})) REQUIRE_THAT(error, contains_text("all ranks together have one"));
  for (const std::string& error : with(2, {1, 1})) REQUIRE(error.empty());
  for (const std::string& error : with(2, {0, 0})) REQUIRE(error.empty());
}

TEST_CASE("the layer: converted in place, batch statistics in training, running ones in evaluation") {
  const auto results = on_ranks(2, [](const CommunicatorPtr& c) {
    nn::Sequential net;
    net.append(std::make_shared<nn::BatchNorm2d>(3, nn::BatchNormOptions{.momentum = std::nullopt}));
    net.to(float64);
    const Tensor weight = net.parameters()[0];
    dist::SyncBatchNorm::convert(net, c);
    dist::SyncBatchNorm other(3, {.momentum = std::nullopt}, c);
    other.to(float64);
    const Tensor x = sample({4, 2, 2, 3}, 5);
    std::vector<Tensor> seen;
    for (int step = 0; step < 2; ++step) {
      const Tensor part = slice(x, 0, 2 * c->rank(), c->rank() == 0 ? 2 : 2 + step);  // rank 1 has nothing, then one
      seen = {net.forward(part), other(part)};
    }
    net.eval();
    check<Error>(weight.is(net.parameters()[0]), "test", "the parameter is another one");
    return std::vector<Tensor>{net.forward(x), net.buffers()[0], net.buffers()[2], other.running_mean, seen[1]};
  });
  nn::BatchNorm2d plain(3, {.momentum = std::nullopt});
  plain.to(float64);
  const Tensor x = sample({4, 2, 2, 3}, 5);
  plain(slice(x, 0, 0, 2));
  plain(slice(x, 0, 0, 3));
  plain.eval();
  for (const auto& rank : results) {
    support::require_close(rank[0], plain(x), 1e-12);
    support::require_close(rank[1], plain.running_mean, 1e-12);
    REQUIRE(rank[2].item<int64_t>() == 2);
    support::require_close(rank[3], plain.running_mean, 1e-12);
  }
}

namespace {

struct Run {
  std::vector<double> losses;
  std::vector<std::vector<double>> parameters;
};

/// 20 steps over the same global batches; `counts(step)` cuts each into the ranks' parts.
Run train(const CommunicatorPtr& c, bool even) {
  const auto net = std::make_shared<nn::Sequential>();
  net->append(std::make_shared<nn::Conv2d>(3, 6, 3, nn::Conv2dOptions{.padding = nn::IntPair(1), .bias = false}));
  net->append(std::make_shared<nn::BatchNorm2d>(6));
  net->append(std::make_shared<nn::ReLU>());
  net->append(std::make_shared<nn::Conv2d>(6, 8, 3, nn::Conv2dOptions{.stride = 2, .padding = nn::IntPair(1)}));
  net->append(std::make_shared<nn::BatchNorm2d>(8));
  net->append(std::make_shared<nn::ReLU>());
  net->append(std::make_shared<nn::GlobalAvgPool2d>());
  net->append(std::make_shared<nn::Linear>(8, 4));
  net->to(float64);
  uint64_t seed = 50;
  for (const Tensor& p : net->parameters())
    copy_into(p, sample(p.shape(), seed++, float64, p.dim() > 1 ? -0.4 : 0.5, p.dim() > 1 ? 0.4 : 1));
  dist::SyncBatchNorm::convert(*net, c);
  DataParallelOptions options;
  options.communicator = c;
  options.check_every = 1;
  options.buckets.first_bytes = 256;
  options.buckets.bytes = 1024;
  DataParallel model(net, options);
  optim::SGD optimizer(net->parameters(), {.lr = 0.05, .momentum = 0.9, .weight_decay = 1e-3});
  Run run;
  for (int step = 0; step < 20; ++step) {
    const Tensor x = sample({8, 6, 6, 3}, 1000 + static_cast<uint64_t>(step));
    const Tensor labels = from_vector(std::vector<int64_t>{0, 1, 2, 3, 0, 1, 2, 3});
    // Uneven: rank 0 takes 0 to 2 samples, the others share the rest.
    const int64_t first = even || c->size() == 1 ? 8 / c->size() : step % 3;
    const dist::Slice rest =
        c->size() == 1 ? dist::Slice{0, 0} : dist::slice_of(8 - first, c->rank() - 1, c->size() - 1);
    const int64_t begin = c->rank() == 0 ? 0 : first + rest.begin, end = c->rank() == 0 ? first : first + rest.end;
    optimizer.zero_grad();
    const Tensor loss = cross_entropy(model(slice(x, 0, begin, end)), slice(labels, 0, begin, end));
    loss.backward();
    optimizer.step();
    const Tensor total = full({1}, loss.item<double>() * static_cast<double>(end - begin) / 8, float64);
    c->all_reduce(total);
    run.losses.push_back(total.item<double>());
  }
  for (const Tensor& p : net->parameters()) run.parameters.push_back(support::values(p));
  for (const Tensor& b : net->buffers()) run.parameters.push_back(support::values(b));
  return run;
}

}  // namespace

TEST_CASE("losses of 1, 2, 3 and 4 ranks agree within 1e-8 over 20 steps, also with uneven batches") {
  const Run alone = on_ranks(1, [](const CommunicatorPtr& c) { return train(c, true); })[0];
  REQUIRE(alone.losses[19] < alone.losses[0]);
  for (int size : {2, 3, 4})
    for (bool even : {true, false}) {
      if (even && size == 3) continue;
      const auto results = on_ranks(size, [&](const CommunicatorPtr& c) { return train(c, even); });
      for (const Run& rank : results) {
        REQUIRE(rank.losses == results[0].losses);
        REQUIRE(rank.parameters == results[0].parameters);
      }
      for (size_t step = 0; step < 20; ++step) {
        INFO(size << " ranks, step " << step);
        REQUIRE(std::abs(results[0].losses[step] - alone.losses[step]) <= 1e-8);
      }
    }
}
