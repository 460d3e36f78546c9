// Small option types that layers share: a size for both directions of an image.
// Main entry: IntPair.
#pragma once

#include <anello/autograd/functions.h>

#include <ostream>

namespace anello::nn {

/// (height, width). One number stands for both: `.stride = 2` is `.stride = {2, 2}`.
struct IntPair : Pair {
  constexpr IntPair(int64_t both) : Pair{both, both} {}
  constexpr IntPair(int64_t height, int64_t width) : Pair{height, width} {}
  constexpr IntPair(const Pair& pair) : Pair(pair) {}
  friend std::ostream& operator<<(std::ostream& out, const IntPair& p) {
    return out << '(' << p[0] << ", " << p[1] << ')';
  }
};

namespace detail {
/// "True" or "False", as repr() spells options.
inline const char* yes_no(bool value) { return value ? "True" : "False"; }
/// Raises ValueError unless both numbers are at least `least`.
inline void check_pair(std::string_view op, const char* option, const IntPair& value, int64_t least) {
  check<ValueError>(value[0] >= least && value[1] >= least, op, option, " is ", value, ", at least ", least,
                    " is needed");
}
}  // namespace detail

}  // namespace anello::nn
