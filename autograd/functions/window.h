// A basic index made plain: where it starts and steps in each dim of a tensor, and which dims are left.
// Main entry: take_window(), put_window(), used by slice, select, index, index_set.
#pragma once

#include <anello/core/tensor.h>

namespace anello::detail {

/// Elements start, start + step, ... (`size` of them) in each dim of the tensor; `source[i]` is the dim that dim i of
/// the result comes from, -1 for a new one of size 1. Dims that no result dim names have size 1.
struct Window {
  Shape start, step, size, source;
  /// All of a tensor.
  explicit Window(const Shape& shape)
      : start(Shape::filled(shape.size(), 0)), step(Shape::filled(shape.size(), 1)), size(shape) {
    for (int i = 0; i < shape.size(); ++i) source.push_back(i);
  }
};

/// The window of a tensor as a view that shares its storage; not recorded.
Tensor window_view(const Tensor& x, const Window& window);
/// window_view, recorded.
Tensor take_window(const char* name, const Tensor& x, const Window& window);
/// A copy of x in which the window's elements are value (broadcast to it); recorded.
Tensor put_window(const char* name, const Tensor& x, const Window& window, const Tensor& value);

/// Narrows dim to start:stop:step with Python's rules for negative and outlying bounds; raises ValueError unless step >
/// 0.
void narrow(const char* name, Window& window, int dim, int64_t start, int64_t stop, int64_t step);
/// Narrows dim to one index; raises IndexError outside. The caller takes the dim out of `source`.
void pick(const char* name, Window& window, int dim, int64_t index);

}  // namespace anello::detail
