// Moving elements by integer indices: gather, scatter_add, one_hot.
// Main entry: the registrations at the end.
#include <anello/core/cpu/convert.h>
#include <anello/core/kernels/index.h>

#include <algorithm>
#include <cstring>

namespace anello::kernel {
namespace {

/// Elements a task works on, about.
constexpr int64_t kTask = 16384;
/// Neighbouring columns that one task of scatter_add owns.
constexpr int64_t kColumns = 64;

/// Checks every value of the index once, in row-major order, before anything is read by it.
template <class Params>
Status check_index(const Context& ctx, const Params& p) {
  const IndexOperand& index = p.index;
  const int64_t outer = index.outer_stride == 0 ? 1 : p.outer, inner = index.inner_stride == 0 ? 1 : p.inner;
  if (p.outer * p.size * p.inner == 0) return Status::ok;
  const int64_t lowest = index.wrap ? -p.dim_size : 0;
  for (int64_t o = 0; o < outer; ++o) {
    for (int64_t k = 0; k < p.size; ++k) {
      const int64_t* row = index.data + o * index.outer_stride + k * index.stride;
      for (int64_t i = 0; i < inner; ++i) {
        const int64_t value = row[i * index.inner_stride];
        if (value >= lowest && value < p.dim_size) continue;
        return ctx.error(Status::index_error, "index %lld at position %lld is outside [%lld, %lld).",
                         static_cast<long long>(value), static_cast<long long>((o * p.size + k) * inner + i),
                         static_cast<long long>(lowest), static_cast<long long>(p.dim_size));
      }
    }
  }
  return Status::ok;
}

/// T stands for any dtype of its size.
template <class T>
Status gather_kernel(const Context& ctx, const GatherParams& p) {
  if (const Status status = check_index(ctx, p); status != Status::ok) return status;
  const T* x = static_cast<const T*>(p.x);
  T* out = static_cast<T*>(p.out);
  const int64_t inner = p.inner, from_end = p.index.wrap ? p.dim_size : 0;
  const auto place = [&](const int64_t* at) { return *at < 0 ? *at + from_end : *at; };
  const auto rows = [&](int64_t begin, int64_t end) {
    int64_t o = begin / p.size, k = begin % p.size;
    for (int64_t row = begin; row < end; ++row) {
      const int64_t* index = p.index.data + o * p.index.outer_stride + k * p.index.stride;
      const T* source = x + o * p.dim_size * inner;
      T* target = out + row * inner;
      if (inner == 1) {
        *target = source[place(index)];
      } else if (p.index.inner_stride == 0) {
        std::memcpy(target, source + place(index) * inner, static_cast<size_t>(inner) * sizeof(T));
      } else {
        for (int64_t i = 0; i < inner; ++i) {
          target[i] = source[place(index + i * p.index.inner_stride) * inner + i];
        }
      }
      if (++k == p.size) k = 0, ++o;
    }
  };
  ctx.parallel_for(p.outer * p.size, std::max<int64_t>(1, kTask / std::max<int64_t>(1, inner)), rows);
  return Status::ok;
}

/// Adds columns [first, first + columns) of one outer slice into sums, rows of `step` elements.
template <class T, class A>
void scatter_columns(const ScatterAddParams& p, int64_t o, int64_t first, int64_t columns, A* sums, int64_t step) {
  const int64_t from_end = p.index.wrap ? p.dim_size : 0;
  const auto place = [&](const int64_t* at) { return *at < 0 ? *at + from_end : *at; };
  for (int64_t r = 0; r < p.dim_size; ++r) std::fill_n(sums + r * step, columns, A(0));
  for (int64_t k = 0; k < p.size; ++k) {
    const T* source = static_cast<const T*>(p.src) + (o * p.size + k) * p.inner + first;
    const int64_t* index = p.index.data + o * p.index.outer_stride + k * p.index.stride + first * p.index.inner_stride;
    if (p.index.inner_stride == 0) {
      A* target = sums + place(index) * step;
      for (int64_t i = 0; i < columns; ++i) target[i] = static_cast<A>(target[i] + convert<A>(source[i]));
    } else {
      for (int64_t i = 0; i < columns; ++i) {
        A& target = sums[place(index + i * p.index.inner_stride) * step + i];
        target = static_cast<A>(target + convert<A>(source[i]));
      }
    }
  }
}

/// A column of out is owned by one task and summed in the order of the source: the same bits for any number of threads.
template <class T>
Status scatter_add_kernel(const Context& ctx, const ScatterAddParams& p) {
  if (const Status status = check_index(ctx, p); status != Status::ok) return status;
  constexpr bool kHalf = std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>;
  const int64_t blocks = (p.inner + kColumns - 1) / kColumns, width = std::min(p.inner, kColumns);
  const int64_t work = std::max<int64_t>(1, (p.size + p.dim_size) * width);
  ctx.parallel_for(p.outer * blocks, std::max<int64_t>(1, kTask / work), [&](int64_t begin, int64_t end) {
    const Scratch<float> sums(ctx, kHalf ? p.dim_size * width : 0);
    for (int64_t t = begin; t < end; ++t) {
      const int64_t o = t / blocks, first = t % blocks * kColumns, columns = std::min(kColumns, p.inner - first);
      T* out = static_cast<T*>(p.out) + o * p.dim_size * p.inner + first;
      if constexpr (kHalf) {
        scatter_columns<T>(p, o, first, columns, sums.data(), width);
        for (int64_t r = 0; r < p.dim_size; ++r) {
          store(out + r * p.inner, dtype_of<T>, columns, 1, sums.data() + r * width);
        }
      } else {
        scatter_columns<T>(p, o, first, columns, out, p.inner);
      }
    }
  });
  return Status::ok;
}

template <class T>
Status one_hot_kernel(const Context& ctx, const OneHotParams& p) {
  for (int64_t i = 0; i < p.count; ++i) {
    if (p.labels[i] >= 0 && p.labels[i] < p.classes) continue;
    return ctx.error(Status::index_error, "label %lld at position %lld is outside [0, %lld).",
                     static_cast<long long>(p.labels[i]), static_cast<long long>(i), static_cast<long long>(p.classes));
  }
  T* out = static_cast<T*>(p.out);
  const T one = convert<T>(1.0f);
  std::memset(static_cast<void*>(out), 0, static_cast<size_t>(p.count * p.classes) * sizeof(T));
  for (int64_t i = 0; i < p.count; ++i) out[i * p.classes + p.labels[i]] = one;
  return Status::ok;
}

#define ANELLO_GATHER(T, ...)                            \
  ANELLO_KERNEL(kGather, gather_kernel<T>, __VA_ARGS__); \
  ANELLO_KERNEL(kIndexSelect, gather_kernel<T>, __VA_ARGS__);
ANELLO_GATHER(uint8_t, {bool_, uint8, int8})
ANELLO_GATHER(uint16_t, {int16, float16, bfloat16})
ANELLO_GATHER(uint32_t, {int32, float32})
ANELLO_GATHER(uint64_t, {int64, float64})

#define ANELLO_SCATTER(T) ANELLO_KERNEL(kScatterAdd, scatter_add_kernel<T>, {dtype_of<T>});
#define ANELLO_ONE_HOT(T) ANELLO_KERNEL(kOneHot, one_hot_kernel<T>, {dtype_of<T>});
#define ANELLO_EACH_NUMBER(ROW) \
  ROW(uint8_t) ROW(int8_t) ROW(int16_t) ROW(int32_t) ROW(int64_t) ROW(Float16) ROW(BFloat16) ROW(float) ROW(double)
ANELLO_EACH_NUMBER(ANELLO_SCATTER)
ANELLO_EACH_NUMBER(ANELLO_ONE_HOT)
ANELLO_ONE_HOT(bool)

}  // namespace
}  // namespace anello::kernel
