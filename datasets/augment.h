// Augmentation and normalisation of uint8 images in one pass into the batch: crop, flip, cutout, normalise.
// Main entry: Augmentation (what to do), Augmenter::batch() (does it).
#pragma once

#include <anello/core/tensor.h>

#include <cstdint>
#include <string_view>
#include <variant>
#include <vector>

namespace anello::data {

/// What lies around an image when it is padded for a crop: black, or the image mirrored at its edge (which is not
/// repeated).
enum class Padding : uint8_t { zero, reflect };
/// random: each sample is mirrored with probability 1/2, anew each epoch. alternating: mirrored with probability 1/2 in
/// even epochs, and the other way round in odd ones, so that two epochs show each sample both ways (arXiv 2404.00498).
enum class Flip : uint8_t { none, random, alternating };

/// "zero", "reflect"; "none", "random", "alternating". Raise ValueError on another name.
Padding padding_from_name(std::string_view name);
Flip flip_from_name(std::string_view name);
std::string_view name(Padding padding);
std::string_view name(Flip flip);

/// In this order: crop, flip, normalise, cutout. The default only normalises.
struct Augmentation {
  int crop_padding = 0;  ///< pad each side by so many pixels, then cut out the old size at a random place; 0: no crop
  Padding padding = Padding::reflect;
  Flip flip = Flip::none;
  int cutout = 0;  ///< side of a square around a random pixel, cut off at the border, that gets the mean colour (black
                   ///< when no mean is known); 0: none (arXiv 1708.04552)
  bool normalize = true;             ///< (pixel / 255 - mean) / stddev; false: pixel / 255
  std::vector<double> mean, stddev;  ///< a value a channel; empty: those of the data set
  DType dtype = float32;  ///< of the batch: any float, or uint8 for pixels as they are (normalize is then ignored)

  /// Raises ValueError for what no image could be given.
  void validate() const;
  /// Mirror and crop as the airbench recipe for CIFAR-10 has them.
  static Augmentation airbench() {
    Augmentation a;
    a.crop_padding = 2;
    a.flip = Flip::alternating;
    return a;
  }
};

/// Applies an Augmentation to images of one size. What happens to a sample is drawn by Philox from (seed, epoch, sample
/// index) alone. Values come from a table computed in double and rounded to float32; a 16-bit batch is the float32 one,
/// rounded. Immutable: may be used from any threads.
class Augmenter {
 public:
  /// height, width, channels of the images; mean and stddev of the data set (may be empty). Raises ValueError or
  /// ShapeError for parameters that cannot be, DTypeError for the dtype.
  Augmenter(const Augmentation& augmentation, int64_t height, int64_t width, int64_t channels,
            const std::vector<double>& mean, const std::vector<double>& stddev);

  /// What happens to one sample.
  struct Draw {
    int64_t top = 0, left = 0;  ///< place of the crop in the padded image
    bool flip = false;
    int64_t cut_y = 0, cut_x = 0;  ///< centre of the cutout
  };
  Draw draw(uint64_t seed, uint64_t epoch, int64_t index) const;

  /// The images at these indices of a contiguous uint8 [n, height, width, channels] tensor, as a tensor of the batch's
  /// dtype. Raises IndexError.
  Tensor batch(const Tensor& images, const std::vector<int64_t>& indices, uint64_t seed, uint64_t epoch) const;

  DType dtype() const { return augmentation_.dtype; }

 private:
  template <class T>
  void fill_table(const std::vector<double>& mean, const std::vector<double>& stddev);
  template <class T>
  struct Pass;  // the tables and the loops of one output type, in augment.cpp

  template <class T>
  struct Table {
    std::vector<T> values;  // [channels][256]
    std::vector<T> fill;    // [channels], the colour of a cutout
  };
  Augmentation augmentation_;
  int64_t height_, width_, channels_;
  std::variant<Table<uint8_t>, Table<Float16>, Table<BFloat16>, Table<float>, Table<double>> table_;
};

/// (pixel / 255 - mean) / stddev of a whole uint8 [n, height, width, channels] tensor, on all threads.
Tensor normalize_images(const Tensor& images, const std::vector<double>& mean, const std::vector<double>& stddev,
                        DType dtype = float32);

}  // namespace anello::data
