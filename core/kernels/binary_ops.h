// The table of binary functions: one row and one functor each.
// Main entry: ANELLO_BINARY_TABLE(ROW).
//
// Functors use the vocabulary described in unary_ops.h; comparisons return its mask, which is stored as bool.
#pragma once

#include <anello/core/kernels/unary_ops.h>

namespace anello {

// ROW(function name, Functor, dtypes): the key dtypes it is registered for. The key dtype is the promoted dtype of the
// operands; it is the result's too, or bool for a functor that returns a mask.
#define ANELLO_BINARY_TABLE(ROW)               \
  ROW(add, Add, kAllTypes)                     \
  ROW(mul, Mul, kAllTypes)                     \
  ROW(div, Div, kFloatTypes)                   \
  ROW(floor_divide, FloorDivide, kNumberTypes) \
  ROW(remainder, Remainder, kNumberTypes)      \
  ROW(pow, Pow, kNumberTypes)                  \
  ROW(maximum, Maximum, kAllTypes)             \
  ROW(minimum, Minimum, kAllTypes)             \
  ROW(eq, Eq, kAllTypes)                       \
  ROW(ne, Ne, kAllTypes)                       \
  ROW(lt, Lt, kAllTypes)                       \
  ROW(le, Le, kAllTypes)                       \
  ROW(gt, Gt, kAllTypes)                       \
  ROW(ge, Ge, kAllTypes)                       \
  ROW(logical_and, LogicalAnd, kAllTypes)      \
  ROW(logical_or, LogicalOr, kAllTypes)        \
  ROW(logical_xor, LogicalXor, kAllTypes)

namespace ops {

struct Add {  // a + alpha b
  template <class T>
  ANELLO_FUNCTOR T forward(const T& a, const T& b, double alpha) {
    return a + b * alpha;
  }
};
struct Mul {
  template <class T>
  ANELLO_FUNCTOR T forward(const T& a, const T& b, double) {
    return a * b;
  }
};
struct Div {
  template <class T>
  ANELLO_FUNCTOR T forward(const T& a, const T& b, double) {
    return a / b;
  }
};
struct FloorDivide {  // rounds toward minus infinity; an integer by 0 is a value_error
  template <class T>
  ANELLO_FUNCTOR T forward(const T& a, const T& b, double) {
    return floor_divide(a, b);
  }
};
struct Remainder {  // the sign of b, as Python's %
  template <class T>
  ANELLO_FUNCTOR T forward(const T& a, const T& b, double) {
    return remainder(a, b);
  }
};
struct Pow {  // an integer with a negative exponent is a value_error
  template <class T>
  ANELLO_FUNCTOR T forward(const T& a, const T& b, double) {
    return pow(a, b);
  }
};
struct Maximum {  // NaN if either is NaN
  template <class T>
  ANELLO_FUNCTOR T forward(const T& a, const T& b, double) {
    return maximum(a, b);
  }
};
struct Minimum {
  template <class T>
  ANELLO_FUNCTOR T forward(const T& a, const T& b, double) {
    return minimum(a, b);
  }
};
struct Eq {
  template <class T>
  ANELLO_FUNCTOR auto forward(const T& a, const T& b, double) {
    return eq(a, b);
  }
};
struct Ne {
  template <class T>
  ANELLO_FUNCTOR auto forward(const T& a, const T& b, double) {
    return ne(a, b);
  }
};
struct Lt {
  template <class T>
  ANELLO_FUNCTOR auto forward(const T& a, const T& b, double) {
    return lt(a, b);
  }
};
struct Le {
  template <class T>
  ANELLO_FUNCTOR auto forward(const T& a, const T& b, double) {
    return le(a, b);
  }
};
struct Gt {
  template <class T>
  ANELLO_FUNCTOR auto forward(const T& a, const T& b, double) {
    return gt(a, b);
  }
};
struct Ge {
  template <class T>
  ANELLO_FUNCTOR auto forward(const T& a, const T& b, double) {
    return ge(a, b);
  }
};
struct LogicalAnd {
  template <class T>
  ANELLO_FUNCTOR auto forward(const T& a, const T& b, double) {
    return ne(a, 0.0) & ne(b, 0.0);
  }
};
struct LogicalOr {
  template <class T>
  ANELLO_FUNCTOR auto forward(const T& a, const T& b, double) {
    return ne(a, 0.0) | ne(b, 0.0);
  }
};
struct LogicalXor {
  template <class T>
  ANELLO_FUNCTOR auto forward(const T& a, const T& b, double) {
    return ne(a, 0.0) ^ ne(b, 0.0);
  }
};

}  // namespace ops

#define ANELLO_BINARY_TAG(function, Functor, dtypes) inline constexpr KernelTag<BinaryParams> k##Functor{#function};
ANELLO_BINARY_TABLE(ANELLO_BINARY_TAG)
#undef ANELLO_BINARY_TAG

}  // namespace anello
