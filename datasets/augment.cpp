// Augmentation: each row is cut from the padded image, mirrored if need be and converted through a table of 256 values.
// Main entry: Augmenter::batch().
#include <anello/core/parallel.h>
#include <anello/core/random.h>
#include <anello/core/suggest.h>
#include <anello/datasets/augment.h>
#include <anello/datasets/sampler.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

namespace anello::data {

std::string_view name(Padding padding) { return padding == Padding::zero ? "zero" : "reflect"; }
std::string_view name(Flip flip) {
  return flip == Flip::none ? "none" : flip == Flip::random ? "random" : "alternating";
}

Padding padding_from_name(std::string_view text) {
  for (const Padding p : {Padding::zero, Padding::reflect})
    if (name(p) == text) return p;
  fail<ValueError>("augment", "unknown padding '", text, "'.", suggest(text, {"zero", "reflect"}));
}

Flip flip_from_name(std::string_view text) {
  for (const Flip f : {Flip::none, Flip::random, Flip::alternating})
    if (name(f) == text) return f;
  fail<ValueError>("augment", "unknown flip '", text, "'.", suggest(text, {"none", "random", "alternating"}));
}

namespace {

constexpr std::string_view kOp = "augment";

struct Geometry {
  int64_t height, width, channels, padding;
  Padding mode;
};

// Row y (counted in the padded image) with its left and right padding, into `row`.
void padded_row(const Geometry& g, const uint8_t* image, int64_t y, uint8_t* row) {
  const auto side = static_cast<size_t>(g.padding * g.channels), middle = static_cast<size_t>(g.width * g.channels);
  y -= g.padding;
  if (g.mode == Padding::zero && (y < 0 || y >= g.height)) {
    std::memset(row, 0, middle + 2 * side);
    return;
  }
  if (y < 0) y = -y;
  if (y >= g.height) y = 2 * (g.height - 1) - y;
  std::memcpy(row + side, image + y * g.width * g.channels, middle);
  if (g.mode == Padding::zero) {
    std::memset(row, 0, side);
    std::memset(row + side + middle, 0, side);
    return;
  }
  const auto pixel = static_cast<size_t>(g.channels);
  uint8_t* const first = row + side;
  uint8_t* const last = row + side + middle - pixel;
  for (int64_t i = 1; i <= g.padding; ++i) {
    const int64_t step = i * g.channels;
    std::memcpy(first - step, first + step, pixel);
    std::memcpy(last + step, last - step, pixel);
  }
}

// `pixels` pixels from `source` on, walking by `step` bytes. Channels is a constant where it pays.
template <int Channels, class T>
void convert_row(const uint8_t* source, int64_t pixels, int64_t step, const T* table, int64_t channels, T* out) {
  const int64_t n = Channels > 0 ? Channels : channels;
  for (int64_t x = 0; x < pixels; ++x, source += step, out += n)
    for (int64_t c = 0; c < n; ++c) out[c] = table[c * 256 + source[c]];
}

}  // namespace

template <class T>
void Augmenter::fill_table(const std::vector<double>& mean, const std::vector<double>& stddev) {
  Table<T> table;
  const bool pixels = std::is_same_v<T, uint8_t>, normalize = augmentation_.normalize && !pixels;
  const auto value = [](double v) {
    if constexpr (std::is_same_v<T, uint8_t>)
      return static_cast<uint8_t>(std::lround(v * 255));
    else if constexpr (std::is_same_v<T, double>)
      return v;
    else
      return T(static_cast<float>(v));
  };
  for (size_t c = 0; c < static_cast<size_t>(channels_); ++c) {
    for (int v = 0; v < 256; ++v)
      table.values.push_back(value(normalize ? (v / 255.0 - mean[c]) / stddev[c] : v / 255.0));
    table.fill.push_back(value(normalize || mean.empty() ? 0.0 : mean[c]));
  }
  table_ = std::move(table);
}

void Augmentation::validate() const {
  check<ValueError>(crop_padding >= 0, kOp, "crop_padding is ", crop_padding, ", it cannot be negative");
  check<ValueError>(cutout >= 0, kOp, "cutout is ", cutout, ", it cannot be negative");
}

Augmenter::Augmenter(const Augmentation& augmentation, int64_t height, int64_t width, int64_t channels,
                     const std::vector<double>& data_mean, const std::vector<double>& data_stddev)
    : augmentation_(augmentation), height_(height), width_(width), channels_(channels) {
  const Augmentation& a = augmentation_;
  check<ShapeError>(height > 0 && width > 0 && channels > 0, kOp, "images have ", height, " x ", width, " pixels of ",
                    channels, " channels");
  a.validate();
  check<ShapeError>(a.padding == Padding::zero || a.crop_padding < std::min(height, width), kOp, "reflect padding of ",
                    a.crop_padding, " needs images of more than that, they are ", height, " x ", width,
                    ". Hint: less padding, or zero padding.");
  const auto& mean = a.mean.empty() ? data_mean : a.mean;
  const auto& stddev = a.stddev.empty() ? data_stddev : a.stddev;
  if (a.normalize && a.dtype != uint8) {
    check<ValueError>(
        !mean.empty() && !stddev.empty(), kOp,
        "no mean and stddev to normalise with. Hint: channel_stats(images) computes them, turning normalize off "
        "does without.");
    for (const double s : stddev) check<ValueError>(s > 0 && std::isfinite(s), kOp, "stddev ", s, " is not positive");
  }
  const auto fits = [&](const std::vector<double>& v) {
    return v.empty() || v.size() == static_cast<size_t>(channels);
  };
  check<ShapeError>(fits(mean) && fits(stddev), kOp, mean.size(), " means and ", stddev.size(),
                    " standard deviations for ", channels, " channels");
  switch (a.dtype) {
    case DType::uint8:
      fill_table<uint8_t>(mean, stddev);
      break;
    case DType::float16:
      fill_table<Float16>(mean, stddev);
      break;
    case DType::bfloat16:
      fill_table<BFloat16>(mean, stddev);
      break;
    case DType::float32:
      fill_table<float>(mean, stddev);
      break;
    case DType::float64:
      fill_table<double>(mean, stddev);
      break;
    default:
      fail<DTypeError>(kOp, "no images of ", a.dtype, ". Hint: a float dtype, or uint8 for raw pixels.");
  }
}

Augmenter::Draw Augmenter::draw(uint64_t seed, uint64_t epoch, int64_t index) const {
  Draw d;
  const Augmentation& a = augmentation_;
  const auto i = static_cast<uint64_t>(index);
  if (a.crop_padding > 0 || a.flip == Flip::random) {
    const auto bits = philox(seed, random_stream(RandomPurpose::augment, epoch), i);
    const auto places = static_cast<uint32_t>(2 * a.crop_padding + 1);
    d.top = uniform_below(bits[0], places);
    d.left = uniform_below(bits[1], places);
    d.flip = a.flip == Flip::random && (bits[2] >> 31) != 0;
  }
  if (a.flip == Flip::alternating) {
    const bool first = (philox(seed, random_stream(RandomPurpose::first_flip, 0), i)[0] >> 31) != 0;
    d.flip = first != (epoch % 2 == 1);
  }
  if (a.cutout > 0) {
    const auto bits = philox(seed, random_stream(RandomPurpose::cutout, epoch), i);
    d.cut_y = uniform_below(bits[0], static_cast<uint32_t>(height_));
    d.cut_x = uniform_below(bits[1], static_cast<uint32_t>(width_));
  }
  return d;
}

template <class T>
struct Augmenter::Pass {
  const Augmenter& a;
  const Table<T>& table;
  const Geometry geometry{a.height_, a.width_, a.channels_, a.augmentation_.crop_padding, a.augmentation_.padding};
  std::vector<uint8_t> row = std::vector<uint8_t>(static_cast<size_t>((a.width_ + 2 * geometry.padding) * a.channels_));

  void image(const uint8_t* source, const Draw& draw, T* out) {
    const int64_t c = geometry.channels, w = geometry.width;
    // A mirrored row is read from its right end backwards.
    const int64_t first = draw.flip ? draw.left + w - 1 : draw.left, step = draw.flip ? -c : c;
    for (int64_t y = 0; y < geometry.height; ++y) {
      const uint8_t* from = source + y * w * c;
      if (geometry.padding > 0) {
        padded_row(geometry, source, y + draw.top, row.data());
        from = row.data();
      }
      T* const to = out + y * w * c;
      if (c == 3)
        convert_row<3>(from + first * c, w, step, table.values.data(), c, to);
      else if (c == 1)
        convert_row<1>(from + first * c, w, step, table.values.data(), c, to);
      else
        convert_row<0>(from + first * c, w, step, table.values.data(), c, to);
    }
    if (a.augmentation_.cutout > 0) cut(draw, out);
  }

  // A side of s covers s pixels: s / 2 before the centre, the rest from it on.
  void cut(const Draw& draw, T* out) const {
    const int64_t side = a.augmentation_.cutout, c = geometry.channels;
    const int64_t y0 = draw.cut_y - side / 2, x0 = draw.cut_x - side / 2;
    const int64_t x_begin = std::max<int64_t>(x0, 0), x_end = std::min(x0 + side, geometry.width);
    for (int64_t y = std::max<int64_t>(y0, 0); y < std::min(y0 + side, geometry.height); ++y)
      for (int64_t x = x_begin; x < x_end; ++x) std::copy_n(table.fill.data(), c, out + (y * geometry.width + x) * c);
  }
};

Tensor Augmenter::batch(const Tensor& images, const std::vector<int64_t>& indices, uint64_t seed,
                        uint64_t epoch) const {
  const int64_t n = images.size(0), pixels = height_ * width_ * channels_;
  const uint8_t* const source = images.data<uint8_t>();
  const Tensor out = empty({static_cast<int64_t>(indices.size()), height_, width_, channels_}, augmentation_.dtype);
  std::visit(
      [&]<class T>(const Table<T>& table) {
        Pass<T> pass{*this, table};
        T* to = out.data<T>();
        for (const int64_t i : indices) {
          check<IndexError>(i >= 0 && i < n, kOp, "index ", i, " is outside [0, ", n, ")");
          pass.image(source + i * pixels, draw(seed, epoch, i), to);
          to += pixels;
        }
      },
      table_);
  return out;
}

Tensor normalize_images(const Tensor& images, const std::vector<double>& mean, const std::vector<double>& stddev,
                        DType dtype) {
  check<DTypeError>(images.dtype() == uint8, "normalize_images", "images are ", images.dtype(), ", not uint8");
  check<ShapeError>(images.dim() == 4 && images.is_contiguous(), "normalize_images", "images have shape ",
                    images.shape(), ". Hint: contiguous (count, height, width, channels).");
  Augmentation plain;
  plain.dtype = dtype;
  const int64_t n = images.size(0), pixels = n == 0 ? 0 : images.numel() / n;
  const Tensor out = empty(images.shape(), dtype);
  if (images.numel() == 0) return out;
  const Augmenter augmenter(plain, images.size(1), images.size(2), images.size(3), mean, stddev);
  const auto bytes = static_cast<size_t>(pixels) * item_size(dtype);
  parallel_for(n, 256, [&](int64_t begin, int64_t end) {
    std::vector<int64_t> indices(static_cast<size_t>(end - begin));
    std::iota(indices.begin(), indices.end(), begin);
    const Tensor part = augmenter.batch(images, indices, 0, 0);
    std::memcpy(static_cast<char*>(out.raw_data()) + static_cast<size_t>(begin) * bytes, part.raw_data(),
                part.nbytes());
  });
  return out;
}

}  // namespace anello::data
