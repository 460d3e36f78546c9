// Names and promotion of element types.
// Main entry: promote_types(), dtype_from_name().
#include <anello/core/dtype.h>
#include <anello/core/error.h>
#include <anello/core/suggest.h>

#include <algorithm>
#include <array>
#include <ostream>

namespace anello {
namespace {

constexpr std::array<std::string_view, kDTypeCount> kNames = {"bool",  "uint8",   "int8",     "int16",   "int32",
                                                              "int64", "float16", "bfloat16", "float32", "float64"};

DType promote_integers(DType a, DType b) {
  if (a == DType::bool_) return b;
  if (b == DType::bool_) return a;
  const bool mixed = (a == DType::uint8) != (b == DType::uint8);
  const DType wider = std::max(a, b);  // the enum is ordered by width within the signed ones
  return mixed ? std::max(wider, DType::int16) : wider;
}

}  // namespace

std::string_view name(DType dtype) { return kNames[static_cast<size_t>(dtype)]; }

DType dtype_from_name(std::string_view wanted) {
  for (size_t i = 0; i < kNames.size(); ++i)
    if (kNames[i] == wanted) return static_cast<DType>(i);
  fail<DTypeError>("dtype", "unknown dtype '", wanted, "'.", suggest(wanted, {kNames.begin(), kNames.end()}));
}

std::ostream& operator<<(std::ostream& out, DType dtype) { return out << name(dtype); }

DType promote_types(DType a, DType b) {
  if (a == b) return a;
  const bool float_a = is_floating_point(a), float_b = is_floating_point(b);
  if (float_a != float_b) return float_a ? a : b;
  if (!float_a) return promote_integers(a, b);
  return std::max({a, b, item_size(a) == item_size(b) ? DType::float32 : DType::float16});
}

}  // namespace anello
