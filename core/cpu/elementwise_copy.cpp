// Copies with conversion, fills, ranges, selection.
// Main entry: kernels of kCopy, kFill, kArange, kWhere.
#include <anello/core/cpu/tiles.h>
#include <anello/core/cpu/vec.h>

#include <cstring>

namespace anello::kernel {
namespace {

constexpr int64_t kCopyGrain = 65536;  // elements
constexpr int64_t kBlock = 32;         // edge of a transposition block

/// Copies between equal element types of size sizeof(U), bit for bit.
template <class U>
class PlainCopy {
 public:
  PlainCopy(const Context& ctx, const Plan& plan) : ctx_(ctx), plan_(plan), last_(plan.dims - 1) {}

  void run() {
    if (plan_.rows == 1 && out_stride(last_) == 1 && in_stride(last_) == 1) return flat();
    for (int d = 0; d < last_; ++d)
      if (in_stride(d) == 1 && in_stride(last_) > 1 && plan_.sizes[d] > 1) return transposed(d);
    rows();
  }

 private:
  U* out() const { return reinterpret_cast<U*>(plan_.data[0]); }
  const U* in() const { return reinterpret_cast<const U*>(plan_.data[1]); }
  int64_t out_stride(int d) const { return plan_.strides[0][d]; }
  int64_t in_stride(int d) const { return plan_.strides[1][d]; }

  void flat() {
    ctx_.parallel_for(plan_.inner, kCopyGrain * 4, [&](int64_t begin, int64_t end) {
      std::memmove(out() + begin, in() + begin, static_cast<size_t>(end - begin) * sizeof(U));
    });
  }

  void rows() {
    const int64_t n = plan_.inner, so = out_stride(last_), si = in_stride(last_);
    ctx_.parallel_for(plan_.rows, std::max<int64_t>(1, kCopyGrain / n), [&](int64_t begin, int64_t end) {
      RowCursor cursor(plan_, begin);
      for (int64_t r = begin; r < end; ++r) {
        U* to = out() + cursor.offset[0];
        const U* from = in() + cursor.offset[1];
        if (so == 1 && si == 1 && n >= 16)
          std::memmove(to, from, static_cast<size_t>(n) * sizeof(U));
        else
          for (int64_t i = 0; i < n; ++i) to[i * so] = from[i * si];
        if (r + 1 < end) cursor.advance(1);
      }
    });
  }

  /// Dim d runs along the input's memory, the last one along the output's: small squares keep both in cache.
  void transposed(int d) {
    const int64_t n = plan_.inner, m = plan_.sizes[d], blocks = (m + kBlock - 1) / kBlock;
    const int64_t units = plan_.rows / m * blocks;
    ctx_.parallel_for(units, std::max<int64_t>(1, kCopyGrain / (n * kBlock)), [&](int64_t begin, int64_t end) {
      for (int64_t u = begin; u < end; ++u) {
        int64_t rest = u / blocks, to = 0, from = 0;
        for (int k = last_ - 1; k >= 0; --k) {
          if (k == d) continue;
          const int64_t i = rest % plan_.sizes[k];
          rest /= plan_.sizes[k];
          to += i * out_stride(k), from += i * in_stride(k);
        }
        const int64_t i0 = u % blocks * kBlock, i1 = std::min(m, i0 + kBlock);
        for (int64_t j0 = 0; j0 < n; j0 += kBlock)
          square(d, out() + to, in() + from, i0, i1, j0, std::min(n, j0 + kBlock));
      }
    });
  }
  void square(int d, U* to, const U* from, int64_t i0, int64_t i1, int64_t j0, int64_t j1) {
    for (int64_t i = i0; i < i1; ++i)
      for (int64_t j = j0; j < j1; ++j) to[i * out_stride(d) + j * out_stride(last_)] = from[i + j * in_stride(last_)];
  }

  const Context& ctx_;
  const Plan& plan_;
  int last_;
};

template <class C>
void copy_tile(C* out, const C* const* in, int64_t n, const void*) {
  if (out != in[0]) std::memcpy(out, in[0], static_cast<size_t>(n) * sizeof(C));
}

void plain_copy(const Context& ctx, const UnaryParams& p) {
  for (int d = 0; d < p.dims; ++d)
    if (p.sizes[d] == 0) return;
  const Operand* operands[] = {&p.out, &p.x};
  const Plan plan = make_plan(p.sizes, p.dims, operands, 2);
  switch (item_size(p.x.dtype)) {
    case 1:
      return PlainCopy<uint8_t>(ctx, plan).run();
    case 2:
      return PlainCopy<uint16_t>(ctx, plan).run();
    case 4:
      return PlainCopy<uint32_t>(ctx, plan).run();
    default:
      return PlainCopy<uint64_t>(ctx, plan).run();
  }
}

Status copy(const Context& ctx, const UnaryParams& p) {
  if (p.out.dtype == p.x.dtype) {
    plain_copy(ctx, p);
    return Status::ok;
  }
  const TileJob job{p.sizes, p.dims, &p.out, {&p.x}, 1};
  // Integers of at most 16 bits are exact in float32, which converts faster than int64 does.
  const bool small = !is_floating_point(p.x.dtype) && item_size(p.x.dtype) <= 2 && is_floating_point(p.out.dtype);
  with_compute_type(small ? DType::float32 : p.x.dtype, [&]<class C>(C) { run_tiles<C>(ctx, job, copy_tile<C>); });
  return Status::ok;
}

/// The arguments hold the value.
template <class C>
void fill_tile(C* out, const C* const*, int64_t n, const void* value) {
  std::fill_n(out, n, *static_cast<const C*>(value));
}

Status fill(const Context& ctx, const FillParams& p) {
  with_compute_type(p.out.dtype, [&]<class C>(C) {
    const C value = std::is_integral_v<C> ? static_cast<C>(p.int_value) : static_cast<C>(p.value);
    TileJob job{p.sizes, p.dims, &p.out, {}, 0};
    job.arguments = &value;
    run_tiles<C>(ctx, job, fill_tile<C>);
  });
  return Status::ok;
}

Status arange(const Context& ctx, const ArangeParams& p) {
  ctx.parallel_for(p.count, kCopyGrain, [&](int64_t begin, int64_t end) {
    const auto run = [&]<class C>(C start, C step) {
      C values[kTile];
      for (int64_t i = begin; i < end; i += kTile) {
        const int64_t n = std::min<int64_t>(kTile, end - i);
        for (int64_t k = 0; k < n; ++k) values[k] = start + static_cast<C>(i + k) * step;
        store_block(element(p.out, p.dtype, i), p.dtype, 1, 0, n, 1, values);
      }
    };
    if (is_floating_point(p.dtype))
      run(p.start, p.step);
    else
      run(p.int_start, p.int_step);
  });
  return Status::ok;
}

template <class C>
void where_tile(C* out, const C* const* in, int64_t n, const void*) {
  vec_loop<C, 3>(out, in, n, [](Vec<C> condition, Vec<C> a, Vec<C> b) { return where(ne(condition, 0.0), a, b); });
}

Status select(const Context& ctx, const WhereParams& p) {
  const TileJob job{p.sizes, p.dims, &p.out, {&p.condition, &p.a, &p.b}, 3};
  with_compute_type(p.out.dtype, [&]<class C>(C) { run_tiles<C>(ctx, job, where_tile<C>); });
  return Status::ok;
}

ANELLO_KERNEL(kCopy, copy, kAllTypes);
ANELLO_KERNEL(kFill, fill, kAllTypes);
ANELLO_KERNEL(kArange, arange, kNumberTypes);
ANELLO_KERNEL(kWhere, select, kAllTypes);

}  // namespace
}  // namespace anello::kernel
