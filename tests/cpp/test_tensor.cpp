// Core: dtypes, shapes, creation, views, memory, printing, errors.
// Main entry: tag [core].
#include "catch.h"

#include <anello/core/kernels/elementwise.h>
#include <anello/core/parallel.h>
#include <anello/core/registry.h>
#include <anello/core/tensor.h>

#include <cmath>
#include <limits>

using namespace anello;

TEST_CASE("promotion follows the design's table", "[core]") {
  REQUIRE(promote_types(int64, float32) == float32);
  REQUIRE(promote_types(int64, float16) == float16);
  REQUIRE(promote_types(float16, bfloat16) == float32);
  REQUIRE(promote_types(float16, float32) == float32);
  REQUIRE(promote_types(bfloat16, float64) == float64);
  REQUIRE(promote_types(uint8, int8) == int16);
  REQUIRE(promote_types(uint8, int16) == int16);
  REQUIRE(promote_types(uint8, int64) == int64);
  REQUIRE(promote_types(bool_, uint8) == uint8);
  REQUIRE(promote_types(int8, int32) == int32);
  for (int a = 0; a < kDTypeCount; ++a)
    for (int b = 0; b < kDTypeCount; ++b) {
      const DType x = static_cast<DType>(a), y = static_cast<DType>(b);
      REQUIRE(promote_types(x, y) == promote_types(y, x));
      REQUIRE(promote_types(x, x) == x);
    }
  REQUIRE(promote_types(float16, Scalar(2.5)) == float16);
  REQUIRE(promote_types(int32, Scalar(2.5)) == float32);
  REQUIRE(promote_types(int8, Scalar(1000)) == int8);
  REQUIRE(promote_types(bool_, Scalar(1)) == int64);
}

TEST_CASE("16-bit floats round to nearest even and keep specials", "[core]") {
  REQUIRE(float(BFloat16(1.0f + 0x1p-8f)) == 1.0f);                // tie: to even
  REQUIRE(float(BFloat16(1.0f + 3 * 0x1p-8f)) == 1.0f + 0x1p-6f);  // tie: up to even
  REQUIRE(std::isnan(float(BFloat16(NAN))));
  REQUIRE(float(BFloat16(INFINITY)) == INFINITY);
  REQUIRE(float(Float16(65504.0f)) == 65504.0f);
  REQUIRE(float(Float16(65519.9f)) == 65504.0f);
  REQUIRE(float(Float16(65520.0f)) == INFINITY);
  REQUIRE(float(Float16(0x1p-24f)) == 0x1p-24f);  // smallest subnormal
  REQUIRE(float(Float16(0x1p-25f)) == 0.0f);      // tie to even zero
  REQUIRE(float(Float16(0x1.8p-25f)) == 0x1p-24f);
  REQUIRE(std::isnan(float(Float16(NAN))));
  for (uint32_t bits = 0; bits < 65536; ++bits) {  // every value survives the round trip
    Float16 h;
    h.bits = static_cast<uint16_t>(bits);
    const float f = float(h);
    if (!std::isnan(f)) REQUIRE(Float16(f).bits == h.bits);
  }
}

TEST_CASE("broadcasting is NumPy's, and says what does not fit", "[core]") {
  REQUIRE(broadcast_shapes("op", {3, 1, 5}, {4, 1}) == Shape{3, 4, 5});
  REQUIRE(broadcast_shapes("op", {}, {2, 0}) == Shape{2, 0});
  REQUIRE(broadcast_shapes("op", {1}, {0}) == Shape{0});
  REQUIRE_THROWS_AS(broadcast_shapes("op", {2, 3}, {2, 4}), ShapeError);
  REQUIRE_THROWS_WITH(broadcast_shapes("add", {2, 3}, {4}),
                      contains_text("[add]") && contains_text("(2, 3)") && contains_text("(4,)"));
  REQUIRE_THROWS_AS((Shape{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}), ShapeError);
  REQUIRE(normalize_dim("op", -1, 3) == 2);
  REQUIRE_THROWS_WITH(normalize_dim("sum", 3, 3), contains_text("dim 3") && contains_text("-3 to 2"));
}

TEST_CASE("creation", "[core]") {
  REQUIRE(zeros({2, 3}).to_vector<float>() == std::vector<float>(6, 0));
  REQUIRE(full({2}, 7, int8).to_vector<int64_t>() == std::vector<int64_t>{7, 7});
  REQUIRE(full({2}, 0.5, bool_).to_vector<int64_t>() == std::vector<int64_t>{1, 1});
  REQUIRE(arange(0, 7, 3).to_vector<int64_t>() == std::vector<int64_t>{0, 3, 6});
  REQUIRE(arange(5, 0, -2).to_vector<int64_t>() == std::vector<int64_t>{5, 3, 1});
  REQUIRE(arange(3, 3).numel() == 0);
  REQUIRE(arange(0.0, 1.0, 0.25, float64).to_vector<double>() == std::vector<double>{0, .25, .5, .75});
  REQUIRE_THROWS_AS(arange(0, 5, -1), ValueError);
  REQUIRE_THROWS_AS(arange(0, 5, 0), ValueError);
  REQUIRE(linspace(0, 1, 5, float64).to_vector<double>() == std::vector<double>{0, .25, .5, .75, 1});
  REQUIRE(eye(2, 3).to_vector<int64_t>() == std::vector<int64_t>{1, 0, 0, 0, 1, 0});
  REQUIRE_THROWS_AS(empty({2, -1}), ShapeError);
  REQUIRE_THROWS_AS(empty({int64_t{1} << 40, int64_t{1} << 40}), ShapeError);
  REQUIRE_THROWS_AS(empty({int64_t{1} << 60}), OutOfMemoryError);
  REQUIRE_THROWS_AS(from_vector<float>({1, 2, 3}, {2, 2}), ShapeError);
  REQUIRE_THROWS_WITH(empty({1}, float32, device_from_name("cuda:0")),
                      contains_text("libanello_cuda.so") && contains_text("Hint"));
  REQUIRE_THROWS_AS(device_from_name("gpu"), DeviceError);
  REQUIRE_THROWS_WITH(dtype_from_name("flaot32"), contains_text("did you mean 'float32'"));
  REQUIRE_THROWS_AS(Tensor().shape(), Error);
}

TEST_CASE("views share storage and version", "[core]") {
  const Tensor x = arange(0, 12, 1, float32);
  const Tensor m = *try_reshape_view(x, {3, 4});
  const Tensor column = as_strided(m, {3}, {4}, 1);
  REQUIRE(column.to_vector<int64_t>() == std::vector<int64_t>{1, 5, 9});
  const uint64_t before = x.version();
  fill(column, -1);
  REQUIRE(x.version() == before + 1);
  REQUIRE(x.to_vector<int64_t>() == std::vector<int64_t>{0, -1, 2, 3, 4, -1, 6, 7, 8, -1, 10, 11});
  REQUIRE_THROWS_AS(as_strided(x, {3}, {6}, 0), ShapeError);
  REQUIRE_THROWS_AS(as_strided(x, {1}, {1}, 12), ShapeError);
  REQUIRE_NOTHROW(as_strided(x, {0, 3}, {100, 100}, 12));
  REQUIRE(expand_view(as_strided(x, {1, 2}, {2, 1}, 0), {3, 2}).to_vector<int64_t>() ==
          std::vector<int64_t>{0, -1, 0, -1, 0, -1});
}

TEST_CASE("reshape is a view exactly where strides allow it", "[core]") {
  const Tensor base = arange(0, 24, 1, int64);
  const Tensor t = as_strided(base, {2, 3, 4}, {12, 4, 1}, 0);
  const Tensor swapped = as_strided(base, {3, 2, 4}, {4, 12, 1}, 0);
  REQUIRE(try_reshape_view(t, {6, 4}));
  REQUIRE_FALSE(try_reshape_view(swapped, {6, 4}));
  REQUIRE(try_reshape_view(swapped, {3, 2, 2, 2})->to_vector<int64_t>() == swapped.to_vector<int64_t>());
  REQUIRE(try_reshape_view(swapped, {3, 1, 2, 4, 1})->to_vector<int64_t>() == swapped.to_vector<int64_t>());
  const Tensor column = as_strided(base, {2, 1, 3}, {12, 5, 4}, 1);
  REQUIRE(try_reshape_view(column, {6})->to_vector<int64_t>() == column.to_vector<int64_t>());
  const Tensor wide = expand_view(as_strided(base, {1, 4}, {4, 1}, 0), {3, 4});
  REQUIRE_FALSE(try_reshape_view(wide, {12}));
  REQUIRE(try_reshape_view(wide, {3, 2, 2})->to_vector<int64_t>() == wide.to_vector<int64_t>());
  REQUIRE(try_reshape_view(as_strided(base, {1, 1}, {7, 9}, 3), {})->item<int64_t>() == 3);
}

TEST_CASE("copies convert between all dtypes", "[core]") {
  for (int a = 0; a < kDTypeCount; ++a)
    for (int b = 0; b < kDTypeCount; ++b) {
      const Tensor x = copy_as(arange(0, 2), static_cast<DType>(a));
      REQUIRE(copy_as(x, static_cast<DType>(b)).to_vector<int64_t>() == std::vector<int64_t>{0, 1});
    }
  const Tensor wild = from_vector<float>({NAN, 1e30f, -1e30f, -2.7f, 300.0f});
  REQUIRE(copy_as(wild, int32).to_vector<int64_t>() ==
          std::vector<int64_t>{0, std::numeric_limits<int32_t>::max(), std::numeric_limits<int32_t>::min(), -2, 300});
  REQUIRE(copy_as(from_vector<int64_t>({257, -1}), uint8).to_vector<int64_t>() == std::vector<int64_t>{1, 255});
  REQUIRE_THROWS_AS(copy_into(zeros({2}), zeros({3})), ShapeError);
}

TEST_CASE("memory from outside is used in place and released once", "[core]") {
  std::vector<float> values = {1, 2, 3, 4};
  int released = 0;
  {
    const Tensor t = from_memory(values.data(), {2, 2}, float32, [&] { ++released; }, {1, 2});
    REQUIRE(t.to_vector<float>() == std::vector<float>{1, 3, 2, 4});
    const Tensor view = as_strided(t, {2}, {1}, 2);
    fill(view, 9);
    REQUIRE(values[3] == 9);
  }
  REQUIRE(released == 1);
  const Tensor fixed = from_memory(values.data(), {4}, float32, {}, {}, cpu, false);
  REQUIRE_THROWS_WITH(fill(fixed, 0), contains_text("read-only"));
}

TEST_CASE("the allocator reuses blocks and counts", "[core]") {
  empty_cache();
  const MemoryStats before = memory_stats();
  void* first;
  {
    const Tensor t = empty({1000, 1000});
    first = t.raw_data();
    REQUIRE(reinterpret_cast<uintptr_t>(first) % 64 == 0);
    REQUIRE(memory_stats().current >= before.current + 4'000'000);
  }
  REQUIRE(memory_stats().current == before.current);
  REQUIRE(memory_stats().peak >= before.current + 4'000'000);
  REQUIRE(empty({999, 1000}).raw_data() == first);  // of the same size class
  reset_peak_memory();
  REQUIRE(memory_stats().peak == memory_stats().current);
  empty_cache();
  REQUIRE(memory_stats().reserved <= before.reserved);
}

TEST_CASE("tensors print as nested brackets", "[core]") {
  REQUIRE(to_string(from_vector<int64_t>({1, 2, 3, 4}, {2, 2})) == "tensor([[1, 2],\n        [3, 4]], dtype=int64)");
  REQUIRE(to_string(from_vector<float>({1, -2.5f})) == "tensor([1.0000, -2.5000])");
  REQUIRE(to_string(from_vector<float>({1, 2})) == "tensor([1., 2.])");
  REQUIRE(to_string(from_vector<double>({1e-9, NAN})) == "tensor([1.0000e-09, nan], dtype=float64)");
  REQUIRE(to_string(full({}, true, bool_)) == "tensor(True, dtype=bool)");
  REQUIRE(to_string(zeros({0, 3})) == "tensor([], shape=(0, 3))");
  REQUIRE(to_string(arange(0, 2000)) == "tensor([0, 1, 2, ..., 1997, 1998, 1999], dtype=int64)");
}

TEST_CASE("a missing kernel names op, dtype and what there is", "[core]") {
  REQUIRE(!cpu_isa().empty());
  REQUIRE(!registered_kernels().empty());
  static constexpr KernelTag<FillParams> absent{"absent"};
  REQUIRE_THROWS_WITH(launch<absent>(cpu, float32, FillParams{}),
                      contains_text("[absent] no kernel for cpu/float32") && contains_text("there are none"));
}
