// Comparisons, logic and selection.
// Main entry: eq(), lt(), logical_and(), where(), ... of autograd/functions.h. Bool results carry no gradient.
#include <anello/autograd/functions/elementwise.h>

namespace anello {

using detail::compute_binary;

#define ANELLO_COMPARISON(function, Functor)                                                        \
  Tensor function(const Tensor& a, const Tensor& b) {                                               \
    return compute_binary<k##Functor>(#function, a, b, promote_types(a.dtype(), b.dtype()), bool_); \
  }                                                                                                 \
  Tensor function(const Tensor& a, Scalar b) {                                                      \
    return compute_binary<k##Functor>(a, b, promote_types(a.dtype(), b), bool_);                    \
  }
ANELLO_COMPARISON(eq, Eq)
ANELLO_COMPARISON(ne, Ne)
ANELLO_COMPARISON(lt, Lt)
ANELLO_COMPARISON(le, Le)
ANELLO_COMPARISON(gt, Gt)
ANELLO_COMPARISON(ge, Ge)
#undef ANELLO_COMPARISON

#define ANELLO_LOGIC(function, Functor)                                                             \
  Tensor function(const Tensor& a, const Tensor& b) {                                               \
    return compute_binary<k##Functor>(#function, a, b, promote_types(a.dtype(), b.dtype()), bool_); \
  }
ANELLO_LOGIC(logical_and, LogicalAnd)
ANELLO_LOGIC(logical_or, LogicalOr)
ANELLO_LOGIC(logical_xor, LogicalXor)
#undef ANELLO_LOGIC

Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b) {
  check<DTypeError>(condition.dtype() == bool_, "where", "the condition is ", condition.dtype(),
                    ", not bool. Hint: compare it, as in ne(x, 0).");
  detail::check_same_device("where", a, b);
  detail::check_same_device("where", condition, a);
  Shape shape = detail::common_shape("where", a, b);
  if (!(condition.shape() == shape)) shape = broadcast_shapes("where", condition.shape(), shape);
  const DType dtype = promote_types(a.dtype(), b.dtype());
  const Tensor y = empty(shape, dtype, a.device());
  if (y.numel() > 0) {
    WhereParams params;
    params.out = operand(y, shape);
    params.condition = operand(condition, shape);
    params.a = operand(a, shape);
    params.b = operand(b, shape);
    set_sizes(params, shape);
    launch<kWhere>(y.device(), dtype, params);
  }
  return record("where", {&condition, &a, &b}, {&condition}, y, [](Backward& bw) {
    const Tensor mask = bw.saved(0), zero = constant(bw.grad(), 0);
    if (bw.needs(1)) bw.give(1, where(mask, bw.grad(), zero));
    if (bw.needs(2)) bw.give(2, where(mask, zero, bw.grad()));
  });
}

}  // namespace anello
