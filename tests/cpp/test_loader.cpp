// The loader: the same batches for any number of workers, resuming, leaving early, failing, forking.
// Main entry: [loader].
#include "catch.h"

#include <anello/core/random.h>
#include <anello/datasets/loader.h>
#include <anello/datasets/synthetic.h>

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <numeric>
#include <thread>

using namespace anello;
using namespace anello::data;

namespace {

// The elements as they lie in memory.
template <class T>
std::vector<T> values(const Tensor& t) {
  return std::vector<T>(t.data<T>(), t.data<T>() + t.numel());
}

std::vector<int64_t> range(int64_t begin, int64_t end) {
  std::vector<int64_t> v(static_cast<size_t>(end - begin));
  std::iota(v.begin(), v.end(), begin);
  return v;
}

// Images of 6x6 pixels; label i is i, so that a batch tells which samples it has.
ImageDataset numbered(int64_t n) {
  ImageDataset d{empty({n, 6, 6, 3}, uint8), from_vector(range(0, n)), {}, {0.5, 0.5, 0.5}, {0.25, 0.25, 0.25}};
  for (int64_t i = 0; i < d.images.numel(); ++i)
    d.images.data<uint8_t>()[i] = static_cast<uint8_t>(philox(1, 2, static_cast<uint64_t>(i))[0]);
  return d;
}

Augmentation everything() {
  Augmentation a;
  a.crop_padding = 2, a.flip = Flip::random, a.cutout = 3;
  return a;
}

LoaderOptions options(int64_t batch_size, int workers) {
  LoaderOptions o;
  o.batch_size = batch_size, o.workers = workers, o.seed = 42;
  return o;
}

struct Record {
  std::vector<int64_t> indices, labels;
  std::vector<float> pixels;
  friend bool operator==(const Record&, const Record&) = default;
};
Record record(const Batch& b) { return {b.indices, values<int64_t>(b.labels), values<float>(b.inputs)}; }

std::vector<Record> one_epoch(DataLoader& loader) {
  std::vector<Record> out;
  for (const Batch& b : loader) out.push_back(record(b));
  return out;
}

std::vector<int64_t> indices_of(const std::vector<Record>& epoch) {
  std::vector<int64_t> out;
  for (const Record& r : epoch) out.insert(out.end(), r.indices.begin(), r.indices.end());
  return out;
}

// A data set of plain numbers whose batch function can be made to fail.
BatchFunction counting(std::function<void(const BatchRequest&)> extra = {}) {
  return [extra](const BatchRequest& r) {
    if (extra) extra(r);
    return Batch{from_vector(r.indices), from_vector(r.indices), {}};
  };
}

}  // namespace

TEST_CASE("batches are the same for 0, 1, 2 and 5 workers, and differ in the next epoch", "[loader]") {
  const ImageDataset data = numbered(50);
  DataLoader reference(data, options(8, 0), everything());
  const auto first = one_epoch(reference), second = one_epoch(reference);
  REQUIRE(first.size() == 7);
  REQUIRE(first.back().indices.size() == 2);
  REQUIRE(indices_of(first) != indices_of(second));
  auto sorted = indices_of(second);
  std::sort(sorted.begin(), sorted.end());
  REQUIRE(sorted == values<int64_t>(data.labels));
  for (const Record& r : first) REQUIRE(r.labels == r.indices);
  for (const int workers : {1, 2, 5})
    for (const int prefetch : {1, 3}) {
      LoaderOptions o = options(8, workers);
      o.prefetch = prefetch;
      DataLoader loader(data, o, everything());
      REQUIRE(one_epoch(loader) == first);
      REQUIRE(one_epoch(loader) == second);
    }
}

TEST_CASE("a sample looks the same in any batch, on any rank, and other in the next epoch", "[loader]") {
  const ImageDataset data = numbered(30);
  const auto by_sample = [](const std::vector<Record>& epoch) {
    std::vector<std::vector<float>> images(30);
    for (const Record& r : epoch)
      for (size_t i = 0; i < r.indices.size(); ++i) {
        const auto begin = r.pixels.begin() + static_cast<int64_t>(i) * 108;
        images[static_cast<size_t>(r.indices[i])].assign(begin, begin + 108);
      }
    return images;
  };
  DataLoader whole(data, options(30, 2), everything());
  const auto first = by_sample(one_epoch(whole)), second = by_sample(one_epoch(whole));
  int changed = 0;
  for (size_t i = 0; i < 30; ++i) changed += first[i] != second[i];
  REQUIRE(changed > 25);
  std::vector<Record> together;
  for (int rank = 0; rank < 3; ++rank) {
    LoaderOptions o = options(4, 1);
    o.rank = rank, o.size = 3;
    DataLoader part(data, o, everything());
    for (Record& r : one_epoch(part)) together.push_back(std::move(r));
  }
  REQUIRE(by_sample(together) == first);
}

TEST_CASE("order, drop_last and the number of batches", "[loader]") {
  const ImageDataset data = numbered(10);
  LoaderOptions o = options(4, 1);
  o.shuffle = false;
  DataLoader plain(data, o);
  REQUIRE(plain.batches() == 3);
  REQUIRE(indices_of(one_epoch(plain)) == values<int64_t>(data.labels));
  o.drop_last = true;
  DataLoader dropping(data, o);
  REQUIRE(dropping.batches() == 2);
  REQUIRE(indices_of(one_epoch(dropping)) == std::vector<int64_t>{0, 1, 2, 3, 4, 5, 6, 7});
  REQUIRE(dropping.state() == LoaderState{42, 1, 0, 10});
  DataLoader none(0, counting(), options(4, 2));
  REQUIRE(none.batches() == 0);
  for (const Batch& b : none) FAIL("a batch of nothing: " << b.size());
}

TEST_CASE("an interrupted epoch goes on bit for bit", "[loader]") {
  const ImageDataset data = numbered(41);
  DataLoader unbroken(data, options(5, 2), everything());
  const auto first = one_epoch(unbroken), second = one_epoch(unbroken), third = one_epoch(unbroken);
  for (const int stop_after : {0, 1, 4, 8, 9}) {
    DataLoader before(data, options(5, 2), everything());
    one_epoch(before);
    LoaderState state = before.state();
    REQUIRE(state == LoaderState{42, 1, 0, 41});
    int taken = 0;
    if (stop_after > 0)
      for (const Batch& b : before) {
        REQUIRE(record(b) == second[static_cast<size_t>(taken)]);
        state = before.state();
        if (++taken == stop_after) break;
      }
    LoaderOptions o = options(5, 1);
    o.seed = 7;  // the state brings its own
    DataLoader after(data, o, everything());
    after.set_state(state);
    REQUIRE(after.state() == state);
    REQUIRE(after.batches_ahead() == 9 - taken);
    const auto rest = one_epoch(after);
    REQUIRE(rest == std::vector<Record>(second.begin() + taken, second.end()));
    REQUIRE(after.epoch() == 1);
    REQUIRE(one_epoch(after) == third);
  }
}

TEST_CASE("an interrupted epoch goes on with another number of ranks", "[loader]") {
  const ImageDataset data = numbered(60);
  DataLoader whole(data, options(60, 0));
  const auto order = indices_of(one_epoch(whole));
  std::vector<int64_t> seen;
  LoaderState state;
  for (int rank = 0; rank < 2; ++rank) {
    LoaderOptions o = options(5, 1);
    o.rank = rank, o.size = 2;
    DataLoader loader(data, o);
    int taken = 0;
    for (const Batch& b : loader) {
      seen.insert(seen.end(), b.indices.begin(), b.indices.end());
      if (++taken == 3) break;
    }
    state = loader.state();
  }
  REQUIRE(state.position == 30);
  for (int rank = 0; rank < 3; ++rank) {
    LoaderOptions o = options(4, 1);
    o.rank = rank, o.size = 3;
    DataLoader loader(data, o);
    loader.set_state(state);
    for (const Batch& b : loader) seen.insert(seen.end(), b.indices.begin(), b.indices.end());
  }
  std::sort(seen.begin(), seen.end());
  REQUIRE(seen == values<int64_t>(data.labels));
}

TEST_CASE("a loop left early counts as an epoch; set_epoch chooses the next", "[loader]") {
  const ImageDataset data = numbered(40);
  DataLoader reference(data, options(4, 0), everything());
  one_epoch(reference);
  const auto second = one_epoch(reference);
  for (const int workers : {0, 2}) {
    DataLoader loader(data, options(4, workers), everything());
    for (const Batch& b : loader) {
      REQUIRE(b.size() == 4);
      break;
    }
    REQUIRE(loader.state() == LoaderState{42, 0, 4, 40});
    REQUIRE(one_epoch(loader) == second);
    loader.set_epoch(1);
    REQUIRE(one_epoch(loader) == second);
    REQUIRE(loader.epoch() == 1);
  }
}

TEST_CASE("a loader may go while its workers run", "[loader]") {
  const ImageDataset data = numbered(1000);
  for (int round = 0; round < 50; ++round) {
    DataLoader loader(data, options(10, 3), everything());
    const uint64_t loop = loader.start();
    if (round % 2 == 0) REQUIRE(loader.next(loop)->size() == 10);
  }
  DataLoader never_used(data, options(10, 3), everything());
}

TEST_CASE("an error in a worker is raised where its batch is due", "[loader]") {
  for (const int workers : {0, 1, 3}) {
    std::atomic<bool> broken{true};
    LoaderOptions o = options(2, workers);
    o.shuffle = false;
    DataLoader loader(20, counting([&](const BatchRequest& r) {
                        if (broken && r.indices[0] == 8) fail<IoError>("read", "sample 8 is gone");
                      }),
                      o);
    const uint64_t loop = loader.start();
    for (int64_t k = 0; k < 4; ++k) REQUIRE(loader.next(loop)->indices[0] == 2 * k);
    REQUIRE_THROWS_AS(loader.next(loop), IoError);
    REQUIRE(loader.state().position == 8);
    REQUIRE_THROWS_WITH(loader.next(loop), contains_text("sample 8 is gone"));
    broken = false;  // whoever mends the fault can go on
    for (int64_t k = 4; k < 10; ++k) REQUIRE(loader.next(loop)->indices[0] == 2 * k);
    REQUIRE(!loader.next(loop));
  }
}

TEST_CASE("a second loop ends the first, and a second thread is told so", "[loader]") {
  DataLoader loader(20, counting(), options(2, 2));
  const uint64_t first = loader.start();
  REQUIRE(loader.next(first));
  const uint64_t second = loader.start();
  REQUIRE(loader.next(second));
  REQUIRE_THROWS_WITH(loader.next(first), contains_text("another one"));
  loader.stop(first);  // of no effect on the loop that runs
  REQUIRE(loader.next(second));
  loader.stop(second);
  REQUIRE(!loader.next(second));

  DataLoader* itself = nullptr;
  DataLoader reentrant(4, counting([&](const BatchRequest&) { itself->state(); }), options(2, 0));
  itself = &reentrant;
  REQUIRE_THROWS_WITH(reentrant.next(reentrant.start()), contains_text("two threads"));
}

#if !defined(__SANITIZE_THREAD__)  // the sanitizer allows no new threads after fork()
TEST_CASE("a forked child goes on where the parent stood", "[loader]") {
  const ImageDataset data = numbered(40);
  DataLoader reference(data, options(4, 0), everything());
  const auto epoch = one_epoch(reference);
  DataLoader loader(data, options(4, 2), everything());
  const uint64_t loop = loader.start();
  for (size_t k = 0; k < 3; ++k) REQUIRE(record(*loader.next(loop)) == epoch[k]);
  const pid_t child = fork();
  if (child == 0) {
    alarm(20);  // a hang must fail, not last
    size_t k = 3;
    bool same = true;
    while (const auto batch = loader.next(loop)) same = same && record(*batch) == epoch[k++];
    {
      DataLoader fresh(data, options(4, 2), everything());
      same = same && one_epoch(fresh) == epoch;
    }
    _exit(same && k == epoch.size() ? 0 : 1);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  REQUIRE(WEXITSTATUS(status) == 0);
  for (size_t k = 3; k < epoch.size(); ++k) REQUIRE(record(*loader.next(loop)) == epoch[k]);
  REQUIRE(!loader.next(loop));
}
#endif

TEST_CASE("plain tensors go through the same loader", "[loader]") {
  std::vector<double> x(33);
  std::iota(x.begin(), x.end(), 0.0);
  std::vector<int32_t> y(11);
  std::iota(y.begin(), y.end(), 100);
  const TensorDataset data{from_vector(x, {11, 3}), from_vector(y)};
  DataLoader loader(data, options(4, 2));
  int64_t samples = 0;
  for (const Batch& b : loader) {
    REQUIRE(b.inputs.shape() == Shape{b.size(), 3});
    REQUIRE(b.labels.dtype() == int32);
    for (int64_t i = 0; i < b.size(); ++i) {
      const int64_t index = b.indices[static_cast<size_t>(i)];
      REQUIRE(b.labels.data<int32_t>()[i] == 100 + index);
      REQUIRE(b.inputs.data<double>()[3 * i + 1] == static_cast<double>(3 * index + 1));
    }
    samples += b.size();
  }
  REQUIRE(samples == 11);
}

TEST_CASE("a loader refuses what cannot be", "[loader]") {
  const auto with = [](auto change) {
    LoaderOptions o;
    change(o);
    DataLoader(4, counting(), o);
  };
  REQUIRE_THROWS_AS(with([](LoaderOptions& o) { o.batch_size = 0; }), ValueError);
  REQUIRE_THROWS_AS(with([](LoaderOptions& o) { o.workers = -1; }), ValueError);
  REQUIRE_THROWS_AS(with([](LoaderOptions& o) { o.prefetch = 0; }), ValueError);
  REQUIRE_THROWS_WITH(with([](LoaderOptions& o) { o.rank = 2, o.size = 2; }), contains_text("rank 2 of 2"));
  DataLoader loader(4, counting(), {});
  REQUIRE_THROWS_WITH(loader.set_state({0, 0, 0, 5}), contains_text("5 samples") && contains_text("has 4"));
  REQUIRE_THROWS_AS(loader.set_state({0, 0, 9, 4}), ValueError);

  ImageDataset d = numbered(4);
  d.labels = from_vector(range(0, 3));
  REQUIRE_THROWS_AS(DataLoader(d, {}), ShapeError);
  d = numbered(4);
  d.class_names = {"one", "two"};
  REQUIRE_THROWS_WITH(DataLoader(d, {}), contains_text("label 2 of image 2"));
  d = numbered(4);
  d.images = empty({4, 6, 6, 3}, int32);
  REQUIRE_THROWS_AS(DataLoader(d, {}), DTypeError);
  REQUIRE_THROWS_AS(DataLoader(TensorDataset{empty({4, 2}), empty({3})}, {}), ShapeError);
}
