// Every collective over 1 to 8 ranks, of every dtype, for sizes that are 0, 1, few, odd and large.
// Main entry: tag [dist].
#include "dist_helpers.h"

#include <anello/autograd/functions.h>
#include <anello/core/tensor.h>

#include <cmath>

using namespace anello;
using namespace anello::dist;
using namespace dist_tests;

namespace {

constexpr DType kAll[] = {bool_, uint8, int8, int16, int32, int64, float16, bfloat16, float32, float64};

/// Small whole numbers, other ones on each rank, exact in every dtype.
double value_of(int rank, int64_t i) { return static_cast<double>((i * 7 + rank * 3) % 5); }
Tensor values_of(int rank, int64_t n, DType dtype) {
  std::vector<double> values(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) values[static_cast<size_t>(i)] = value_of(rank, i);
  return copy_as(from_vector(values, {n}), dtype);
}
double expected_of(ReduceOp op, int size, int64_t i, bool truth) {
  double result = 0;
  for (int r = 0; r < size; ++r) {
    double v = value_of(r, i);
    if (truth) v = v != 0;
    if (r == 0)
      result = v;
    else if (op == ReduceOp::min)
      result = std::min(result, v);
    else if (op == ReduceOp::max)
      result = std::max(result, v);
    else
      result = op == ReduceOp::product ? result * v : result + v;
  }
  return op == ReduceOp::average ? result / size : result;
}
bool makes_sense(ReduceOp op, DType dtype) {
  if (op == ReduceOp::average) return is_floating_point(dtype);
  return dtype != bool_ || op != ReduceOp::sum;
}

void check_all_reduce(Communicator& c, int64_t n, DType dtype, ReduceOp op) {
  const Tensor x = values_of(c.rank(), n, dtype);
  c.all_reduce(x, op);
  std::vector<double> want;
  for (int64_t i = 0; i < n; ++i) {
    want.push_back(expected_of(op, c.size(), i, dtype == bool_));
    if (dtype == uint8) want.back() = static_cast<uint8_t>(static_cast<int64_t>(want.back()));
    if (dtype == int8) want.back() = static_cast<int8_t>(static_cast<int64_t>(want.back()));
  }
  const std::vector<double> got = x.to_vector<double>(),
                            rounded = copy_as(from_vector(want), dtype).to_vector<double>();
  for (size_t i = 0; i < got.size(); ++i)
    expect(got[i] == rounded[i],
           concat(op, " of ", dtype, ", element ", i, " of ", n, " is ", got[i], ", expected ", rounded[i]));
}

}  // namespace

TEST_CASE("all_reduce of every dtype and op", "[dist]") {
  for (int size : kSizes)
    run_ranks(size, [](Communicator& c) {
      for (DType dtype : kAll)
        for (ReduceOp op : {ReduceOp::sum, ReduceOp::average, ReduceOp::min, ReduceOp::max, ReduceOp::product}) {
          if (!makes_sense(op, dtype)) continue;
          for (int64_t n : {0, 1, 3, 37}) check_all_reduce(c, n, dtype, op);
        }
    });
}

TEST_CASE("all_reduce of more than a segment, not divisible", "[dist]") {
  for (int size : kSizes)
    run_ranks(size, [](Communicator& c) {
      for (DType dtype : {float32, bfloat16, int64, uint8}) check_all_reduce(c, 300007, dtype, ReduceOp::sum);
      check_all_reduce(c, 9000, float16, ReduceOp::average);
      check_all_reduce(c, 9000, float64, ReduceOp::average);
      check_all_reduce(c, 17000, bool_, ReduceOp::max);
    });
}

TEST_CASE("16-bit floats are added in float32 and rounded once", "[dist]") {
  for (int size : kSizes)
    for (int64_t n : {5, 20000})  // recursive doubling; slices to their owners
      run_ranks(size, [n](Communicator& c) {
        const Tensor large = full({n}, 60000.0, float16);
        c.all_reduce(large, ReduceOp::average);
        for (double v : large.to_vector<double>()) expect(v == 60000, concat("60000, got ", v));
        const Tensor halves = full({n}, 60000.0, float16);
        CollectiveOptions options;
        options.prescale = 1.0 / c.size();
        c.all_reduce(halves, ReduceOp::sum, options);
        for (double v : halves.to_vector<double>()) expect(std::abs(v - 60000) <= 32, concat("60000, got ", v));
        const Tensor tiny = full({n}, 0x1p-24, float16);  // the smallest float16: a quarter of it would be lost
        c.all_reduce(tiny, ReduceOp::average);
        for (double v : tiny.to_vector<double>()) expect(v == 0x1p-24, concat("2^-24, got ", v));
        // 256 + 1 is 256 in bfloat16: only float32 sums give size - 1 more.
        const Tensor b = full({n}, c.rank() == 0 ? 256.0 : 1.0, bfloat16);
        c.all_reduce(b);
        const double want =
            static_cast<double>(static_cast<float>(BFloat16(256.0f + static_cast<float>(c.size() - 1))));
        for (double v : b.to_vector<double>()) expect(v == want, concat(want, ", got ", v));
      });
}

TEST_CASE("the result has the same bits on every rank", "[dist]") {
  for (int size : kSizes)
    run_ranks(size, [](Communicator& c) {
      for (DType dtype : {float32, float64, bfloat16, float16})
        for (int64_t n : {11, 70001}) {
          std::vector<double> values;
          for (int64_t i = 0; i < n; ++i) values.push_back(std::sin(static_cast<double>(i * (c.rank() + 1))) * 3.7);
          const Tensor x = copy_as(from_vector(values), dtype);
          c.all_reduce(x, ReduceOp::average);
          const std::string bits(static_cast<const char*>(x.raw_data()), x.nbytes());
          for (const std::string& other : c.all_gather_bytes(bits)) expect(other == bits, "the same bits");
        }
    });
}

TEST_CASE("scales, strided tensors, versions", "[dist]") {
  for (int size : kSizes)
    run_ranks(size, [](Communicator& c) {
      const Tensor base = zeros({4, 6}, float32), every_other = as_strided(base, {4, 3}, {6, 2}, 1);
      fill(every_other, static_cast<double>(c.rank() + 1));
      const uint64_t version = base.version();
      CollectiveOptions options;
      options.prescale = 2;
      options.postscale = 0.5;
      c.all_reduce(every_other, ReduceOp::sum, options);
      expect(base.version() > version, "another version");
      const double want = c.size() * (c.size() + 1) / 2.0;
      const std::vector<double> got = base.to_vector<double>();
      for (size_t i = 0; i < got.size(); ++i) expect(got[i] == (i % 2 == 1 ? want : 0), "only the view to change");
      const Tensor scalar = full({}, 3.0);
      c.all_reduce(scalar, ReduceOp::product);
      expect(scalar.item<double>() == std::pow(3.0, c.size()), "a scalar's product");
    });
}

TEST_CASE("broadcast from every root", "[dist]") {
  for (int size : kSizes)
    run_ranks(size, [](Communicator& c) {
      for (int root = 0; root < c.size(); ++root)
        for (int64_t n : {0, 1, 1000, 300001})
          for (DType dtype : {bool_, int8, bfloat16, float64}) {
            const Tensor x = values_of(c.rank(), n, dtype);
            c.broadcast(x, root);
            expect(x.to_vector<double>() == values_of(root, n, dtype).to_vector<double>(), "root's values");
          }
    });
}

TEST_CASE("reduce_scatter gives the rows of slice_of", "[dist]") {
  for (int size : kSizes)
    run_ranks(size, [](Communicator& c) {
      for (DType dtype : {int32, float32, bfloat16})
        for (int64_t rows : {0, 1, 3, 8, 1001}) {
          const Tensor x = values_of(c.rank(), rows * 6, dtype);
          const Tensor y = c.reduce_scatter(as_strided(x, {rows, 2, 3}, {6, 3, 1}, 0));
          const Slice mine = slice_of(rows, c.rank(), c.size());
          expect(y.shape() == Shape({mine.end - mine.begin, 2, 3}), "my rows");
          const std::vector<double> got = y.to_vector<double>();
          for (size_t i = 0; i < got.size(); ++i) {
            const double want = expected_of(ReduceOp::sum, c.size(), mine.begin * 6 + static_cast<int64_t>(i), false);
            expect(got[i] == want, concat(want, ", got ", got[i]));
          }
          expect(x.to_vector<double>() == values_of(c.rank(), rows * 6, dtype).to_vector<double>(),
                 "the input unchanged");
        }
    });
}

TEST_CASE("all_gather of equal and of different sizes", "[dist]") {
  for (int size : kSizes)
    run_ranks(size, [](Communicator& c) {
      for (DType dtype : kAll)
        for (int64_t rows : {0, 1, 5, 3000}) {
          const auto rows_of = [&](int r) { return rows == 5 ? int64_t{r} : rows; };  // rank 0 gives none
          const Tensor x = values_of(c.rank(), rows_of(c.rank()) * 3, dtype);
          const Tensor y = c.all_gather(as_strided(x, {rows_of(c.rank()), 3}, {3, 1}, 0));
          std::vector<double> want;
          for (int r = 0; r < c.size(); ++r)
            for (double v : values_of(r, rows_of(r) * 3, dtype).to_vector<double>()) want.push_back(v);
          expect(y.dtype() == dtype && y.to_vector<double>() == want, "all rows in order");
        }
      expect(c.all_gather(zeros({2, 0})).shape() == Shape({2 * c.size(), 0}), "rows without elements");
    });
}

TEST_CASE("all_to_all, even and uneven", "[dist]") {
  for (int size : kSizes)
    run_ranks(size, [](Communicator& c) {
      for (bool even : {true, false})
        for (int64_t width : {1, 40000}) {
          std::vector<int64_t> counts;
          std::vector<float> values;
          for (int to = 0; to < c.size(); ++to) {
            counts.push_back(even ? 2 : (c.rank() + to) % 3);
            for (int64_t i = 0; i < counts.back() * width; ++i)
              values.push_back(static_cast<float>(c.rank() * 100 + to));
          }
          const int64_t rows = static_cast<int64_t>(values.size()) / width;
          const Tensor y = c.all_to_all(from_vector(values, {rows, width}), even ? std::vector<int64_t>{} : counts);
          std::vector<float> want;
          for (int from = 0; from < c.size(); ++from)
            for (int64_t i = 0; i < (even ? 2 : (from + c.rank()) % 3) * width; ++i)
              want.push_back(static_cast<float>(from * 100 + c.rank()));
          expect(y.to_vector<float>() == want, "each rank's rows for me");
        }
    });
}

TEST_CASE("gather and scatter of different shapes", "[dist]") {
  for (int size : kSizes)
    run_ranks(size, [](Communicator& c) {
      for (int root = 0; root < c.size(); ++root) {
        const std::vector<Tensor> all = c.gather(values_of(c.rank(), c.rank() * 2, int16), root);
        expect(static_cast<int>(all.size()) == (c.rank() == root ? c.size() : 0), "tensors on root only");
        for (int r = 0; r < static_cast<int>(all.size()); ++r)
          expect(all[static_cast<size_t>(r)].to_vector<double>() == values_of(r, r * 2, int16).to_vector<double>(),
                 "each rank's values");
        std::vector<Tensor> parts;
        for (int r = 0; c.rank() == root && r < c.size(); ++r) parts.push_back(full({r, 9000}, r, bfloat16));
        const Tensor mine = c.scatter(parts, root);
        expect(mine.shape() == Shape({c.rank(), 9000}) && mine.dtype() == bfloat16, "my shape");
        for (double v : mine.to_vector<double>()) expect(v == c.rank(), "my values");
      }
    });
}

TEST_CASE("send and recv go both ways at once", "[dist]") {
  for (int size : kSizes) {
    if (size == 1) continue;
    run_ranks(size, [](Communicator& c) {
      const int right = (c.rank() + 1) % c.size(), left = (c.rank() + c.size() - 1) % c.size();
      for (int64_t n : {0, 3, 100000}) {
        const Tensor into = zeros({n}, float64), again = zeros({n}, float64);
        const Work a = c.send_async(values_of(c.rank(), n, float64), right, 7);
        const Work b = c.send_async(values_of(c.rank() + 1, n, float64), right, 7);
        c.recv(into, left, 7);
        c.recv(again, left, 7);
        a.wait();
        b.wait();
        expect(into.to_vector<double>() == values_of(left, n, float64).to_vector<double>(), "the first message");
        expect(again.to_vector<double>() == values_of(left + 1, n, float64).to_vector<double>(), "the second message");
      }
    });
  }
}

TEST_CASE("bytes and barriers", "[dist]") {
  for (int size : kSizes)
    run_ranks(size, [](Communicator& c) {
      for (int root = 0; root < c.size(); ++root) {
        const std::string got = c.broadcast_bytes(c.rank() == root ? std::string(100000, 'x') + "end" : "", root);
        expect(got.size() == 100003 && got.ends_with("xend"), "root's bytes");
      }
      expect(c.broadcast_bytes("", 0).empty(), "no bytes");
      const std::vector<std::string> all = c.all_gather_bytes(std::string(static_cast<size_t>(c.rank()), 'a'));
      for (size_t r = 0; r < all.size(); ++r) expect(all[r] == std::string(r, 'a'), "each rank's bytes");
      for (int i = 0; i < 20; ++i) c.barrier();
    });
}

TEST_CASE("slices are disjoint, complete and even", "[dist]") {
  for (int64_t n : {0, 1, 7, 8, 1000})
    for (int size : kSizes) {
      int64_t end = 0;
      for (int r = 0; r < size; ++r) {
        const Slice s = slice_of(n, r, size);
        REQUIRE(s.begin == end);
        REQUIRE(s.end - s.begin == n / size + (r < n % size ? 1 : 0));
        end = s.end;
      }
      REQUIRE(end == n);
    }
}
