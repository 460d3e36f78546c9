// Shapes and strides: a short list of 64-bit sizes that never allocates, and the arithmetic on it.
// Main entry: Shape, broadcast_shapes(), normalize_dim().
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <string_view>
#include <vector>

namespace anello {

/// Largest number of dims of a tensor.
inline constexpr int kMaxDims = 12;

/// A list of up to kMaxDims 64-bit integers, by value, without allocation. Raises ShapeError beyond that.
class Shape {
 public:
  Shape() = default;
  Shape(std::initializer_list<int64_t> sizes) : Shape(sizes.begin(), sizes.end()) {}
  Shape(const std::vector<int64_t>& sizes) : Shape(sizes.begin(), sizes.end()) {}  // implicit: `reshape(x, vector)`
  template <class Iterator>
  Shape(Iterator first, Iterator last) {
    for (; first != last; ++first) push_back(*first);
  }
  /// `count` sizes of `value`.
  static Shape filled(int count, int64_t value) {
    Shape s;
    for (int i = 0; i < count; ++i) s.push_back(value);
    return s;
  }
  Shape(const Shape& other) : count_(other.count_) { std::copy_n(other.sizes_, count_, sizes_); }
  Shape& operator=(const Shape& other) {
    count_ = other.count_;
    std::copy_n(other.sizes_, count_, sizes_);
    return *this;
  }

  int size() const { return count_; }
  bool empty() const { return count_ == 0; }
  int64_t& operator[](int i) { return sizes_[i]; }
  int64_t operator[](int i) const { return sizes_[i]; }
  int64_t back() const { return sizes_[count_ - 1]; }
  const int64_t* data() const { return sizes_; }
  int64_t* begin() { return sizes_; }
  int64_t* end() { return sizes_ + count_; }
  const int64_t* begin() const { return sizes_; }
  const int64_t* end() const { return sizes_ + count_; }
  void push_back(int64_t value) {
    if (count_ == kMaxDims) [[unlikely]]
      fail_too_long();
    sizes_[count_++] = value;
  }
  void pop_back() { --count_; }
  void insert(int at, int64_t value);
  void erase(int at);
  std::vector<int64_t> vector() const { return {begin(), end()}; }
  friend bool operator==(const Shape& a, const Shape& b) { return std::equal(a.begin(), a.end(), b.begin(), b.end()); }

 private:
  [[noreturn]] static void fail_too_long();
  int64_t sizes_[kMaxDims];
  int count_ = 0;
};
using Strides = Shape;  ///< in elements, may be 0 (broadcast) or negative is never produced

/// "(8, 3)", "(3,)", "()".
std::ostream& operator<<(std::ostream& out, const Shape& shape);

/// Product of the sizes (1 for a scalar).
inline int64_t numel(const Shape& shape) {
  int64_t n = 1;
  for (int64_t s : shape) n *= s;
  return n;
}
/// Row-major strides in elements.
Strides contiguous_strides(const Shape& shape);
/// True when the strides walk the shape row-major without gaps (dims of size 1 are ignored; empty is contiguous).
bool is_contiguous(const Shape& shape, const Strides& strides);
/// NumPy broadcasting of two shapes; raises ShapeError naming op and both shapes.
Shape broadcast_shapes(std::string_view op, const Shape& a, const Shape& b);
/// Maps dim in [-ndim, ndim) to [0, ndim); raises ShapeError naming op, dim and range. A scalar accepts 0 and -1.
int normalize_dim(std::string_view op, int64_t dim, int ndim);
/// normalize_dim of each, checked for repeats; an empty list means all dims.
std::vector<int> normalize_dims(std::string_view op, const std::vector<int64_t>& dims, int ndim);

}  // namespace anello
