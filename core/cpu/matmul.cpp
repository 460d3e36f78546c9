// The matrix product: panels of b, blocks of a, tiles in registers. A row of the result sums over k in order, so
// neither the cut into units nor the thread count shows in it. Main entry: matmul<A>().
#include <anello/core/cpu/convert.h>
#include <anello/core/cpu/matmul_small.h>
#include <anello/core/cpu/register_tile.h>
#include <anello/core/kernels/matmul.h>

#include <algorithm>
#include <cstring>

namespace anello::kernel {
namespace {

constexpr int64_t kDepth = 512;  // k of one pass: a panel of that depth stays in L1 or L2 for all rows of a unit
constexpr int64_t kUnitRows = 8 * kTileRows;
constexpr int64_t kPackedBytes = 16 << 20;  // panels of b at a time
constexpr int64_t kWantedUnits = 32;
constexpr int64_t kSmallProduct = 1 << 21;  // multiplications of a matrix below which a batch is run one matrix a unit

/// One product of a batch.
template <class A>
struct Product {
  const MatmulParams& p;
  const void *a, *b;
  void* out;
  bool direct_b;  ///< read b where it lies: it is used once
  EvenCut cut;    ///< registers of a row of the result in panels

  bool same() const { return p.dtype == dtype_of<A>; }
  int64_t tall() const { return tile_rows(cut.largest()); }
  int64_t first(int64_t panel) const { return cut.begin(panel) * kLanes<A>; }
  int64_t width(int64_t panel) const { return cut.size(panel) * kLanes<A>; }
  int64_t used(int64_t panel) const { return std::min(width(panel), p.n - first(panel)); }
};

/// The columns of op(b) that belong to panel `index` as [k][width], zeros beyond the last.
template <class A>
void pack_b(const Context& ctx, const Product<A>& m, int64_t index, A* panel) {
  const MatmulParams& p = m.p;
  const int64_t first = m.first(index), width = m.width(index), used = m.used(index);
  if (!p.trans_b) {
    A buffer[kTileColumns<A>];
    for (int64_t k = 0; k < p.k; ++k) {
      const A* from = load(element(m.b, p.dtype, k * p.ld_b + first), p.dtype, used, 1, buffer);
      std::memcpy(panel + k * width, from, static_cast<size_t>(used) * sizeof(A));
      std::fill_n(panel + k * width + used, width - used, A(0));
    }
    return;
  }
  constexpr int64_t kTogether = std::min(8, kLanes<A>);
  const Scratch<A> buffer(ctx, m.same() ? 0 : kTogether * p.k);
  for (int64_t column = 0; column < width; column += kTogether) {  // a few at a time: their rows may share cache sets
    const int64_t count = std::clamp<int64_t>(used - column, 0, kTogether);
    const A* rows[kTogether] = {};
    for (int64_t l = 0; l < count; ++l)
      rows[l] = load(element(m.b, p.dtype, (first + column + l) * p.ld_b), p.dtype, p.k, 1, buffer.data() + l * p.k);
    for (int64_t k = 0; k < p.k; ++k)
      for (int64_t l = 0; l < kTogether; ++l) panel[k * width + column + l] = l < count ? rows[l][k] : A(0);
  }
}

/// A block of op(a): rows [row, row + rows), k in [k0, k0 + depth), as the tiles read it.
template <class A>
struct LeftBlock {
  const A* data;
  int64_t ld;  ///< elements between rows; 0: an EvenCut of tiles, each [k][height]
};

template <class A>
LeftBlock<A> left_block(const Product<A>& m, int64_t row, int64_t rows, int64_t k0, int64_t depth, A* buffer) {
  const MatmulParams& p = m.p;
  if (!p.trans_a) {
    if (m.same()) return {static_cast<const A*>(m.a) + row * p.ld_a + k0, p.ld_a};
    for (int64_t i = 0; i < rows; ++i)
      load(element(m.a, p.dtype, (row + i) * p.ld_a + k0), p.dtype, depth, 1, buffer + i * depth);
    return {buffer, depth};
  }
  const EvenCut heights(rows, m.tall());
  A line[kUnitRows];
  for (int64_t k = 0; k < depth; ++k) {
    const A* from = load(element(m.a, p.dtype, (k0 + k) * p.ld_a + row), p.dtype, rows, 1, line);
    if (m.direct_b) {
      for (int64_t i = 0; i < rows; ++i) buffer[i * depth + k] = from[i];
    } else {
      for (int64_t q = 0; q < heights.pieces; ++q)
        std::memcpy(buffer + heights.begin(q) * depth + k * heights.size(q), from + heights.begin(q),
                    static_cast<size_t>(heights.size(q)) * sizeof(A));
    }
  }
  return {buffer, m.direct_b ? depth : 0};
}

/// One panel of b for a range of k.
template <class A>
struct Panel {
  const A* data;
  int64_t step, width, used;
};

/// c[rows][used] (+)= block * panel, in tiles of up to `tall` rows.
template <class A>
void multiply(const LeftBlock<A>& left, int64_t rows, int64_t tall, int64_t depth, const Panel<A>& panel, A* c,
              int64_t ld, bool add) {
  alignas(64) A tile[kTileRows * kTileColumns<A>];  // holds every shape of tile
  const int64_t vectors = panel.width / kLanes<A>;
  const auto run = [&](int64_t row, int64_t count, int64_t height, const auto& kernel) {
    A* to = c + row * ld;
    if (count == height && panel.used == panel.width) {
      kernel(to, ld);
      return;
    }
    const auto bytes = static_cast<size_t>(panel.used) * sizeof(A);
    if (add) {
      std::fill_n(tile, height * panel.width, A(0));
      for (int64_t i = 0; i < count; ++i) std::memcpy(tile + i * panel.width, to + i * ld, bytes);
    }
    kernel(tile, panel.width);
    for (int64_t i = 0; i < count; ++i) std::memcpy(to + i * ld, tile + i * panel.width, bytes);
  };
  if (left.ld == 0) {
    const EvenCut heights(rows, tall);
    for (int64_t q = 0; q < heights.pieces; ++q)
      run(heights.begin(q), heights.size(q), heights.size(q), [&](A* to, int64_t to_ld) {
        panel_function<A>(heights.size(q), vectors)(left.data + heights.begin(q) * depth, panel.data, nullptr, depth,
                                                    to, to_ld, add);
      });
    return;
  }
  const int32_t tap = 0;
  int64_t offsets[kTileRows];
  GatherTile<A> g{left.data, nullptr, offsets, &tap, 1, depth, panel.data, panel.step, nullptr};
  for (int64_t row = 0; row < rows; row += tall) {
    const int64_t count = std::min(tall, rows - row), height = gather_height(count, tall);
    for (int64_t i = 0; i < height; ++i) offsets[i] = (row + std::min(i, count - 1)) * left.ld;
    run(row, count, height, [&](A* to, int64_t to_ld) { gather_function<A>(height, vectors)(g, to, to_ld, add); });
  }
}

/// What the sum starts from, if not from zero: the old out, the bias, or both.
template <class A>
void start_rows(const MatmulParams& p, const void* out, int64_t row, int64_t rows, int64_t first, int64_t columns, A* c,
                int64_t ld, A* buffer) {
  const A* bias = p.bias == nullptr ? nullptr : load(element(p.bias, p.dtype, first), p.dtype, columns, 1, buffer);
  for (int64_t i = 0; i < rows; ++i) {
    A* to = c + i * ld;
    const A* old = nullptr;
    if (p.accumulate) old = load(element(out, p.dtype, (row + i) * p.ld_out + first), p.dtype, columns, 1, to);
    for (int64_t j = 0; j < columns; ++j) to[j] = (old == nullptr ? A(0) : old[j]) + (bias == nullptr ? A(0) : bias[j]);
  }
}

/// Rows [row, row + rows) of the result in the panels [begin, end). `packed` holds op(b) from panel packed_begin on,
/// unless b is read where it lies; then only a last panel that is not full is there.
template <class A>
void unit(const Context& ctx, const Product<A>& m, int64_t row, int64_t rows, int64_t begin, int64_t end,
          int64_t packed_begin, const A* packed) {
  const MatmulParams& p = m.p;
  const int64_t first = m.first(begin), columns = m.first(end - 1) + m.used(end - 1) - first;
  const bool copy_left = p.trans_a || !m.same(), started = p.accumulate || p.bias != nullptr || p.k == 0;
  const Scratch<A> left(ctx, copy_left ? rows * std::min(p.k, kDepth) : 0), sums(ctx, m.same() ? 0 : rows * columns);
  const Scratch<A> buffer(ctx, started ? columns : 0);
  A* c = m.same() ? static_cast<A*>(m.out) + row * p.ld_out + first : sums.data();
  const int64_t ld = m.same() ? p.ld_out : columns;
  if (started) start_rows(p, m.out, row, rows, first, columns, c, ld, buffer.data());
  for (int64_t k0 = 0; k0 < p.k; k0 += kDepth) {
    const int64_t depth = std::min(kDepth, p.k - k0);
    const LeftBlock<A> block = left_block(m, row, rows, k0, depth, left.data());
    for (int64_t i = begin; i < end; ++i) {
      const int64_t column = m.first(i), width = m.width(i), used = m.used(i);
      Panel<A> panel{nullptr, width, width, used};
      if (m.direct_b && used == width)
        panel.data = static_cast<const A*>(m.b) + k0 * p.ld_b + column, panel.step = p.ld_b;
      else
        panel.data = packed + (column - m.first(packed_begin)) * p.k + k0 * width;
      multiply(block, rows, m.tall(), depth, panel, c + column - first, ld, started || k0 > 0);
    }
  }
  if (!m.same())
    for (int64_t i = 0; i < rows; ++i)
      store(element(m.out, p.dtype, (row + i) * p.ld_out + first), p.dtype, columns, 1, c + i * ld);
}

template <class A>
void product(const Context& ctx, const Product<A>& m) {
  const MatmulParams& p = m.p;
  const int64_t row_units = divide_up(p.m, kUnitRows), panels = m.cut.pieces, depth = std::max<int64_t>(1, p.k);
  const int64_t fitting = kPackedBytes / (kTileColumns<A> * depth * static_cast<int64_t>(sizeof(A)));
  const int64_t chunk = m.direct_b ? panels : std::clamp<int64_t>(fitting, 1, panels);
  for (int64_t first = 0; first < panels; first += chunk) {
    const int64_t last = std::min(panels, first + chunk);
    // b read where it lies still needs its last panel copied when that is not full.
    const int64_t packed = m.direct_b ? (p.n % kLanes<A> == 0 ? last : last - 1) : first;
    const Scratch<A> b(ctx, (last - packed) * kTileColumns<A> * p.k);
    ctx.parallel_for(last - packed, divide_up(16384, kTileColumns<A> * depth), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        pack_b(ctx, m, packed + i, b.data() + (m.first(packed + i) - m.first(packed)) * p.k);
    });
    const EvenCut units(last - first, divide_up(last - first, divide_up(kWantedUnits, row_units)));
    ctx.parallel_for(row_units * units.pieces, 1, [&](int64_t u, int64_t) {
      const int64_t row = u % row_units * kUnitRows, begin = first + units.begin(u / row_units);
      unit(ctx, m, row, std::min(kUnitRows, p.m - row), begin, begin + units.size(u / row_units), packed, b.data());
    });
  }
}

template <class A>
Status matmul(const Context& ctx, const MatmulParams& p) {
  if (p.m * p.n * p.batch == 0) return Status::ok;
  const auto run = [&](const Context& inner, int64_t i) {
    const void *a = element(p.a, p.dtype, i * p.step_a), *b = element(p.b, p.dtype, i * p.step_b);
    void* out = element(p.out, p.dtype, i * p.step_out);
    if (p.m <= kDotRows && p.trans_b && !p.trans_a) {
      small_product<A>(inner, p, a, b, out);
      return;
    }
    const bool direct_b = p.m <= 2 * kTileRows && !p.trans_b && p.dtype == dtype_of<A>;
    product(inner, Product<A>{p, a, b, out, direct_b, {divide_up(p.n, kLanes<A>), kTileVectors}});
  };
  if (p.batch == 1 || p.m * p.n * std::max<int64_t>(1, p.k) >= kSmallProduct) {
    for (int64_t i = 0; i < p.batch; ++i) run(ctx, i);
    return Status::ok;
  }
  Context serial = ctx;
  serial.run = nullptr;
  ctx.parallel_for(p.batch, 1, [&](int64_t i, int64_t) { run(serial, i); });
  return Status::ok;
}

ANELLO_KERNEL(kMatmul, matmul<float>, {float16, bfloat16, float32});
ANELLO_KERNEL(kMatmul, matmul<double>, {float64});

}  // namespace
}  // namespace anello::kernel
