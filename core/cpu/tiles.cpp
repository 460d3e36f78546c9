// The walk over tiles: gathering and scattering of rows.
// Main entry: run_tiles().
#include <anello/core/cpu/plan.h>
#include <anello/core/cpu/tiles.h>

#include <algorithm>

namespace anello::kernel {
namespace {

constexpr int64_t kSide = 32;  // of a square tile

/// Whether an operand's memory runs along the second last dim while another's runs along the last one.
bool has_turned_operand(const Plan& plan) {
  const int last = plan.dims - 1;
  if (plan.dims < 2 || plan.inner < kSide || plan.sizes[last - 1] < kSide) return false;
  for (int k = 0; k < plan.count; ++k)
    if (plan.strides[k][last] >= kSide && plan.strides[k][last - 1] == 1) return true;
  return false;
}

template <class C>
struct Buffers {
  alignas(64) C values[kMaxOperands][kTile];
};

/// The walk of one thread over units [begin, end).
template <class C>
class Walk {
 public:
  Walk(const Plan& plan, const TileJob& job, TileFunction<C> function) : plan_(plan), job_(job), function_(function) {
    for (int k = 1; k < plan.count; ++k)
      if (plan.constant[k]) fill_constant(k);
  }

  /// Rows of at least a tile: unit u is segment u % segments of row u / segments.
  void long_rows(int64_t begin, int64_t end, int64_t segments) {
    RowCursor cursor(plan_, begin / segments);
    int64_t segment = begin % segments;
    for (int64_t u = begin; u < end; ++u) {
      const int64_t first = segment * kTile;
      piece(cursor, first, std::min<int64_t>(kTile, plan_.inner - first));
      if (++segment == segments) {
        segment = 0;
        if (u + 1 < end) cursor.advance(1);
      }
    }
  }

  /// Operands whose memory runs along different dims: unit u is a square of the last two dims, so that each cache line
  /// that is touched is used up.
  void squares(int64_t begin, int64_t end) {
    const int last = plan_.dims - 1;
    const int64_t height = plan_.sizes[last - 1], down = (height + kSide - 1) / kSide,
                  across = (plan_.inner + kSide - 1) / kSide;
    for (int64_t u = begin; u < end; ++u) {
      const int64_t i = u / across % down * kSide, j = u % across * kSide;
      const int64_t rows = std::min(kSide, height - i), n = std::min(kSide, plan_.inner - j);
      const RowCursor cursor(plan_, u / across / down * height + i);
      const auto corner = [&](int k) {
        return element(plan_.data[k], plan_.dtype[k], cursor.offset[k] + j * plan_.strides[k][last]);
      };
      for (int k = 1; k < plan_.count; ++k) {
        if (plan_.constant[k]) continue;
        load_block(corner(k), plan_.dtype[k], rows, cursor.row_stride(k), n, plan_.strides[k][last],
                   buffers_.values[k]);
        in_[k - 1] = buffers_.values[k];
      }
      function_(buffers_.values[0], in_, rows * n, job_.arguments);
      store_block(corner(0), plan_.dtype[0], rows, cursor.row_stride(0), n, plan_.strides[0][last], buffers_.values[0]);
    }
  }

  /// Short rows: unit u is rows [u * rows_per_tile, ...).
  void short_rows(int64_t begin, int64_t end, int64_t rows_per_tile) {
    RowCursor cursor(plan_, begin * rows_per_tile);
    for (int k = 1; k < plan_.count; ++k)
      if (plan_.same_rows[k] && !plan_.constant[k]) {
        load_rows(k, plan_.data[k], std::min(rows_per_tile, plan_.rows), 0, buffers_.values[k]);
        in_[k - 1] = buffers_.values[k];
      }
    for (int64_t u = begin; u < end; ++u)
      block(cursor, u * rows_per_tile, std::min(rows_per_tile, plan_.rows - u * rows_per_tile));
  }

 private:
  void fill_constant(int k) {
    C value;
    if (plan_.data[k] == nullptr)
      value = std::is_integral_v<C> ? static_cast<C>(job_.int_scalar) : static_cast<C>(job_.scalar);
    else
      value = *load(plan_.data[k], plan_.dtype[k], 1, 1, buffers_.values[k]);
    std::fill_n(buffers_.values[k], std::min<int64_t>(kTile, plan_.inner * plan_.rows), value);
    in_[k - 1] = buffers_.values[k];
  }
  void load_rows(int k, const void* src, int64_t rows, int64_t row_stride, C* buffer) {
    load_block(src, plan_.dtype[k], rows, row_stride, plan_.inner, plan_.strides[k][plan_.dims - 1], buffer);
  }

  /// n elements of one row.
  void piece(const RowCursor& cursor, int64_t first, int64_t n) {
    const int last = plan_.dims - 1;
    for (int k = 1; k < plan_.count; ++k) {
      if (plan_.constant[k]) continue;
      const int64_t stride = plan_.strides[k][last];
      const void* src = element(plan_.data[k], plan_.dtype[k], cursor.offset[k] + first * stride);
      in_[k - 1] = load(src, plan_.dtype[k], n, stride, buffers_.values[k]);
    }
    const int64_t stride = plan_.strides[0][last];
    void* dst = element(plan_.data[0], plan_.dtype[0], cursor.offset[0] + first * stride);
    C* out = target(dst, plan_.dtype[0], stride, buffers_.values[0]);
    function_(out, in_, n, job_.arguments);
    store(dst, plan_.dtype[0], n, stride, out);
  }

  /// `rows` whole rows from `row` on, where the cursor stands; moves the cursor behind them.
  void block(RowCursor& cursor, int64_t row, int64_t rows) {
    const int64_t n = rows * plan_.inner;
    const RowCursor start = cursor;
    for (int k = 1; k < plan_.count; ++k)
      if (plan_.contiguous[k])
        in_[k - 1] =
            load(element(plan_.data[k], plan_.dtype[k], row * plan_.inner), plan_.dtype[k], n, 1, buffers_.values[k]);
    for (int64_t done = 0; done < rows;) {
      const int64_t run = cursor.run(rows - done);
      for (int k = 1; k < plan_.count; ++k) {
        if (plan_.contiguous[k] || plan_.same_rows[k]) continue;
        load_rows(k, element(plan_.data[k], plan_.dtype[k], cursor.offset[k]), run, cursor.row_stride(k),
                  buffers_.values[k] + done * plan_.inner);
        in_[k - 1] = buffers_.values[k];
      }
      cursor.advance(run);
      done += run;
    }
    if (plan_.contiguous[0]) {
      void* dst = element(plan_.data[0], plan_.dtype[0], row * plan_.inner);
      C* out = target(dst, plan_.dtype[0], 1, buffers_.values[0]);
      function_(out, in_, n, job_.arguments);
      store(dst, plan_.dtype[0], n, 1, out);
      return;
    }
    function_(buffers_.values[0], in_, n, job_.arguments);
    scatter(start, rows);
  }

  void scatter(RowCursor cursor, int64_t rows) {
    for (int64_t done = 0; done < rows;) {
      const int64_t run = cursor.run(rows - done);
      store_block(element(plan_.data[0], plan_.dtype[0], cursor.offset[0]), plan_.dtype[0], run, cursor.row_stride(0),
                  plan_.inner, plan_.strides[0][plan_.dims - 1], buffers_.values[0] + done * plan_.inner);
      cursor.advance(run);
      done += run;
    }
  }

  const Plan& plan_;
  const TileJob& job_;
  TileFunction<C> function_;
  const C* in_[kMaxInputs] = {};
  Buffers<C> buffers_;
};

}  // namespace

template <class C>
void run_tiles(const Context& ctx, const TileJob& job, TileFunction<C> function) {
  for (int d = 0; d < job.dims; ++d)
    if (job.sizes[d] == 0) return;
  const Operand* operands[kMaxOperands] = {job.out, job.in[0], job.in[1], job.in[2]};
  const Plan plan = make_plan(job.sizes, job.dims, operands, job.inputs + 1);
  if (has_turned_operand(plan)) {
    const int64_t height = plan.sizes[plan.dims - 2];
    const int64_t units = plan.rows / height * ((height + kSide - 1) / kSide) * ((plan.inner + kSide - 1) / kSide);
    ctx.parallel_for(units, std::max<int64_t>(1, job.grain / kTile),
                     [&](int64_t begin, int64_t end) { Walk<C>(plan, job, function).squares(begin, end); });
  } else if (plan.rows == 1 || plan.inner >= kTile) {
    const int64_t segments = (plan.inner + kTile - 1) / kTile;
    ctx.parallel_for(plan.rows * segments, std::max<int64_t>(1, job.grain / std::min<int64_t>(kTile, plan.inner)),
                     [&](int64_t begin, int64_t end) { Walk<C>(plan, job, function).long_rows(begin, end, segments); });
  } else {
    const int64_t rows_per_tile = kTile / plan.inner, units = (plan.rows + rows_per_tile - 1) / rows_per_tile;
    ctx.parallel_for(
        units, std::max<int64_t>(1, job.grain / (rows_per_tile * plan.inner)),
        [&](int64_t begin, int64_t end) { Walk<C>(plan, job, function).short_rows(begin, end, rows_per_tile); });
  }
}

template void run_tiles<float>(const Context&, const TileJob&, TileFunction<float>);
template void run_tiles<double>(const Context&, const TileJob&, TileFunction<double>);
template void run_tiles<int64_t>(const Context&, const TileJob&, TileFunction<int64_t>);

}  // namespace anello::kernel
