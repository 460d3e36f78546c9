// Windows of tensors: the views behind basic indexing, and their gradients.
// Main entry: take_window(), put_window().
#include <anello/autograd/functions/window.h>
#include <anello/autograd/node.h>

#include <algorithm>

namespace anello::detail {
namespace {

/// Zeros of `shape` with grad in the window: the gradient of taking it.
Tensor spread_window(const Tensor& grad, const Window& window, const Shape& shape) {
  Tensor out = zeros(shape, grad.dtype(), grad.device());
  copy_into(window_view(out, window), grad);
  return record("window_grad", {&grad}, {}, out,
                [window](Backward& bw) { bw.give(0, take_window("window", bw.grad(), window)); });
}

}  // namespace

Tensor window_view(const Tensor& x, const Window& window) {
  int64_t offset = x.storage_offset();
  bool empty = false;
  for (int i = 0; i < window.size.size(); ++i) {
    offset += window.start[i] * x.strides()[i];
    empty = empty || window.size[i] == 0;
  }
  Shape shape;
  Strides strides;
  for (int64_t source : window.source) {
    const int i = static_cast<int>(source);
    shape.push_back(source < 0 ? 1 : window.size[i]);
    strides.push_back(source < 0 ? 1 : x.strides()[i] * window.step[i]);
  }
  // An empty window may start one past the end of the storage.
  return as_strided(x, shape, strides, empty ? x.storage_offset() : offset);
}

Tensor take_window(const char* name, const Tensor& x, const Window& window) {
  return record_view(name, {&x}, {}, window_view(x, window),
                     [window](Backward& bw) { bw.give(0, spread_window(bw.grad(), window, bw.input_shape(0))); });
}

Tensor put_window(const char* name, const Tensor& x, const Window& window, const Tensor& value) {
  Tensor out = copy_as(x, x.dtype());
  copy_into(window_view(out, window), value);
  return record(name, {&x, &value}, {}, out, [window](Backward& bw) {
    const Tensor& g = bw.grad();
    if (bw.needs(0)) bw.give(0, put_window("index_set", g, window, zeros({}, g.dtype(), g.device())));
    if (bw.needs(1)) bw.give(1, take_window("window", g, window));
  });
}

void narrow(const char* name, Window& window, int dim, int64_t start, int64_t stop, int64_t step) {
  check<ValueError>(step > 0, name, "step is ", step, " in dim ", dim,
                    ". Hint: steps are positive; use flip to reverse.");
  const int64_t n = window.size[dim];
  const auto clip = [n](int64_t at) { return std::clamp(at < 0 ? at + n : at, int64_t{0}, n); };
  start = clip(start), stop = clip(stop);
  window.start[dim] = start;
  window.step[dim] = step;
  window.size[dim] = stop > start ? (stop - start - 1) / step + 1 : 0;
}

void pick(const char* name, Window& window, int dim, int64_t index) {
  const int64_t n = window.size[dim];
  check<IndexError>(index >= -n && index < n, name, "index ", index, " is outside [", -n, ", ", n, ") of dim ", dim,
                    ".");
  window.start[dim] = index < 0 ? index + n : index;
  window.size[dim] = 1;
}

}  // namespace anello::detail
