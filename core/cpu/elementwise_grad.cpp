// Fused backward kernels of the unary table: dx = dy times the derivative, in one pass.
// Main entry: grad_kernel<Functor>, one instantiation a row that saves its input or output.
#include <anello/core/cpu/tiles.h>
#include <anello/core/cpu/vec_math.h>
#include <anello/core/kernels/unary_ops.h>

namespace anello::kernel {
namespace {

constexpr int64_t kGrain = 8192;

template <class F, class C>
void grad_tile(C* dx, const C* const* in, int64_t n, const void* arguments) {
  const auto& p = *static_cast<const UnaryGradParams*>(arguments);
  const double alpha = p.alpha, beta = p.beta;
  vec_loop<C, 2>(dx, in, n, [=](Vec<C> dy, Vec<C> saved) { return F::derivative(dy, saved, alpha, beta); });
}

template <class F>
Status grad_kernel(const Context& ctx, const UnaryGradParams& p) {
  if constexpr (F::kSaves == Saves::input || F::kSaves == Saves::output) {
    TileJob job{p.sizes, p.dims, &p.dx, {&p.dy, &p.saved}, 2, &p};
    job.grain = kGrain;
    with_float_type(p.dy.dtype, [&]<class C>(C) { run_tiles<C>(ctx, job, grad_tile<F, C>); });
  }
  return Status::ok;
}

template <class F>
constexpr std::initializer_list<DType> grad_types() {
  return F::kSaves == Saves::input || F::kSaves == Saves::output ? kFloatTypes : std::initializer_list<DType>{};
}

#define ANELLO_ROW(function, Functor, integers) \
  ANELLO_KERNEL(k##Functor##Grad, grad_kernel<ops::Functor>, grad_types<ops::Functor>());
ANELLO_UNARY_TABLE(ANELLO_ROW)

}  // namespace
}  // namespace anello::kernel
