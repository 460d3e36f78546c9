// Data sets in memory: selection, validation, statistics.
// Main entry: ImageDataset::subset(), channel_stats().
#include <anello/core/interrupt.h>
#include <anello/datasets/dataset.h>

#include <algorithm>
#include <cmath>
#include <cstring>

namespace anello::data {

namespace detail {

Tensor gather_rows(std::string_view op, const Tensor& source, const std::vector<int64_t>& indices) {
  Shape shape = source.shape();
  const int64_t rows = shape[0];
  shape[0] = static_cast<int64_t>(indices.size());
  const Tensor out = empty(shape, source.dtype());
  const size_t row_bytes = rows == 0 ? 0 : source.nbytes() / static_cast<size_t>(rows);
  const char* from = static_cast<const char*>(source.raw_data());
  char* to = static_cast<char*>(out.raw_data());
  for (const int64_t i : indices) {
    check<IndexError>(i >= 0 && i < rows, op, "index ", i, " is outside [0, ", rows, ")");
    if (row_bytes == 0) continue;
    std::memcpy(to, from + static_cast<size_t>(i) * row_bytes, row_bytes);
    to += row_bytes;
  }
  return out;
}

}  // namespace detail

namespace {

Tensor rows_view(const Tensor& t, int64_t begin, int64_t end) {
  Shape shape = t.shape();
  shape[0] = end - begin;
  return as_strided(t, shape, t.strides(), t.storage_offset() + begin * t.strides()[0]);
}

}  // namespace

ImageDataset ImageDataset::slice(int64_t begin, int64_t end) const {
  check<IndexError>(begin >= 0 && begin <= end && end <= size(), "ImageDataset.slice", "[", begin, ", ", end,
                    ") is outside [0, ", size(), ")");
  return {rows_view(images, begin, end), rows_view(labels, begin, end), class_names, mean, stddev};
}

ImageDataset ImageDataset::subset(const std::vector<int64_t>& indices) const {
  constexpr std::string_view op = "ImageDataset.subset";
  return {detail::gather_rows(op, images, indices), detail::gather_rows(op, labels, indices), class_names, mean,
          stddev};
}

void ImageDataset::validate(std::string_view op) const {
  check<DTypeError>(images.dtype() == uint8, op, "images are ", images.dtype(), ", not uint8");
  check<ShapeError>(images.dim() == 4, op, "images have shape ", images.shape(),
                    ". Hint: channels last, (count, height, width, channels).");
  check<DTypeError>(labels.dtype() == int64, op, "labels are ", labels.dtype(), ", not int64");
  check<ShapeError>(labels.dim() == 1 && labels.size(0) == images.size(0), op, "labels have shape ", labels.shape(),
                    " for ", images.size(0), " images");
  check<ShapeError>(images.is_contiguous() && labels.is_contiguous(), op, "images and labels must be contiguous");
  const auto channels = static_cast<size_t>(images.size(3));
  check<ShapeError>(mean.size() == stddev.size() && (mean.empty() || mean.size() == channels), op, mean.size(),
                    " means and ", stddev.size(), " standard deviations for ", channels, " channels");
  if (class_names.empty()) return;
  const auto classes = static_cast<int64_t>(class_names.size());
  const int64_t* label = labels.data<int64_t>();
  for (int64_t i = 0; i < size(); ++i)
    check<ValueError>(label[i] >= 0 && label[i] < classes, op, "label ", label[i], " of image ", i, " is outside [0, ",
                      classes, ")");
}

ChannelStats channel_stats(const Tensor& images) {
  check<DTypeError>(images.dtype() == uint8, "channel_stats", "images are ", images.dtype(), ", not uint8");
  check<ShapeError>(images.dim() >= 1 && images.numel() > 0 && images.is_contiguous(), "channel_stats",
                    "images must be contiguous and not empty, their shape is ", images.shape());
  const int64_t channels = images.size(-1), pixels = images.numel() / channels;
  std::vector<uint64_t> sum(static_cast<size_t>(channels)), squares(static_cast<size_t>(channels));
  const uint8_t* p = images.data<uint8_t>();
  for (int64_t i = 0; i < pixels; ++i) {
    if (i % (1 << 20) == 0) check_interrupt();
    for (size_t c = 0; c < sum.size(); ++c, ++p) {
      sum[c] += *p;
      squares[c] += uint64_t{*p} * *p;
    }
  }
  ChannelStats stats;
  for (size_t c = 0; c < sum.size(); ++c) {
    const double n = static_cast<double>(pixels), m = static_cast<double>(sum[c]) / n;
    stats.mean.push_back(m / 255);
    stats.stddev.push_back(std::sqrt(std::max(0.0, static_cast<double>(squares[c]) / n - m * m)) / 255);
  }
  return stats;
}

}  // namespace anello::data
