// Arithmetic on shapes and strides.
// Main entry: broadcast_shapes(), normalize_dim().
#include <anello/core/error.h>
#include <anello/core/shape.h>

#include <ostream>

namespace anello {

void Shape::insert(int at, int64_t value) {
  push_back(value);
  std::rotate(begin() + at, end() - 1, end());
}

void Shape::erase(int at) {
  std::copy(begin() + at + 1, end(), begin() + at);
  --count_;
}

void Shape::fail_too_long() {
  fail<ShapeError>("shape", "more than ", kMaxDims, " dims. Hint: merge dims with reshape.");
}

std::ostream& operator<<(std::ostream& out, const Shape& shape) {
  out << '(';
  for (int i = 0; i < shape.size(); ++i) out << (i == 0 ? "" : ", ") << shape[i];
  return out << (shape.size() == 1 ? ",)" : ")");
}

Strides contiguous_strides(const Shape& shape) {
  Strides strides = Shape::filled(shape.size(), 1);
  for (int i = shape.size() - 2; i >= 0; --i) strides[i] = strides[i + 1] * std::max<int64_t>(shape[i + 1], 1);
  return strides;
}

bool is_contiguous(const Shape& shape, const Strides& strides) {
  int64_t expected = 1;
  for (int i = shape.size() - 1; i >= 0; --i) {
    if (shape[i] == 0) return true;
    if (shape[i] == 1) continue;
    if (strides[i] != expected) {
      // A 0 further left makes any strides contiguous.
      return std::find(shape.begin(), shape.end(), 0) != shape.end();
    }
    expected *= shape[i];
  }
  return true;
}

Shape broadcast_shapes(std::string_view op, const Shape& a, const Shape& b) {
  if (a == b) return a;
  const Shape& longer = a.size() >= b.size() ? a : b;
  const Shape& shorter = a.size() >= b.size() ? b : a;
  Shape result = longer;
  const int shift = longer.size() - shorter.size();
  for (int i = 0; i < shorter.size(); ++i) {
    int64_t& size = result[i + shift];
    if (size == shorter[i] || shorter[i] == 1) continue;
    check<ShapeError>(size == 1, op, "shapes ", a, " and ", b, " do not broadcast: ", size, " and ", shorter[i],
                      " differ at dim ", i + shift, ". Hint: sizes must be equal or 1, counted from the last dim.");
    size = shorter[i];
  }
  return result;
}

int normalize_dim(std::string_view op, int64_t dim, int ndim) {
  const int64_t range = std::max(ndim, 1);
  check<ShapeError>(dim >= -range && dim < range, op, "dim ", dim, " is out of range for ", ndim, " dims. Hint: use ",
                    -range, " to ", range - 1, ".");
  return static_cast<int>(dim < 0 ? dim + range : dim);
}

std::vector<int> normalize_dims(std::string_view op, const std::vector<int64_t>& dims, int ndim) {
  std::vector<int> result;
  if (dims.empty()) {
    for (int i = 0; i < ndim; ++i) result.push_back(i);
    return result;
  }
  for (int64_t dim : dims) {
    const int d = normalize_dim(op, dim, ndim);
    check<ShapeError>(std::find(result.begin(), result.end(), d) == result.end(), op, "dim ", dim, " is listed twice.");
    result.push_back(d);
  }
  std::sort(result.begin(), result.end());
  if (ndim == 0) result.clear();
  return result;
}

}  // namespace anello
