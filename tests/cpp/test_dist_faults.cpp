// What goes wrong between ranks: mismatches, absent ranks, aborts. Every rank raises, soon, and both sides are named.
// Main entry: tag [dist].
#include "dist_helpers.h"

#include <anello/core/tensor.h>

#include <chrono>
#include <mutex>

using namespace anello;
using namespace anello::dist;
using namespace dist_tests;

namespace {

CollectiveOptions named(const std::string& name) {
  CollectiveOptions options;
  options.name = name;
  return options;
}
void require_all(const std::vector<std::string>& errors, const std::vector<std::string>& parts) {
  for (size_t r = 0; r < errors.size(); ++r)
    for (const std::string& part : parts) {
      INFO("rank " << r << " of " << errors.size());
      REQUIRE_THAT(errors[r], contains_text(part));
    }
}
/// Runs f, then a barrier, which raises where f itself could end.
std::vector<std::string> faults(int size, const std::function<void(Communicator&)>& f, double timeout = 20) {
  const auto start = std::chrono::steady_clock::now();
  const auto errors = errors_of_ranks(
      size,
      [&](Communicator& c) {
        f(c);
        c.barrier();
      },
      timeout);
  REQUIRE(std::chrono::steady_clock::now() - start < std::chrono::seconds(15));
  return errors;
}

}  // namespace

TEST_CASE("another shape, dtype, op, root or scale on one rank is named on all", "[dist][faults]") {
  for (int size : {2, 3, 4, 5}) {
    const int odd = size - 1;
    require_all(faults(size,
                       [=](Communicator& c) {
                         c.all_reduce(zeros({c.rank() == odd ? 3 : 4}), ReduceOp::sum, named("fc.weight"));
                       }),
                {"[all_reduce]", "shape", "(3,)", "(4,)", "'fc.weight'", concat("rank ", odd)});
    require_all(faults(size, [=](Communicator& c) { c.all_reduce(zeros({5}, c.rank() == odd ? float64 : float32)); }),
                {"[all_reduce]", "dtype", "float64", "float32"});
    require_all(faults(size,
                       [=](Communicator& c) {
                         c.all_reduce(zeros({100000}), c.rank() == odd ? ReduceOp::max : ReduceOp::sum);
                       }),
                {"[all_reduce]", "op", "max", "sum"});
    require_all(faults(size, [=](Communicator& c) { c.broadcast(zeros({2}), c.rank() == odd ? 1 : 0); }),
                {"[broadcast]", "gave root "});
    require_all(faults(size,
                       [=](Communicator& c) {
                         CollectiveOptions options = named("g");
                         options.postscale = c.rank() == odd ? 0.5 : 1;
                         c.all_reduce(zeros({2}), ReduceOp::sum, options);
                       }),
                {"[all_reduce]", "postscale", "0.5", "'g'"});
    require_all(faults(size,
                       [=](Communicator& c) {
                         if (c.rank() == odd)
                           c.barrier();
                         else
                           c.all_reduce(zeros({2}));
                       }),
                {"barrier", "all_reduce", "same order"});
  }
}

TEST_CASE("named operations may start in any order", "[dist][faults]") {
  for (int size : kSizes)
    run_ranks(size, [](Communicator& c) {
      std::vector<Tensor> tensors;
      std::vector<Work> works;
      for (int i = 0; i < 20; ++i) tensors.push_back(full({i * 1000 + 1}, c.rank() + i, float32));
      for (int round = 0; round < 3; ++round) {
        for (int i = 0; i < 20; ++i) {
          const int k = (i * 7 + c.rank() * 5 + round) % 20;
          works.push_back(c.all_reduce_async(tensors[static_cast<size_t>(k)], ReduceOp::max, named(concat("t", k))));
        }
        for (const Work& work : works) work.wait();
      }
      for (int i = 0; i < 20; ++i)
        for (float v : tensors[static_cast<size_t>(i)].to_vector<float>())
          expect(v == static_cast<float>(c.size() - 1 + i), "the largest");
    });
}

TEST_CASE("a skipped or renamed operation is certain, and raised long before the timeout", "[dist][faults]") {
  for (int size : {2, 3, 4}) {
    require_all(faults(size,
                       [](Communicator& c) {
                         c.all_reduce(zeros({2}), ReduceOp::sum, named("same"));
                         c.all_reduce(zeros({2}), ReduceOp::sum, named(c.rank() == 1 ? "b" : "a"));
                       }),
                {"[all_reduce] '", "waits for rank", "Absent: ", "(last: all_reduce 'same'", "Hint:"});
  }
}

TEST_CASE("a rank that does not come is reported after the stall timeout, by all", "[dist][faults]") {
  for (int size : {2, 3, 4}) {
    const auto errors = faults(
        size,
        [](Communicator& c) {
          c.broadcast(zeros({2}), 0, named("x"));
          if (c.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(2500));
          c.all_reduce(zeros({3}), ReduceOp::sum, named("late"));
        },
        1.0);
    require_all(errors, {"[all_reduce] 'late' waits for rank 1 since 1.", "Absent: 1 (last: broadcast 'x'"});
  }
}

TEST_CASE("a slow rank is waited for", "[dist][faults]") {
  run_ranks(3, [](Communicator& c) {
    if (c.rank() == 2) std::this_thread::sleep_for(std::chrono::milliseconds(2500));
    const Tensor x = full({4}, 1.0);
    c.all_reduce(x, ReduceOp::sum, named("x"));
    expect(x.to_vector<float>()[0] == 3, "a sum of three");
  });
}

TEST_CASE("a rank that goes away is named", "[dist][faults]") {
  for (int size : {2, 3, 4}) {
    const auto errors = errors_of_ranks(size, [](Communicator& c) {
      if (c.rank() == 1) throw DistError("rank 1 ends");
      c.all_reduce(zeros({100000}));
    });
    for (size_t r = 0; r < errors.size(); ++r)
      if (r != 1) REQUIRE_THAT(errors[r], contains_text("rank 1 is gone"));
  }
}

TEST_CASE("abort raises on every rank, now and later", "[dist][faults]") {
  for (int size : {2, 3, 5}) {
    const auto errors = errors_of_ranks(size, [](Communicator& c) {
      std::string first;
      if (c.rank() == 0) c.abort("NaN in the loss");
      try {
        c.all_reduce(zeros({8}));
      } catch (const DistError& e) {
        first = e.what();
      }
      try {
        c.barrier();
      } catch (const DistError& e) {
        expect(first == e.what(), "the same error again");
        throw;
      }
    });
    require_all(errors, {"[abort] rank 0: NaN in the loss"});
  }
}

TEST_CASE("arguments without meaning are refused at once", "[dist][faults]") {
  run_ranks(1, [](Communicator& c) {
    REQUIRE_THROWS_WITH(c.all_reduce(zeros({2}, int32), ReduceOp::average), contains_text("average of int32"));
    REQUIRE_THROWS_WITH(c.all_reduce(zeros({2}, bool_)), contains_text("sum of bool") && contains_text("Hint:"));
    REQUIRE_THROWS_AS(c.broadcast(zeros({2}), 1), ValueError);
    REQUIRE_THROWS_AS(c.all_gather(zeros({})), ShapeError);
    REQUIRE_THROWS_WITH(c.all_to_all(zeros({3}), {1, 2}), contains_text("2 counts for 1 ranks"));
    REQUIRE_THROWS_AS(c.send(zeros({2}), 0), ValueError);
    REQUIRE_THROWS_WITH(c.all_reduce(expand_view(zeros({1}), {4})), contains_text("share memory"));
  });
}

TEST_CASE("groups of a split work beside one another", "[dist][faults]") {
  for (int size : kSizes)
    run_ranks(size, [](Communicator& c) {
      const auto half = c.split(c.rank() % 2, -c.rank());
      const auto none = c.split(c.rank() == 0 ? -1 : 5);
      expect((none == nullptr) == (c.rank() == 0), "no group for a negative color");
      expect(half->size() == (c.size() + 1 - c.rank() % 2) / 2, "my half's size");
      const Tensor x = full({3}, c.rank(), int64), y = full({3}, 1, int64);
      const Work all = c.all_reduce_async(y, ReduceOp::sum, {});
      half->all_reduce(x);
      all.wait();
      int64_t want = 0;
      for (int r = c.rank() % 2; r < c.size(); r += 2) want += r;
      expect(x.to_vector<int64_t>()[0] == want && y.to_vector<int64_t>()[0] == c.size(), "both sums");
      const std::vector<std::string> order = half->all_gather_bytes(std::to_string(c.rank()));
      expect(order.back() == std::to_string(c.rank() % 2), "the order of keys");
    });
}

TEST_CASE("hosts are counted", "[dist][faults]") {
  run_ranks(4,
            [](Communicator& c) {
              expect(c.hosts() == 2 && c.host() == c.rank() / 2, "two hosts");
              expect(c.local_size() == 2 && c.local_rank() == c.rank() % 2, "two ranks each");
            },
            {0, 0, 1, 1});
}

TEST_CASE("the world of one process starts, ends and starts again", "[dist][faults]") {
  for (int round = 0; round < 2; ++round) {
    const Tensor x = full({2}, 4.0);
    CollectiveOptions options;
    options.postscale = 0.5;
    const Work work = world()->all_reduce_async(x, ReduceOp::sum, options);
    bool called = false;
    work.then([&] { called = true; });
    REQUIRE(called);
    REQUIRE(work.test());
    REQUIRE(x.to_vector<float>()[0] == 2);
    REQUIRE(world()->size() == 1);
    shutdown();
  }
}
