// The matrix product: panels of b, blocks of a, tiles in registers. A row of the result sums over k in order, so neither the cut
// into units nor the thread count shows in it.
// Main entry: matmul<A>().
#include <anello/core/cpu/convert.h>
#include <anello/core/cpu/matmul_small.h>
#include <anello/core/cpu/tile.h>
#include <anello/core/kernels/matmul.h>

#include <algorithm>
#include <cstring>

namespace anello::kernel {
namespace {

constexpr int64_t kDepth = 512;               // k of one pass: a panel of that depth stays in L1 or L2 for all rows of a unit
constexpr int64_t kUnitRows = 8 * kTileRows;
constexpr int64_t kPackedBytes = 16 << 20;    // panels of b at a time
constexpr int64_t kWantedUnits = 32;
constexpr int64_t kSmallProduct = 1 << 21;    // multiplications of a matrix below which a batch is run one matrix a unit

int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

/// One product of a batch.
template <class A>
struct Product {
  const MatmulParams& p;
  const void *a, *b;
  void* out;
  bool direct_b;  ///< read b where it lies: it is used once

  bool same() const { return p.dtype == dtype_of<A>; }
};

/// Columns [first, first + used) of op(b) as a panel [k][width], zeros beyond `used`.
template <class A>
void pack_b(const Context& ctx, const Product<A>& m, int64_t first, int64_t used, int64_t width, A* panel) {
  const MatmulParams& p = m.p;
  if (!p.trans_b) {
    A buffer[kTileColumns<A>];
    for (int64_t k = 0; k < p.k; ++k) {
      const A* from = load(element(m.b, p.dtype, k * p.ld_b + first), p.dtype, used, 1, buffer);
      std::memcpy(panel + k * width, from, static_cast<size_t>(used) * sizeof(A));
      std::fill_n(panel + k * width + used, width - used, A(0));
    }
    return;
  }
  const Scratch<A> buffer(ctx, m.same() ? 0 : 8 * p.k);
  for (int64_t column = 0; column < width; column += 8) {  // a few at a time: their rows may share cache sets
    const int64_t count = std::clamp<int64_t>(used - column, 0, 8);
    const A* rows[8];
    for (int64_t l = 0; l < count; ++l)
      rows[l] = load(element(m.b, p.dtype, (first + column + l) * p.ld_b), p.dtype, p.k, 1, buffer.data() + l * p.k);
    for (int64_t k = 0; k < p.k; ++k)
      for (int64_t l = 0; l < 8; ++l) panel[k * width + column + l] = l < count ? rows[l][k] : A(0);
  }
}

/// A block of op(a): rows [row, row + rows), k in [k0, k0 + depth), as the tiles read it.
template <class A>
struct LeftBlock {
  const A* data;
  int64_t ld;  ///< elements between rows; 0: tiles of Heights, each [k][height]
};

/// Heights of tiles of a transposed left side: as even as possible.
struct Heights {
  int64_t rows, tiles;
  explicit Heights(int64_t n) : rows(n), tiles(divide_up(n, kTileRows)) {}
  int64_t operator()(int64_t tile) const { return rows / tiles + (tile < rows % tiles ? 1 : 0); }
};

template <class A>
LeftBlock<A> left_block(const Product<A>& m, int64_t row, int64_t rows, int64_t k0, int64_t depth, A* buffer) {
  const MatmulParams& p = m.p;
  if (!p.trans_a) {
    if (m.same()) return {static_cast<const A*>(m.a) + row * p.ld_a + k0, p.ld_a};
    for (int64_t i = 0; i < rows; ++i) load(element(m.a, p.dtype, (row + i) * p.ld_a + k0), p.dtype, depth, 1, buffer + i * depth);
    return {buffer, depth};
  }
  const Heights heights(rows);
  A line[kUnitRows];
  for (int64_t k = 0; k < depth; ++k) {
    const A* from = load(element(m.a, p.dtype, (k0 + k) * p.ld_a + row), p.dtype, rows, 1, line);
    if (m.direct_b) {
      for (int64_t i = 0; i < rows; ++i) buffer[i * depth + k] = from[i];
    } else {
      for (int64_t i = 0, q = 0; i < rows; i += heights(q), ++q)
        std::memcpy(buffer + i * depth + k * heights(q), from + i, static_cast<size_t>(heights(q)) * sizeof(A));
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

/// c[rows][used] (+)= block * panel.
template <class A>
void multiply(const LeftBlock<A>& left, int64_t rows, int64_t depth, const Panel<A>& panel, A* c, int64_t ld, bool add) {
  alignas(64) A tile[kTileRows * kTileColumns<A>];
  const int vectors = static_cast<int>(panel.width / kLanes<A>);
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
    const Heights heights(rows);
    for (int64_t row = 0, q = 0; row < rows; row += heights(q), ++q)
      run(row, heights(q), heights(q), [&](A* to, int64_t to_ld) {
        panel_function<A>(static_cast<int>(heights(q)), vectors)(left.data + row * depth, panel.data, nullptr, depth, to, to_ld, add);
      });
    return;
  }
  const int32_t tap = 0;
  int64_t offsets[kTileRows];
  GatherTile<A> g{left.data, nullptr, offsets, &tap, 1, depth, panel.data, panel.step, nullptr};
  for (int64_t row = 0; row < rows; row += kTileRows) {
    const int64_t count = std::min<int64_t>(kTileRows, rows - row), height = gather_height(count);
    for (int64_t i = 0; i < height; ++i) offsets[i] = (row + std::min(i, count - 1)) * left.ld;
    run(row, count, height, [&](A* to, int64_t to_ld) {
      gather_function<A>(static_cast<int>(height), vectors)(g, to, to_ld, add);
    });
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

/// Rows [row, row + rows) and columns [first, last) of the result. `panels` holds op(b) from column `packed_first` on, unless b is read
/// where it lies; then only a last, partly filled panel is there.
template <class A>
void unit(const Context& ctx, const Product<A>& m, int64_t row, int64_t rows, int64_t first, int64_t last, int64_t packed_first,
          const A* panels) {
  const MatmulParams& p = m.p;
  const int64_t columns = last - first;
  const bool copy_left = p.trans_a || !m.same(), started = p.accumulate || p.bias != nullptr || p.k == 0;
  const Scratch<A> left(ctx, copy_left ? rows * std::min(p.k, kDepth) : 0), sums(ctx, m.same() ? 0 : rows * columns);
  const Scratch<A> buffer(ctx, started ? columns : 0);
  A* c = m.same() ? static_cast<A*>(m.out) + row * p.ld_out + first : sums.data();
  const int64_t ld = m.same() ? p.ld_out : columns;
  if (started) start_rows(p, m.out, row, rows, first, columns, c, ld, buffer.data());
  for (int64_t k0 = 0; k0 < p.k; k0 += kDepth) {
    const int64_t depth = std::min(kDepth, p.k - k0);
    const LeftBlock<A> block = left_block(m, row, rows, k0, depth, left.data());
    for (int64_t column = first; column < last; column += kTileColumns<A>) {
      const int64_t used = std::min<int64_t>(kTileColumns<A>, last - column), width = divide_up(used, kLanes<A>) * kLanes<A>;
      const bool in_place = m.direct_b && used == width;
      const A* const data = in_place ? static_cast<const A*>(m.b) + k0 * p.ld_b + column
                                     : panels + (column - packed_first) * p.k + k0 * width;
      const Panel<A> panel{data, in_place ? p.ld_b : width, width, used};
      multiply(block, rows, depth, panel, c + column - first, ld, started || k0 > 0);
    }
  }
  if (!m.same())
    for (int64_t i = 0; i < rows; ++i) store(element(m.out, p.dtype, (row + i) * p.ld_out + first), p.dtype, columns, 1, c + i * ld);
}

template <class A>
void product(const Context& ctx, const Product<A>& m) {
  const MatmulParams& p = m.p;
  const int64_t row_units = divide_up(p.m, kUnitRows), panels = divide_up(p.n, kTileColumns<A>);
  const int64_t fitting = kPackedBytes / (kTileColumns<A> * std::max<int64_t>(1, p.k) * static_cast<int64_t>(sizeof(A)));
  const int64_t chunk = m.direct_b ? panels : std::clamp<int64_t>(fitting, 1, panels);
  for (int64_t first_panel = 0; first_panel < panels; first_panel += chunk) {
    const int64_t count = std::min(chunk, panels - first_panel), first = first_panel * kTileColumns<A>;
    // b read where it lies still needs its last panel copied when that is not full.
    const int64_t to_pack = m.direct_b ? (p.n % kLanes<A> == 0 ? 0 : 1) : count, packed = first_panel + count - to_pack;
    const Scratch<A> b(ctx, to_pack * kTileColumns<A> * p.k);
    ctx.parallel_for(to_pack, divide_up(16384, kTileColumns<A> * std::max<int64_t>(1, p.k)), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t column = (packed + i) * kTileColumns<A>, used = std::min<int64_t>(kTileColumns<A>, p.n - column);
        pack_b(ctx, m, column, used, divide_up(used, kLanes<A>) * kLanes<A>, b.data() + i * kTileColumns<A> * p.k);
      }
    });
    const int64_t per_unit = divide_up(count, std::clamp<int64_t>(divide_up(kWantedUnits, row_units), 1, count));
    const int64_t column_units = divide_up(count, per_unit);
    ctx.parallel_for(row_units * column_units, 1, [&](int64_t u, int64_t) {
      const int64_t row = u % row_units * kUnitRows, begin = first + u / row_units * per_unit * kTileColumns<A>;
      unit(ctx, m, row, std::min(kUnitRows, p.m - row), begin,
           std::min({p.n, begin + per_unit * kTileColumns<A>, first + count * kTileColumns<A>}), packed * kTileColumns<A>, b.data());
    });
  }
}

template <class A>
Status matmul(const Context& ctx, const MatmulParams& p) {
  if (p.m * p.n * p.batch == 0) return Status::ok;
  const auto run = [&](const Context& inner, int64_t i) {
    const Product<A> m{p, element(p.a, p.dtype, i * p.step_a), element(p.b, p.dtype, i * p.step_b),
                       element(p.out, p.dtype, i * p.step_out), p.m <= 2 * kTileRows && !p.trans_b && p.dtype == dtype_of<A>};
    if (p.m <= kDotRows && p.trans_b && !p.trans_a) small_product<A>(inner, p, m.a, m.b, m.out);
    else product(inner, m);
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
