// Padding with a constant, or with what lies inside.
// Main entry: pad() of autograd/functions.h.
#include <anello/autograd/functions.h>
#include <anello/autograd/node.h>
#include <anello/core/suggest.h>

#include <algorithm>

namespace anello {
namespace {

constexpr int64_t kMost = int64_t{1} << 48;  // no sum with a size of memory overflows

uint64_t magnitude(int64_t v) { return v < 0 ? -static_cast<uint64_t>(v) : static_cast<uint64_t>(v); }

/// How much dim d grows before and after; `padding` lists pairs from the last dim backward.
struct Growth {
  int64_t before = 0, after = 0;
};
Growth growth(const std::vector<int64_t>& padding, int dim, int dims) {
  const size_t pair = static_cast<size_t>(dims - 1 - dim);
  if (2 * pair >= padding.size()) return {};
  return {padding[2 * pair], padding[2 * pair + 1]};
}

Tensor pad_constant(const Tensor& x, const std::vector<int64_t>& padding, const Shape& shape, double value) {
  Tensor out = full(shape, value, x.dtype(), x.device());
  // Element i of out is element i - before of x, where there is one.
  Shape kept;
  int64_t from = x.storage_offset(), to = 0;
  for (int d = 0; d < x.dim(); ++d) {
    const int64_t before = growth(padding, d, x.dim()).before;
    const int64_t first = std::max<int64_t>(before, 0), last = std::min(shape[d], x.shape()[d] + before);
    kept.push_back(std::max<int64_t>(last - first, 0));
    to += first * out.strides()[d];
    from += (first - before) * x.strides()[d];
  }
  if (numel(kept) > 0) copy_into(as_strided(out, kept, out.strides(), to), as_strided(x, kept, x.strides(), from));
  return record("pad", {&x}, {}, out, [padding](Backward& bw) {
    std::vector<int64_t> back = padding;
    for (int64_t& p : back) p = -p;
    bw.give(0, pad(bw.grad(), back));
  });
}

enum class Mode { reflect, replicate, circular };

/// The element of [0, n) that place i (which may lie outside) shows.
int64_t source_of(Mode mode, int64_t i, int64_t n) {
  if (mode == Mode::replicate) return std::clamp<int64_t>(i, 0, n - 1);
  if (mode == Mode::circular) return (i % n + n) % n;
  return i < 0 ? -i : i >= n ? 2 * (n - 1) - i : i;
}

Tensor pad_dim(const Tensor& x, int d, Growth g, Mode mode, std::string_view mode_name) {
  const int64_t n = x.shape()[d], most = mode == Mode::reflect ? n - 1 : n;
  check<ShapeError>(n > 0, "pad", "dim ", d, " of shape ", x.shape(), " is empty: there is nothing to ", mode_name,
                    ".");
  check<ShapeError>(mode == Mode::replicate || std::max(g.before, g.after) <= most, "pad", mode_name, " padding of (",
                    g.before, ", ", g.after, ") for dim ", d, " of size ", n, ": at most ", most, " is there.");
  const Tensor places = empty({g.before + n + g.after}, int64);
  auto* place = places.data<int64_t>();
  for (int64_t i = -g.before; i < n + g.after; ++i) *place++ = source_of(mode, i, n);
  return index_select(x, d, copy_to_device(places, x.device()));
}

}  // namespace

Tensor pad(const Tensor& x, const std::vector<int64_t>& padding, std::string_view mode, double value) {
  check<ShapeError>(padding.size() % 2 == 0 && static_cast<int>(padding.size()) <= 2 * x.dim(), "pad", padding.size(),
                    " numbers for shape ", x.shape(),
                    ". Hint: give (before, after) for each of the last dims, from the last.");
  Shape shape = x.shape();
  bool changes = false;
  for (int d = 0; d < x.dim(); ++d) {
    const Growth g = growth(padding, d, x.dim());
    check<ValueError>(std::max(magnitude(g.before), magnitude(g.after)) <= uint64_t{kMost}, "pad", "padding of (",
                      g.before, ", ", g.after, ") for dim ", d, ": at most ", kMost, " is possible.");
    shape[d] += g.before + g.after;
    changes = changes || g.before != 0 || g.after != 0;
    check<ShapeError>(shape[d] >= 0, "pad", "padding of (", g.before, ", ", g.after, ") crops more than dim ", d,
                      " of shape ", x.shape(), " has.");
  }
  if (mode == "constant") return pad_constant(x, padding, shape, value);
  const auto names = {"reflect", "replicate", "circular"};
  const auto found = std::find(names.begin(), names.end(), mode);
  check<ValueError>(found != names.end(), "pad", "unknown mode '", mode, "'.",
                    suggest(mode, {"constant", "reflect", "replicate", "circular"}));
  Tensor out = changes ? x : clone(x);
  for (int d = 0; d < x.dim(); ++d) {
    const Growth g = growth(padding, d, x.dim());
    if (g.before != 0 || g.after != 0) out = pad_dim(out, d, g, static_cast<Mode>(found - names.begin()), mode);
  }
  return out;
}

}  // namespace anello
