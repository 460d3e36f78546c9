// Data sets that are whole in memory: images with labels, and plain tensors.
// Main entry: ImageDataset, ImageSplits, TensorDataset.
#pragma once

#include <anello/core/tensor.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace anello::data {

/// Labelled images of one size. Cheap to copy: the tensors are shared.
struct ImageDataset {
  Tensor images;                         ///< uint8 [count, height, width, channels], contiguous
  Tensor labels;                         ///< int64 [count]
  std::vector<std::string> class_names;  ///< class_names[label]; may be empty
  std::vector<double> mean, stddev;      ///< of each channel, of pixels scaled to 0..1; empty: unknown

  int64_t size() const { return images.size(0); }
  /// Images [begin, end), without a copy. Raises IndexError outside [0, size()].
  ImageDataset slice(int64_t begin, int64_t end) const;
  /// Copies of the images at these indices, in this order. Raises IndexError outside [0, size()).
  ImageDataset subset(const std::vector<int64_t>& indices) const;
  /// Raises unless the members fit together: DTypeError or ShapeError for the tensors, ValueError for a label that has
  /// no class name, ShapeError for mean and stddev.
  void validate(std::string_view op) const;
};

struct ImageSplits {
  ImageDataset train, test;
};

/// Samples of any kind: row i of `features` belongs to row i of `labels`. Any dtypes, any shapes of equal first size.
struct TensorDataset {
  Tensor features, labels;
  int64_t size() const { return features.size(0); }
};

/// Mean and standard deviation of each channel of pixels scaled to 0..1. Exact integer sums, so the same on every
/// machine.
struct ChannelStats {
  std::vector<double> mean, stddev;
};
/// images: uint8 [..., channels], contiguous, at least one pixel.
ChannelStats channel_stats(const Tensor& images);

namespace detail {
/// Rows source[indices[i]] as a new contiguous tensor [indices, ...]; source is contiguous. Raises IndexError.
Tensor gather_rows(std::string_view op, const Tensor& source, const std::vector<int64_t>& indices);
}  // namespace detail

}  // namespace anello::data
