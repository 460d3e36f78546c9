// DataParallel over ranks that are threads: the gradients of N ranks are those of one process with all their samples.
// Main entry: the test cases.
#include <anello/autograd/functions.h>
#include <anello/autograd/grad_mode.h>
#include <anello/dist/data_parallel.h>
#include <anello/layers/linear.h>
#include <anello/optim/sgd.h>

#include <chrono>
#include <cmath>
#include <limits>
#include <set>

#include "ranks.h"
#include "support.h"

using namespace anello;
using dist::Compression;
using dist::DataParallel;
using dist::DataParallelOptions;
using dist::GradReduction;
using support::CommunicatorPtr;
using support::on_ranks;
using support::sample;

namespace {

/// y = x w1 + ... with a head that may be left out, and parameters that become ready in another order than they were
/// registered in.
struct Net : nn::Module {
  Tensor late, early, head;
  nn::Child<nn::Linear> mixed;
  bool with_head = true;
  explicit Net(uint64_t seed, DType dtype = float64) : mixed(add<nn::Linear>("mixed", 5, 5)) {
    register_parameter("late", late, sample({5, 3}, seed, float64, -1, 1));
    register_parameter("early", early, sample({4, 5}, seed + 1, float64, -1, 1));
    register_parameter("head", head, sample({3}, seed + 2, float64, -1, 1));
    copy_into(mixed->weight, sample({5, 5}, seed + 3, float64, -1, 1));
    copy_into(mixed->bias, sample({5}, seed + 4, float64, -1, 1));
    to(dtype);
  }
  Tensor forward(const Tensor& x) override {
    const Tensor y = matmul(mixed(tanh(matmul(x, early))), late);
    return with_head ? y * head : y;
  }
};

DataParallelOptions options_for(const CommunicatorPtr& communicator) {
  DataParallelOptions options;
  options.communicator = communicator;
  options.buckets.first_bytes = options.buckets.bytes = 64;  // a bucket for each parameter
  return options;
}

using Values = std::vector<std::vector<double>>;
Values gradients(const nn::Module& module) {
  Values all;
  for (const Tensor& p : module.parameters())
    all.push_back(p.grad().defined() ? support::values(p.grad()) : std::vector<double>());
  return all;
}
Values parameters(const nn::Module& module) {
  Values all;
  for (const Tensor& p : module.parameters()) all.push_back(support::values(p));
  return all;
}
void require_close(const Values& a, const Values& b, double allowed) {
  REQUIRE(a.size() == b.size());
  for (size_t i = 0; i < a.size(); ++i) support::require_close(a[i], b[i], allowed);
}
Tensor rows(const Tensor& x, int64_t begin, int64_t end) { return slice(x, 0, begin, end); }
Tensor loss_of(const Tensor& y) { return mean(square(y)); }

/// The gradients of one process over all of x.
Values expected(const Tensor& x, uint64_t seed = 1) {
  Net net(seed);
  loss_of(net.forward(x)).backward();
  return gradients(net);
}

/// A parameter whose gradient is what the input says.
struct Weight : nn::Module {
  Tensor w, other;
  explicit Weight(DType dtype = float32, int64_t size = 1) {
    register_parameter("w", w, zeros({size}, dtype));
    register_parameter("other", other, zeros({size}, dtype));
  }
  Tensor forward(const Tensor& x) override { return x * w; }
};

}  // namespace

TEST_CASE("gradients of 1, 2, 3 and 4 ranks are those of one process, in step 1 and in the order learnt from it") {
  for (int size : {1, 2, 3, 4}) {
    const Tensor x = sample({12, 4}, 5);
    const Values wanted = expected(x);
    const auto results = on_ranks(size, [&](const CommunicatorPtr& c) {
      const auto net = std::make_shared<Net>(c->rank() == 0 ? 1 : 100);  // the others start elsewhere
      DataParallel model(net, options_for(c));
      const dist::Slice mine = dist::slice_of(12, c->rank(), size);
      std::vector<Values> all;
      for (int step = 0; step < 3; ++step) {
        net->zero_grad();
        loss_of(model(rows(x, mine.begin, mine.end))).backward();
        all.push_back(gradients(*net));
      }
      return all;
    });
    for (const auto& rank : results) {
      for (const Values& step : rank) require_close(step, wanted, 1e-12);
      REQUIRE(rank == results[0]);
    }
  }
}

TEST_CASE("ranks are weighted by their samples, and one without samples is left out even where it is NaN") {
  const std::vector<int64_t> counts{6, 4, 0};
  const std::vector<double> gradient{1, 2, std::nan("")};
  for (DType dtype : {float64, float32, bfloat16, float16}) {
    const auto results = on_ranks(3, [&](const CommunicatorPtr& c) {
      const auto rank = static_cast<size_t>(c->rank());
      const auto net = std::make_shared<Weight>(dtype);
      DataParallelOptions options = options_for(c);
      DataParallel model(net, options);
      std::vector<double> seen;
      for (int step = 0; step < 2; ++step) {
        net->zero_grad();
        // The loss is a mean over the rank's rows; without rows it is 0 / 0.
        const Tensor y = model(full({counts[rank], 1}, gradient[rank], dtype), counts[rank]);
        if (counts[rank] > 0)
          mean(y).backward();
        else
          sum(net->w * gradient[rank] + 0 * sum(y)).backward();
        seen.push_back(net->w.grad().item<double>());
      }
      return seen;
    });
    for (const auto& seen : results)
      for (double g : seen) REQUIRE(std::abs(g - 1.4) <= 1.4 * support::tolerance(dtype));
  }
}

TEST_CASE("sum adds the gradients of all samples, also on top of an earlier backward") {
  const auto results = on_ranks(3, [&](const CommunicatorPtr& c) {
    const auto net = std::make_shared<Weight>(float64);
    DataParallelOptions options = options_for(c);
    options.reduction = GradReduction::sum;
    DataParallel model(net, options);
    const Tensor x = full({2, 1}, c->rank() + 1.0, float64);
    sum(model(x)).backward();
    const double first = net->w.grad().item<double>();
    sum(model(x)).backward();
    return std::make_pair(first, net->w.grad().item<double>());
  });
  for (const auto& [first, second] : results) {
    REQUIRE(first == 12);
    REQUIRE(second == 24);
  }
}

TEST_CASE("mean on top of an earlier backward adds") {
  const auto results = on_ranks(2, [&](const CommunicatorPtr& c) {
    const auto net = std::make_shared<Weight>(float64);
    DataParallel model(net, options_for(c));
    for (int i = 0; i < 3; ++i) mean(model(full({2, 1}, c->rank() * 2.0, float64))).backward();
    return net->w.grad().item<double>();
  });
  for (double g : results) REQUIRE(g == 3);
}

TEST_CASE("a branch used on some ranks or steps only needs no flag, and one used nowhere keeps no gradient") {
  const auto results = on_ranks(3, [&](const CommunicatorPtr& c) {
    const auto net = std::make_shared<Net>(1);
    DataParallel model(net, options_for(c));
    const Tensor x = sample({3, 4}, 7);
    std::vector<Values> all;
    std::vector<std::vector<std::string>> unused;
    for (int step = 0; step < 4; ++step) {
      net->zero_grad();
      net->with_head = step % 2 == 1 && c->rank() == 1;
      loss_of(model(x)).backward();
      all.push_back(gradients(*net));
      unused.push_back(model.report().unused);
    }
    return std::make_pair(all, unused);
  });
  Net with(1), without(1);
  const Tensor x = sample({3, 4}, 7);
  loss_of(with.forward(x)).backward();
  without.with_head = false;
  loss_of(without.forward(x)).backward();
  const Values a = gradients(with), b = gradients(without);
  Values mixed = b;
  mixed[2] = a[2];
  for (size_t p = 0; p < a.size(); ++p)
    for (size_t i = 0; i < mixed[p].size(); ++i) mixed[p][i] = ((p == 2 ? 0 : 2 * b[p][i]) + a[p][i]) / 3;
  for (const auto& [all, unused] : results)
    for (size_t step = 0; step < 4; ++step) {
      require_close(all[step], step % 2 == 1 ? mixed : b, 1e-12);
      REQUIRE(unused[step] == (step % 2 == 1 ? std::vector<std::string>() : std::vector<std::string>{"head"}));
    }
}

TEST_CASE("a rank that uses nothing of the model in a step takes part") {
  const auto results = on_ranks(2, [&](const CommunicatorPtr& c) {
    const auto net = std::make_shared<Weight>(float64);
    DataParallel model(net, options_for(c));
    const Tensor elsewhere = zeros({1}, float64).set_requires_grad();
    const Tensor y = model(full({2, 1}, 3.0, float64));
    if (c->rank() == 0)
      mean(y).backward();
    else
      sum(elsewhere).backward();
    return net->w.grad().item<double>();
  });
  for (double g : results) REQUIRE(g == 1.5);
}

TEST_CASE("16-bit gradients are never rounded on the way: no overflow, tiny values survive") {
  for (DType dtype : {float16, bfloat16}) {
    const auto results = on_ranks(4, [&](const CommunicatorPtr& c) {
      const auto net = std::make_shared<Weight>(dtype, 3);
      DataParallel model(net, options_for(c));
      const double tiny = dtype == float16 ? std::ldexp(1, -24) : std::ldexp(1, -133);
      const Tensor x = copy_as(from_vector(std::vector<double>{60000, tiny, c->rank() + 1.0}), dtype);
      sum(model(x, 1)).backward();
      return support::values(net->w.grad());
    });
    const double tiny = dtype == float16 ? std::ldexp(1, -24) : std::ldexp(1, -133);
    for (const auto& g : results) {
      REQUIRE(g[0] == (dtype == float16 ? 60000 : 59904));
      REQUIRE(g[1] == tiny);
      REQUIRE(g[2] == 2.5);
    }
  }
}

TEST_CASE("a gradient that is not finite names rank and tensor, and all ranks skip the step together") {
  for (const auto nonfinite : {dist::NonFinite::skip, dist::NonFinite::raise, dist::NonFinite::keep}) {
    const auto results = on_ranks(3, [&](const CommunicatorPtr& c) {
      const auto net = std::make_shared<Weight>(float32);
      DataParallelOptions options = options_for(c);
      options.nonfinite = nonfinite;
      DataParallel model(net, options);
      std::string seen;
      try {
        sum(model(full({2, 1}, c->rank() == 1 ? std::numeric_limits<double>::infinity() : 1.0))).backward();
        seen = net->w.grad().defined() ? "gradient" : "none";
      } catch (const DistError& e) {
        seen = e.what();
      }
      for (const std::string& one : model.report().nonfinite) seen += ' ' + one;
      net->zero_grad();
      sum(model(full({2, 1}, 1.0))).backward();  // and goes on
      return std::make_pair(seen, net->w.grad().item<double>());
    });
    for (const auto& [seen, after] : results) {
      REQUIRE(after == 2);
      if (nonfinite == dist::NonFinite::skip) REQUIRE(seen == "none 'w' of rank 1");
      if (nonfinite == dist::NonFinite::keep) REQUIRE(seen == "gradient");
      if (nonfinite == dist::NonFinite::raise)
        REQUIRE_THAT(seen, contains_text("'w' of rank 1") && contains_text("Hint:"));
    }
  }
}

TEST_CASE("no_sync accumulates, and the next backward reduces the sum") {
  const Tensor x = sample({12, 4}, 5);
  const auto results = on_ranks(2, [&](const CommunicatorPtr& c) {
    const auto net = std::make_shared<Net>(1);
    DataParallel model(net, options_for(c));
    const int64_t begin = c->rank() * 6;
    for (int step = 0; step < 2; ++step) {
      net->zero_grad();
      for (int64_t part = 0; part < 3; ++part) {
        const Tensor y = rows(x, begin + 2 * part, begin + 2 * part + 2);
        if (part < 2) {
          const auto guard = model.no_sync();
          (loss_of(model(y)) / 3.0).backward();
        } else {
          net->with_head = step == 0;  // the head's gradient comes from before
          (loss_of(model(y)) / 3.0).backward();
          net->with_head = true;
        }
      }
    }
    return std::make_pair(gradients(*net), model.report());
  });
  Net net(1);
  for (int64_t part : {0, 1, 3, 4}) (loss_of(net.forward(rows(x, 2 * part, 2 * part + 2))) / 6.0).backward();
  net.with_head = false;
  for (int64_t part : {2, 5}) (loss_of(net.forward(rows(x, 2 * part, 2 * part + 2))) / 6.0).backward();
  for (const auto& [g, report] : results) {
    require_close(g, gradients(net), 1e-12);
    REQUIRE(report.samples == std::vector<int64_t>{6, 6});
    REQUIRE(report.step == 2);
  }
}

TEST_CASE("several forwards before one backward, forwards without one, and a graph used twice") {
  const Tensor x = sample({8, 4}, 5);
  const auto results = on_ranks(2, [&](const CommunicatorPtr& c) {
    const auto net = std::make_shared<Net>(1);
    DataParallel model(net, options_for(c));
    const int64_t begin = c->rank() * 4;
    std::vector<Values> all;
    if (c->rank() == 0) model(x);  // looked at on one rank, with no backward
    net->eval();
    const Tensor kept = model(rows(x, 0, c->rank() + 1));  // and kept: evaluation does not count
    net->train();
    const Tensor a = model(rows(x, begin, begin + 2)), b = model(rows(x, begin + 2, begin + 4));
    const Tensor loss = (loss_of(a) + loss_of(b)) / 2.0;
    loss.backward({}, true);
    all.push_back(gradients(*net));
    net->zero_grad();
    loss.backward();
    all.push_back(gradients(*net));
    return std::make_pair(all, model.report().samples);
  });
  const Values wanted = expected(x);
  for (const auto& [all, samples] : results) {
    REQUIRE(samples == std::vector<int64_t>{4, 4});
    for (const Values& g : all) require_close(g, wanted, 1e-12);
  }
}

TEST_CASE("two models in one step, as in a GAN") {
  const Tensor x = sample({8, 4}, 5);
  const auto train = [&](const CommunicatorPtr& c, int64_t begin, int64_t end) {
    const auto generator = std::make_shared<nn::Linear>(4, 4), critic = std::make_shared<nn::Linear>(4, 1);
    for (const auto& [net, seed] : {std::make_pair(generator, 3), std::make_pair(critic, 4)}) {
      net->to(float64);
      copy_into(net->weight, sample(net->weight.shape(), static_cast<uint64_t>(seed)));
      copy_into(net->bias, sample(net->bias.shape(), static_cast<uint64_t>(seed) + 9));
    }
    DataParallelOptions options;
    options.communicator = c;
    DataParallel g(generator, options), d(critic, options);
    optim::SGD for_g(generator->parameters(), {.lr = 0.1}), for_d(critic->parameters(), {.lr = 0.1});
    const Tensor real = rows(x, begin, end), noise = rows(x, begin, end) * 0.5;
    for (int step = 0; step < 4; ++step) {
      const Tensor fake = g(noise);
      for_d.zero_grad();
      (mean(square(d(real))) + mean(square(1.0 - d(fake.detach())))).backward();
      for_d.step();
      for_g.zero_grad();
      mean(square(d(fake))).backward();
      for_g.step();
    }
    return std::make_pair(parameters(*generator), parameters(*critic));
  };
  const auto alone = on_ranks(1, [&](const CommunicatorPtr& c) { return train(c, 0, 8); });
  const auto results =
      on_ranks(2, [&](const CommunicatorPtr& c) { return train(c, c->rank() * 4, c->rank() * 4 + 4); });
  for (const auto& [g, d] : results) {
    require_close(g, alone[0].first, 1e-12);
    require_close(d, alone[0].second, 1e-12);
  }
}

TEST_CASE("compressed transfers add in float32 and give all ranks the same bits") {
  for (const Compression compression : {Compression::bf16, Compression::fp16}) {
    const Tensor x = sample({12, 4}, 5, float32);
    const auto train = [&](const CommunicatorPtr& c, Compression how, bool even) {
      const auto net = std::make_shared<Net>(1, float32);
      DataParallelOptions options = options_for(c);
      options.buckets.compression = how;
      DataParallel model(net, options);
      const int64_t cut = even ? 6 : 4;
      std::vector<Values> all;
      for (int step = 0; step < 2; ++step) {
        net->zero_grad();
        loss_of(model(c->rank() == 0 ? rows(x, 0, cut) : rows(x, cut, 12))).backward();
        all.push_back(gradients(*net));
      }
      return all;
    };
    for (const bool even : {true, false}) {
      const auto plain = on_ranks(2, [&](const CommunicatorPtr& c) { return train(c, Compression::none, even); });
      const auto narrow = on_ranks(2, [&](const CommunicatorPtr& c) { return train(c, compression, even); });
      REQUIRE(narrow[0] == narrow[1]);
      REQUIRE(narrow[0] != plain[0]);
      for (size_t step = 0; step < 2; ++step)
        require_close(narrow[0][step], plain[0][step], compression == Compression::bf16 ? 8e-3 : 1e-3);
    }
  }
}

TEST_CASE("parameters have the same bits on all ranks at every step, in every dtype") {
  for (DType dtype : {float64, float32, bfloat16, float16})
    for (int size : {2, 3, 4}) {
      const Tensor x = sample({12, 4}, 5, dtype);
      const auto results = on_ranks(size, [&](const CommunicatorPtr& c) {
        const auto net = std::make_shared<Net>(static_cast<uint64_t>(c->rank()) + 1, dtype);
        DataParallelOptions options = options_for(c);
        options.check_every = 1;
        DataParallel model(net, options);
        optim::SGD optimizer(net->parameters(), {.lr = 0.05, .momentum = 0.9});
        std::vector<Values> all{parameters(*net)};
        for (int step = 0; step < 4; ++step) {
          optimizer.zero_grad();
          const dist::Slice mine = dist::slice_of(11 + step % 2, c->rank(), size);  // even and uneven
          loss_of(model(rows(x, mine.begin, mine.end))).backward();
          optimizer.step();
          all.push_back(parameters(*net));
        }
        return all;
      });
      for (const auto& rank : results) REQUIRE(rank == results[0]);
      REQUIRE(results[0][0] != results[0][4]);
    }
}
