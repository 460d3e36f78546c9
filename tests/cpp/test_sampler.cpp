// The order of an epoch and its division over ranks: permutations, disjoint and complete shards, resuming.
// Main entry: [loader].
#include "catch.h"

#include <anello/datasets/sampler.h>

#include <algorithm>
#include <numeric>
#include <set>

using namespace anello::data;

namespace {
using Indices = std::vector<int64_t>;

bool is_permutation_of_range(Indices v) {
  std::sort(v.begin(), v.end());
  for (size_t i = 0; i < v.size(); ++i)
    if (v[i] != static_cast<int64_t>(i)) return false;
  return true;
}

// Places of one rank from plan.start on, batch by batch.
std::vector<PlaceRange> ranges(const BatchPlan& plan) {
  std::vector<PlaceRange> out;
  for (int64_t k = 0; k < plan.batches(); ++k) out.push_back(plan.range(k));
  return out;
}

// Every place that the ranks see between start and count, with repetitions, sorted.
Indices seen(int64_t count, int64_t start, int64_t batch_size, int size, bool drop_last) {
  Indices places;
  for (int rank = 0; rank < size; ++rank)
    for (const PlaceRange r : ranges({count, start, batch_size, rank, size, drop_last}))
      for (int64_t p = r.begin; p < r.end; ++p) places.push_back(p);
  std::sort(places.begin(), places.end());
  return places;
}
}  // namespace

TEST_CASE("the order of an epoch is a permutation of (seed, epoch)", "[loader]") {
  for (const int64_t n : {0, 1, 2, 3, 10, 1000, 4097}) REQUIRE(is_permutation_of_range(epoch_order(n, true, 7, 3)));
  const Indices first = epoch_order(1000, true, 7, 0);
  REQUIRE(first == epoch_order(1000, true, 7, 0));
  REQUIRE(first != epoch_order(1000, true, 7, 1));
  REQUIRE(first != epoch_order(1000, true, 8, 0));
  Indices plain(1000);
  std::iota(plain.begin(), plain.end(), 0);
  REQUIRE(epoch_order(1000, false, 7, 1) == plain);
}

TEST_CASE("every place of the order is about equally likely for every sample", "[loader]") {
  constexpr int n = 8, epochs = 8000;
  int at[n][n] = {};
  for (uint64_t e = 0; e < epochs; ++e) {
    const Indices order = epoch_order(n, true, 1, e);
    for (int place = 0; place < n; ++place) ++at[order[static_cast<size_t>(place)]][place];
  }
  // Binomial with mean 1000 and standard deviation 30.
  for (const auto& row : at)
    for (const int hits : row) REQUIRE(std::abs(hits - epochs / n) < 180);
}

TEST_CASE("shards are disjoint and complete for any number of ranks", "[loader]") {
  for (const int size : {1, 2, 3, 4, 5, 8})
    for (const int64_t batch : {1, 3, 4})
      for (const int64_t count : {0, 1, 2, 7, 24, 25, 97}) {
        Indices all(static_cast<size_t>(count));
        std::iota(all.begin(), all.end(), 0);
        REQUIRE(seen(count, 0, batch, size, false) == all);
        all.resize(static_cast<size_t>(count / (batch * size) * batch * size));
        REQUIRE(seen(count, 0, batch, size, true) == all);
      }
}

TEST_CASE("ranks together see the global batches of one process", "[loader]") {
  const int64_t count = 50, batch = 4;
  const int size = 3;
  const BatchPlan one{count, 0, batch * size, 0, 1, false};
  for (int64_t k = 0; k < one.batches(); ++k) {
    std::set<int64_t> together;
    for (int rank = 0; rank < size; ++rank) {
      const BatchPlan mine{count, 0, batch, rank, size, false};
      if (k >= mine.batches()) continue;
      for (int64_t p = mine.range(k).begin; p < mine.range(k).end; ++p) together.insert(p);
    }
    REQUIRE(static_cast<int64_t>(together.size()) == one.range(k).end - one.range(k).begin);
    REQUIRE(*together.begin() == one.range(k).begin);
  }
}

TEST_CASE("the rest of an epoch is divided evenly, the first ranks first", "[loader]") {
  // 22 = one full global batch of 3 x 6, and 4 more: 2, 1, 1.
  REQUIRE(ranges({22, 0, 6, 0, 3, false}) == std::vector<PlaceRange>{{0, 6}, {18, 20}});
  REQUIRE(ranges({22, 0, 6, 1, 3, false}) == std::vector<PlaceRange>{{6, 12}, {20, 21}});
  REQUIRE(ranges({22, 0, 6, 2, 3, false}) == std::vector<PlaceRange>{{12, 18}, {21, 22}});
  // Fewer samples than ranks: the others have an empty batch, and so as many steps.
  REQUIRE(ranges({2, 0, 6, 1, 3, false}) == std::vector<PlaceRange>{{1, 2}});
  REQUIRE(ranges({2, 0, 6, 2, 3, false}) == std::vector<PlaceRange>{{2, 2}});
}

TEST_CASE("an epoch goes on with another number of ranks where it stopped", "[loader]") {
  const int64_t count = 101, batch = 4;
  const BatchPlan before{count, 0, batch, 0, 3, false};
  const int64_t position = before.position_after(4);
  REQUIRE(position == 5 * 3 * batch);
  for (const int size : {1, 2, 3, 5}) {
    Indices rest(static_cast<size_t>(count - position));
    std::iota(rest.begin(), rest.end(), position);
    REQUIRE(seen(count, position, batch, size, false) == rest);
  }
  REQUIRE(BatchPlan{count, count, batch, 0, 3, false}.batches() == 0);
}
