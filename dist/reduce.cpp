// The arithmetic of reductions: the kernel of the CPU library in use.
// Main entry: reduce(), reduce_to_all().
#include <anello/core/kernels/combine.h>
#include <anello/core/registry.h>
#include <anello/dist/reduce.h>

namespace anello::dist {
namespace {

CombineOp kernel_op(ReduceOp op) {
  switch (op) {
    case ReduceOp::min:
      return CombineOp::min;
    case ReduceOp::max:
      return CombineOp::max;
    case ReduceOp::product:
      return CombineOp::product;
    default:
      return CombineOp::sum;
  }
}

}  // namespace

void reduce(const Reduction& how, void* destination, const void* const* sources, int count, int64_t n) {
  reduce_to_all(how, &destination, 1, sources, count, n);
}

void reduce_to_all(const Reduction& how, void* const* destinations, int destination_count, const void* const* sources,
                   int source_count, int64_t n) {
  if (n == 0) return;
  launch<kCombine>(cpu, how.dtype,
                   {destinations, sources, destination_count, source_count, n, how.prescale, how.postscale, how.divisor,
                    kernel_op(how.op)});
}

void check_reduction(std::string_view where, const Reduction& how) {
  const bool sums = how.op == ReduceOp::sum || how.op == ReduceOp::average;
  check<DTypeError>(how.dtype != DType::bool_ || !sums, where, how.op,
                    " of bool has no meaning. Hint: max tells whether any is true, min whether all are.");
  check<DTypeError>(is_floating_point(how.dtype) || how.op != ReduceOp::average, where, "average of ", how.dtype,
                    " is not a whole number. Hint: convert to a float dtype, or use sum.");
  check<DTypeError>(is_floating_point(how.dtype) || (how.prescale == 1 && how.postscale == 1), where, "prescale ",
                    how.prescale, " and postscale ", how.postscale, " need a float dtype, this is ", how.dtype, '.');
}

}  // namespace anello::dist
