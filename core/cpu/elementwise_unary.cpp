// Forward kernels of the unary table.
// Main entry: unary_kernel<Functor>, one instantiation a row of ANELLO_UNARY_TABLE.
#include <anello/core/cpu/tiles.h>
#include <anello/core/cpu/vec_math.h>
#include <anello/core/kernels/unary_ops.h>

namespace anello::kernel {
namespace {

/// What a functor that computes transcendental functions costs, in elements of a plain one.
constexpr int64_t kGrain = 8192;

template <class F, class C>
void unary_tile(C* out, const C* const* in, int64_t n, const void* arguments) {
  const auto& p = *static_cast<const UnaryParams*>(arguments);
  const double alpha = p.alpha, beta = p.beta;
  vec_loop<C, 1>(out, in, n, [=](Vec<C> x) { return F::forward(x, alpha, beta); });
}

template <class F, bool kIntegers>
Status unary_kernel(const Context& ctx, const UnaryParams& p) {
  TileJob job{p.sizes, p.dims, &p.out, {&p.x}, 1, &p};
  job.grain = kGrain;
  const auto run = [&]<class C>(C) { run_tiles<C>(ctx, job, unary_tile<F, C>); };
  if constexpr (kIntegers)
    with_compute_type(p.x.dtype, run);
  else
    with_float_type(p.x.dtype, run);
  return Status::ok;
}

struct LogicalNot {
  template <class C>
  static Vec<C> forward(Vec<C> x, double, double) {
    return where(ne(x, 0.0), Vec<C>{}, Vec<C>::splat(C{1}));
  }
};
struct IsNan {
  template <class C>
  static Vec<C> forward(Vec<C> x, double, double) {
    return where(isnan(x), Vec<C>::splat(C{1}), Vec<C>{});
  }
};

#define ANELLO_DTYPES_yes kNumberTypes
#define ANELLO_DTYPES_no kFloatTypes
#define ANELLO_INTEGERS_yes true
#define ANELLO_INTEGERS_no false
#define ANELLO_ROW(function, Functor, integers) \
  ANELLO_KERNEL(k##Functor, (unary_kernel<ops::Functor, ANELLO_INTEGERS_##integers>), ANELLO_DTYPES_##integers);
ANELLO_UNARY_TABLE(ANELLO_ROW)
ANELLO_KERNEL(kLogicalNot, (unary_kernel<LogicalNot, true>), kAllTypes);
ANELLO_KERNEL(kIsNan, (unary_kernel<IsNan, true>), kAllTypes);

}  // namespace
}  // namespace anello::kernel
