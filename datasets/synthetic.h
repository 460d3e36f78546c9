// A procedural set of 32x32 colour images in 10 classes that needs no file, for trying things out.
// Main entry: synthetic().
#pragma once

#include <anello/datasets/dataset.h>

#include <cstdint>

namespace anello::data {

/// Images of one shape, texture or colour: red disc, blue disc, ring, square, triangle, plus, rows, columns, checkers,
/// dots. Place, size, turn, colours, background, clutter and noise vary at random, so that a linear model does poorly
/// and a small convolutional network well. Classes take turns (label = index mod 10). Image i depends on (seed, i)
/// alone and is made with integers only: the same bytes on every machine. mean and stddev of both sets are those of the
/// training images.
ImageSplits synthetic(int64_t train_count = 50000, int64_t test_count = 10000, uint64_t seed = 0);

}  // namespace anello::data
