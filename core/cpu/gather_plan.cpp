// Sorts the output positions of a convolution by the taps they see and cuts them into tiles.
// Main entry: GatherPlan::build().
#include <anello/core/cpu/gather_plan.h>

#include <algorithm>

namespace anello::kernel {
namespace {

/// Places along one axis, those with the same valid taps in one list, in order of first appearance.
std::vector<std::vector<int64_t>> classes(const AxisMap& map, int64_t begin, int64_t end) {
  const auto same = [&map](int64_t a, int64_t b) {
    for (int64_t t = 0; t < map.taps; ++t)
      if ((map.at(a, t) < 0) != (map.at(b, t) < 0)) return false;
    return true;
  };
  std::vector<std::vector<int64_t>> lists;
  for (int64_t i = begin; i < end; ++i) {
    // Neighbours are alike: search from the newest list.
    const auto found =
        std::find_if(lists.rbegin(), lists.rend(), [&](const auto& list) { return same(list.front(), i); });
    if (found == lists.rend())
      lists.push_back({i});
    else
      found->push_back(i);
  }
  return lists;
}

}  // namespace

AxisMap AxisMap::forward(const ConvShape& shape, int axis) {
  AxisMap map{
      axis == 0 ? shape.h : shape.w, axis == 0 ? shape.out_h : shape.out_w, axis == 0 ? shape.kh : shape.kw, {}};
  map.source.reserve(static_cast<size_t>(map.outputs * map.taps));
  for (int64_t i = 0; i < map.outputs; ++i)
    for (int64_t r = 0; r < map.taps; ++r) {
      const int64_t place = i * shape.stride[axis] - shape.padding[axis] + r * shape.dilation[axis];
      map.source.push_back(place >= 0 && place < map.inputs ? place : -1);
    }
  return map;
}

AxisMap AxisMap::backward(const ConvShape& shape, int axis) {
  AxisMap map{
      axis == 0 ? shape.out_h : shape.out_w, axis == 0 ? shape.h : shape.w, axis == 0 ? shape.kh : shape.kw, {}};
  map.source.reserve(static_cast<size_t>(map.outputs * map.taps));
  for (int64_t i = 0; i < map.outputs; ++i)
    for (int64_t r = 0; r < map.taps; ++r) {
      const int64_t scaled = i + shape.padding[axis] - r * shape.dilation[axis], place = scaled / shape.stride[axis];
      const bool inside = scaled >= 0 && scaled % shape.stride[axis] == 0 && place < map.inputs;
      map.source.push_back(inside ? place : -1);
    }
  return map;
}

GatherPlan GatherPlan::build(const AxisMap& height, const AxisMap& width, int64_t images, int64_t row_begin,
                             int64_t row_end, int64_t channels, int64_t rows) {
  GatherPlan plan;
  plan.input_end_ = height.inputs;
  if (images == 1) {
    int64_t low = height.inputs, high = 0;
    for (int64_t i = row_begin; i < row_end; ++i)
      for (int64_t r = 0; r < height.taps; ++r) {
        const int64_t row = height.at(i, r);
        if (row < 0) continue;
        low = std::min(low, row);
        high = std::max(high, row + 1);
      }
    plan.input_begin_ = std::min(low, high);
    plan.input_end_ = high;
  }
  const auto row_classes = classes(height, row_begin, row_end), column_classes = classes(width, 0, width.outputs);
  const auto count = static_cast<size_t>(images * (row_end - row_begin) * width.outputs);
  plan.outputs_.reserve(count);
  plan.tiles_.reserve(count / static_cast<size_t>(rows) + 1);
  plan.taps_.reserve((count / static_cast<size_t>(rows) + 1) * static_cast<size_t>(height.taps * width.taps));
  plan.offsets_.reserve((count + kTileRows) * static_cast<size_t>(height.taps * width.taps));
  Position waiting[kTileRows];
  int64_t filled = 0;
  for (const auto& lines : row_classes)
    for (const auto& columns : column_classes)
      for (int64_t image = 0; image < images; ++image)
        for (const int64_t i : lines)
          for (const int64_t j : columns) {
            waiting[filled++] = {image, i, j};
            if (filled == rows) {
              plan.add_tile(height, width, waiting, filled, row_begin, channels, rows);
              filled = 0;
            }
          }
  if (filled > 0) plan.add_tile(height, width, waiting, filled, row_begin, channels, rows);
  return plan;
}

void GatherPlan::add_tile(const AxisMap& height, const AxisMap& width, const Position* positions, int64_t count,
                          int64_t row_begin, int64_t channels, int64_t rows) {
  Tile tile;
  tile.first_tap = static_cast<int64_t>(taps_.size());
  tile.first_offset = static_cast<int64_t>(offsets_.size());
  tile.first_output = static_cast<int64_t>(outputs_.size());
  tile.height = gather_height(count, rows);
  tile.count = static_cast<int32_t>(count);
  for (int64_t r = 0; r < height.taps; ++r) {
    int64_t lines[kTileRows];
    bool any_row = false;
    for (int64_t p = 0; p < count; ++p) {
      lines[p] = height.at(positions[p].i, r);
      any_row |= lines[p] >= 0;
    }
    if (!any_row) continue;
    for (int64_t s = 0; s < width.taps; ++s) {
      int64_t offsets[kTileRows];
      bool any = false;
      for (int64_t p = 0; p < count; ++p) {
        const int64_t column = width.at(positions[p].j, s);
        const bool inside = lines[p] >= 0 && column >= 0;
        const int64_t row = positions[p].image * height.inputs + lines[p] - input_begin_;
        offsets[p] = inside ? (row * width.inputs + column) * channels : -1;
        any |= inside;
      }
      if (!any) continue;
      taps_.push_back(static_cast<int32_t>(r * width.taps + s));
      offsets_.insert(offsets_.end(), offsets, offsets + count);
      offsets_.insert(offsets_.end(), static_cast<size_t>(tile.height - count),
                      offsets[0]);  // computed and thrown away
    }
  }
  tile.tap_count = static_cast<int32_t>(static_cast<int64_t>(taps_.size()) - tile.first_tap);
  for (int64_t p = 0; p < count; ++p)
    outputs_.push_back((positions[p].image * height.outputs + positions[p].i - row_begin) * width.outputs +
                       positions[p].j);
  tiles_.push_back(tile);
}

}  // namespace anello::kernel
