// What goes wrong between ranks in training, and loops of different lengths.
// Main entry: the test cases.
#include <anello/autograd/engine.h>
#include <anello/autograd/functions.h>
#include <anello/autograd/grad_mode.h>
#include <anello/autograd/hooks.h>
#include <anello/autograd/node.h>
#include <anello/core/random.h>
#include <anello/dist/data_parallel.h>
#include <anello/dist/parameter_check.h>
#include <anello/dist/scaling.h>
#include <anello/dist/sync_batch_norm.h>
#include <anello/layers/container.h>
#include <anello/layers/linear.h>
#include <anello/optim/sgd.h>

#include <algorithm>
#include <chrono>
#include <set>

#include "ranks.h"
#include "support.h"

using namespace anello;
using dist::DataParallel;
using dist::DataParallelOptions;
using support::CommunicatorPtr;
using support::on_ranks;
using support::run_ranks;
using support::sample;

namespace {

std::shared_ptr<nn::Linear> linear(uint64_t seed, int64_t in = 4, int64_t out = 3) {
  const auto net = std::make_shared<nn::Linear>(in, out);
  net->to(float64);
  copy_into(net->weight, sample({out, in}, seed));
  copy_into(net->bias, sample({out}, seed + 1));
  return net;
}

DataParallelOptions options_for(const CommunicatorPtr& communicator) {
  DataParallelOptions options;
  options.communicator = communicator;
  return options;
}

/// What each rank raised, "" if nothing, and the seconds it took.
template <class F>
std::vector<std::string> errors_of(int size, const F& f) {
  const auto start = std::chrono::steady_clock::now();
  const auto errors = on_ranks(size, [&](const CommunicatorPtr& c) -> std::string {
    try {
      f(c);
    } catch (const std::exception& e) {
      return e.what();
    }
    return "";
  });
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  REQUIRE(took.count() < 10);
  return errors;
}

Tensor failing(const Tensor& x) {
  return record("failing", {&x}, {}, x.detach(), [](Backward&) { fail<ValueError>("failing", "on purpose"); });
}

}  // namespace

TEST_CASE("models that differ between ranks are refused on all, naming rank and tensor") {
  for (const std::string& error : errors_of(3, [](const CommunicatorPtr& c) {
         const DataParallel model(linear(1, 4, c->rank() == 2 ? 5 : 3), options_for(c));
       }))
    REQUIRE_THAT(error,
                 contains_text("rank 2 has 'weight' (5, 4) float64") && contains_text("rank 0 has 'weight' (3, 4)"));
}

TEST_CASE("a model is wrapped once, and the wrapper takes its memory away again") {
  run_ranks(1, [](const CommunicatorPtr& c) {
    const auto net = linear(1);
    {
      DataParallel model(net, options_for(c));
      sum(model(sample({2, 4}, 1))).backward();
      bool raised = false;
      try {
        const DataParallel again(net, options_for(c));
      } catch (const Error&) {
        raised = true;
      }
      check<Error>(raised, "test", "a second wrapper was accepted");
      check<Error>(model.gradient_bytes() >= 15 * 8 && net->weight.grad().is(net->weight.grad_destination()), "test",
                   "gradients are not in the buckets");
    }
    check<Error>(!net->weight.grad_destination().defined() && net->weight.grad().defined(), "test",
                 "the destination stayed, or the gradient went");
    sum(net->forward(sample({2, 4}, 1))).backward();
  });
}

TEST_CASE("initial parameters and buffers are rank 0's") {
  const auto results = on_ranks(3, [](const CommunicatorPtr& c) {
    const auto net = std::make_shared<nn::Sequential>();
    net->append(linear(static_cast<uint64_t>(10 * c->rank())));
    net->append(std::make_shared<nn::BatchNorm1d>(3));
    fill(net->buffers()[0], c->rank() + 5);
    const DataParallel model(net, options_for(c));
    auto seen = support::values(net->parameters()[0]);
    seen.push_back(support::values(net->buffers()[0])[0]);
    return seen;
  });
  auto wanted = support::values(sample({3, 4}, 0));
  wanted.push_back(5);
  for (const auto& seen : results) REQUIRE(seen == wanted);
}

TEST_CASE("a rank whose parameters went another way is named, with the tensor, on every rank") {
  for (const std::string& error : errors_of(3, [](const CommunicatorPtr& c) {
         const auto net = linear(1);
         DataParallelOptions options = options_for(c);
         options.check_every = 3;
         DataParallel model(net, options);
         for (int step = 0; step < 6; ++step) {
           if (step == 1 && c->rank() == 1) net->bias.data<double>()[2] += 1e-12;
           sum(model(sample({2, 4}, 1))).backward();
         }
       }))
    REQUIRE_THAT(error, contains_text("'bias' of rank 1 differs from that of rank 0 after 3 steps"));
}

TEST_CASE("a backward that fails on one rank is told to all") {
  const auto errors = errors_of(3, [](const CommunicatorPtr& c) {
    const auto net = linear(1);
    DataParallel model(net, options_for(c));
    const Tensor y = model(sample({2, 4}, 1));
    sum(c->rank() == 1 ? failing(y) : y).backward();
  });
  REQUIRE_THAT(errors[1], contains_text("on purpose"));
  for (size_t r : {0, 2}) REQUIRE_THAT(errors[r], contains_text("on purpose") && contains_text("rank 1"));
}

TEST_CASE("recorded gradients and changed dtypes are refused") {
  for (const std::string& error : errors_of(1, [](const CommunicatorPtr& c) {
         DataParallel model(linear(1), options_for(c));
         sum(square(model(sample({2, 4}, 1)))).backward({}, false, true);
       }))
    REQUIRE_THAT(error, contains_text("create_graph"));
  for (const std::string& error : errors_of(1, [](const CommunicatorPtr& c) {
         const auto net = linear(1);
         DataParallel model(net, options_for(c));
         net->to(float32);
         sum(model(sample({2, 4}, 1, float32))).backward();
       }))
    REQUIRE_THAT(error, contains_text("is now float32") && contains_text("it was float64"));
}

TEST_CASE("second derivatives by grad() beside a backward") {
  const auto results = on_ranks(2, [](const CommunicatorPtr& c) {
    const auto net = linear(1, 4, 1);
    DataParallel model(net, options_for(c));
    const Tensor x = sample({2, 4}, 3).set_requires_grad();
    const Tensor y = sum(square(model(x)));
    const Tensor slope = grad({y}, {x}, {}, false, true)[0];
    sum(square(slope)).backward();
    return support::values(net->weight.grad());
  });
  const auto net = linear(1, 4, 1);
  const Tensor x = sample({2, 4}, 3).set_requires_grad();
  const Tensor slope = grad({sum(square(net->forward(x)))}, {x}, {}, false, true)[0];
  sum(square(slope)).backward();
  for (const auto& g : results) support::require_close(g, support::values(net->weight.grad()), 1e-12);
}

TEST_CASE("join: ranks with 5 and 7 steps, with and without the optimizer's step") {
  for (const bool with_step : {true, false}) {
    const auto train = [&](const CommunicatorPtr& c, int64_t steps, bool alone) {
      const auto net = linear(1);
      DataParallel model(net, options_for(c));
      optim::SGD optimizer(net->parameters(), {.lr = 0.1, .momentum = with_step ? 0.9 : 0.0});
      const auto update = [&] {
        optimizer.step();
        optimizer.zero_grad();
      };
      for (int64_t step = 0; step < steps; ++step) {
        const auto seed = static_cast<uint64_t>(step);
        const Tensor a = sample({3, 4}, 100 + seed), b = sample({5, 4}, 200 + seed);
        if (alone)
          mean(square(model(step < 5 ? cat({a, b}) : b))).backward();
        else
          mean(square(model(c->rank() == 0 ? a : b))).backward();
        update();
      }
      if (!alone) model.join(with_step ? update : std::function<void()>());
      auto seen = support::values(net->weight);
      const auto bias = support::values(net->bias);
      seen.insert(seen.end(), bias.begin(), bias.end());
      return seen;
    };
    const auto alone = on_ranks(1, [&](const CommunicatorPtr& c) { return train(c, 7, true); });
    const auto results = on_ranks(2, [&](const CommunicatorPtr& c) { return train(c, c->rank() == 0 ? 5 : 7, false); });
    REQUIRE(results[0] == results[1]);
    support::require_close(results[0], alone[0], 1e-12);
  }
}

TEST_CASE("join refuses a model whose forward is collective") {
  for (const std::string& error : errors_of(2, [](const CommunicatorPtr& c) {
         const auto net = std::make_shared<nn::Sequential>();
         net->append(std::make_shared<nn::BatchNorm1d>(3));
         dist::SyncBatchNorm::convert(*net, c);
         DataParallel model(net, options_for(c));
         model.join();
       }))
    REQUIRE_THAT(error, contains_text("'0' computes its statistics") && contains_text("Hint:"));
}

TEST_CASE("set_samples replaces the count, and impossible arguments are refused") {
  const auto results = on_ranks(2, [](const CommunicatorPtr& c) {
    const auto net = linear(1);
    DataParallel model(net, options_for(c));
    model.set_samples(c->rank() == 0 ? 30 : 10);
    sum(model(sample({2, 4}, 1))).backward();
    const auto first = model.report().samples;
    net->zero_grad();
    sum(model(sample({2, 4}, 1), 7)).backward();
    return std::make_pair(first, model.report().samples);
  });
  for (const auto& [first, second] : results) {
    REQUIRE(first == std::vector<int64_t>{30, 10});
    REQUIRE(second == std::vector<int64_t>{7, 7});
  }
  const auto errors = errors_of(1, [](const CommunicatorPtr& c) {
    DataParallel model(linear(1), options_for(c));
    model.set_samples(-1);
  });
  REQUIRE_THAT(errors[0], contains_text("samples is -1"));
}

TEST_CASE("the last layer's gradients have gone round before the first layer has its own") {
  const auto results = on_ranks(2, [](const CommunicatorPtr& c) {
    const auto net = std::make_shared<nn::Sequential>();
    net->append(linear(1, 4, 4));
    net->append(linear(2, 4, 4));
    DataParallelOptions options = options_for(c);
    options.buckets.first_bytes = options.buckets.bytes = 64;
    DataParallel model(net, options);
    const Tensor first = net->parameters()[0], last = net->parameters()[3];
    last.on_grad_ready([](const Tensor&) { std::this_thread::sleep_for(std::chrono::milliseconds(50)); });
    int reduced = 0;
    first.on_grad_ready([&](const Tensor&) {
      const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(5);
      // Gradients differ between ranks: none can compute the mean alone.
      while (std::chrono::steady_clock::now() < until && reduced == 0) reduced = last.grad().data<double>()[0] == 3;
    });
    sum(model(full({2, 4}, 1.0, float64)) * (c->rank() + 1.0)).backward();
    return reduced;
  });
  for (int reduced : results) REQUIRE(reduced == 1);
}

TEST_CASE("gradient memory is at most 1.05 times the parameters, and step 1 takes at most 1.5 times the median") {
  double best = 100;
  for (int attempt = 0; attempt < 6 && best > 1.5; ++attempt) {
    const auto results = on_ranks(2, [](const CommunicatorPtr& c) {
      const auto net = std::make_shared<nn::Sequential>();
      for (int i = 0; i < 6; ++i) net->append(std::make_shared<nn::Linear>(384, 384));
      DataParallel model(net, options_for(c));
      std::vector<double> seconds;
      const Tensor x = sample({64, 384}, 3, float32);
      model(x);  // the pool's threads and caches are not what is measured
      c->barrier();
      for (int step = 0; step < 9; ++step) {
        const auto start = std::chrono::steady_clock::now();
        net->zero_grad();
        mean(square(model(x))).backward();
        seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
      }
      std::set<const Storage*> storages;
      for (const Tensor& p : net->parameters()) storages.insert(p.grad().storage().get());
      const double first = seconds[0];
      std::nth_element(seconds.begin(), seconds.begin() + 4, seconds.end());
      const double bytes = static_cast<double>(net->num_parameters()) * 4;
      return std::make_tuple(first / seconds[4], static_cast<double>(model.gradient_bytes()) / bytes, storages.size());
    });
    double worst = 0;
    for (const auto& [ratio, memory, storages] : results) {
      worst = std::max(worst, ratio);
      REQUIRE(memory <= 1.05);
      REQUIRE(storages == 1);
    }
    best = std::min(best, worst);
  }
  REQUIRE(best <= 1.5);
}

TEST_CASE("checksums tell bits apart") {
  const Tensor x = sample({7, 5}, 1, float32), y = copy_as(x, float32);
  REQUIRE(dist::checksum(x) == dist::checksum(y));
  REQUIRE(dist::checksum(transpose(x, 0, 1)) == dist::checksum(contiguous(transpose(x, 0, 1))));
  std::set<uint64_t> seen{dist::checksum(x)};
  for (int64_t i = 0; i < 35; ++i) {
    const Tensor z = copy_as(x, float32);
    z.data<float>()[i] = -z.data<float>()[i];
    seen.insert(dist::checksum(z));
  }
  REQUIRE(seen.size() == 36);
}

TEST_CASE("dropout masks differ by key, and key 0 is that of one process") {
  const auto mask = [](uint64_t key) {
    manual_seed(5);
    set_dropout_key(key);
    const auto seen = support::values(dropout(ones({64}), 0.5));
    set_dropout_key(0);
    return seen;
  };
  REQUIRE(mask(0) == mask(0));
  REQUIRE(mask(0) != mask(1));
  REQUIRE(mask(1) != mask(2));
}

TEST_CASE("lr is scaled by the ranks and warmed up from that of one") {
  const auto net = linear(1);
  optim::SGD sgd(net->parameters(), {.lr = 0.1});
  optim::LambdaLR schedule(
      sgd, [](int64_t) { return 1.0; }, dist::scale_lr(sgd, 4, 10));
  REQUIRE(schedule.last_lr()[0] == Approx(0.1));
  for (int i = 0; i < 5; ++i) schedule.step();
  REQUIRE(schedule.last_lr()[0] == Approx(0.25));
  for (int i = 0; i < 5; ++i) schedule.step();
  REQUIRE(schedule.last_lr()[0] == Approx(0.4));
  optim::SGD other(net->parameters(), {.lr = 0.1});
  REQUIRE(dist::scale_lr(other, 4, 0, dist::LrScaling::sqrt).start_factor == 0.5);
  REQUIRE(other.param_groups()[0].options.at("lr") == Approx(0.2));
  REQUIRE_THROWS_WITH(dist::scale_lr(other, 0), contains_text("ranks is 0"));
}
