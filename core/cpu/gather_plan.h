// Which inputs a convolution adds up for which outputs, as tiles of output positions that share their taps.
// Main entry: AxisMap, GatherPlan::build(), weight_pairs().
#pragma once

#include <anello/core/cpu/register_tile.h>
#include <anello/core/kernels/conv.h>

#include <cstdint>
#include <vector>

namespace anello::kernel {

/// The input place along one axis for every (output place, tap), -1 where there is none.
struct AxisMap {
  int64_t inputs, outputs, taps;
  std::vector<int64_t> source;  ///< [outputs][taps]

  int64_t at(int64_t output, int64_t tap) const { return source[static_cast<size_t>(output * taps + tap)]; }
  /// x for y: i stride - padding + r dilation. `axis` 0 is height, 1 width.
  static AxisMap forward(const ConvShape& shape, int axis);
  /// y for x: the places whose window has x at that tap.
  static AxisMap backward(const ConvShape& shape, int axis);
};

/// Tiles of up to `rows` output positions of some rows of some images. Positions with the same taps inside the image
/// come together, so that a tile skips the taps that fall into the padding (or between the strides) for all of its
/// positions.
class GatherPlan {
 public:
  struct Tile {
    int64_t first_tap, first_offset, first_output;
    int32_t tap_count;
    int32_t height;  ///< of the gather tile that runs it
    int32_t count;   ///< positions in use, at most height
  };

  /// Output rows [row_begin, row_end) of `images` images (all rows when there is more than one). Inputs are `channels`
  /// elements a position and counted from the start of the first image's row input_row_begin(); outputs are counted in
  /// positions from the start of the first image's row row_begin. `rows`: positions of a full tile.
  static GatherPlan build(const AxisMap& height, const AxisMap& width, int64_t images, int64_t row_begin,
                          int64_t row_end, int64_t channels, int64_t rows);

  const std::vector<Tile>& tiles() const { return tiles_; }
  /// Tap numbers (r kw + s) of a tile, ascending.
  const int32_t* taps(const Tile& tile) const { return taps_.data() + tile.first_tap; }
  /// [tap_count][height] input offsets, -1 where a position has nothing at a tap.
  const int64_t* offsets(const Tile& tile) const { return offsets_.data() + tile.first_offset; }
  /// [count] output positions.
  const int64_t* outputs(const Tile& tile) const { return outputs_.data() + tile.first_output; }
  /// Input rows [begin, end) of an image that are read.
  int64_t input_row_begin() const { return input_begin_; }
  int64_t input_row_end() const { return input_end_; }

 private:
  struct Position {
    int64_t image, i, j;
  };
  void add_tile(const AxisMap& height, const AxisMap& width, const Position* positions, int64_t count,
                int64_t row_begin, int64_t channels, int64_t rows);

  std::vector<Tile> tiles_;
  std::vector<int32_t> taps_;
  std::vector<int64_t> offsets_, outputs_;
  int64_t input_begin_ = 0, input_end_ = 0;
};

}  // namespace anello::kernel
