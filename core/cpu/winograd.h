// Winograd's minimal filtering for 3x3 convolutions of stride 1: F(4x4, 3x3), a quarter of the multiplications.
// Lavin and Gray, arXiv 1509.09308; the points are 0, +-3/4, +-3/2 and infinity, whose error is near that of the direct
// sum: in float32 about 2e-6 of the largest output, at most 5e-6 (the customary 0, +-1, +-2 give 7e-6). Products are
// float32 for every dtype. A tile of 2x2 outputs would only pay on maps of at most 2x2, which are left to the direct
// kernel. Main entry: winograd_pays(), winograd_forward(), winograd_input_grad(), winograd_weight_grad().
#pragma once

#include <anello/core/cpu/register_tile.h>
#include <anello/core/kernels/conv.h>

namespace anello::kernel {

/// Whether the transforms and the tiles at the border leave a gain, by the sizes alone.
bool winograd_pays(const ConvShape& shape);
/// The three products of kernels/conv.h, for shapes that winograd_pays() and dtypes float16, bfloat16, float32.
void winograd_forward(const Context& ctx, const ConvParams& p);
void winograd_input_grad(const Context& ctx, const ConvParams& p);
void winograd_weight_grad(const Context& ctx, const ConvParams& p);

namespace winograd {

constexpr int kTile = 6, kOut = 4, kPlaces = kTile * kTile;
constexpr float kA = 0.75f, kB = 1.5f, kA2 = kA * kA, kB2 = kB * kB;
constexpr float kProduct = kA2 * kB2, kSum = kA2 + kB2;
constexpr float kScaleA = 1 / (2 * kA2 * (kA2 - kB2)), kScaleB = 1 / (2 * kB2 * (kB2 - kA2)), kScale0 = 1 / kProduct;

using V = FloatLanes;
#define ANELLO_WINOGRAD_INLINE inline __attribute__((always_inline))

/// A square of registers, in place.
ANELLO_WINOGRAD_INLINE void transpose(V* rows) {
  constexpr int kSize = kLanes<float>;
  ANELLO_UNROLL for (int step = 1; step < kSize; step *= 2) {
    Int32Lanes low, high;  // of two rows one after the other: what stays of the first, of the second
    ANELLO_UNROLL for (int l = 0; l < kSize; ++l) {
      low[l] = (l & step) == 0 ? l : kSize + l - step;
      high[l] = (l & step) == 0 ? l + step : kSize + l;
    }
    ANELLO_UNROLL for (int i = 0; i < kSize; ++i) {
      if ((i & step) != 0) continue;
      const V a = rows[i], b = rows[i + step];
      rows[i] = __builtin_shuffle(a, b, low);
      rows[i + step] = __builtin_shuffle(a, b, high);
    }
  }
}

// One dimension of each transform.

/// B^T d: six inputs to the six points.
ANELLO_WINOGRAD_INLINE void to_points(const V* d, V* v) {
  const V d0 = d[0], d1 = d[1], d2 = d[2], d3 = d[3], d4 = d[4], d5 = d[5];
  const V even_a = d4 - kB2 * d2, odd_a = kA * (d3 - kB2 * d1), even_b = d4 - kA2 * d2, odd_b = kB * (d3 - kA2 * d1);
  v[0] = d4 + (kProduct * d0 - kSum * d2);
  v[1] = even_a + odd_a;
  v[2] = even_a - odd_a;
  v[3] = even_b + odd_b;
  v[4] = even_b - odd_b;
  v[5] = d5 + (kProduct * d1 - kSum * d3);
}
/// A^T m: six points to four outputs.
ANELLO_WINOGRAD_INLINE void from_points(const V* m, V* y) {
  const V sum_a = m[1] + m[2], difference_a = m[1] - m[2], sum_b = m[3] + m[4], difference_b = m[3] - m[4];
  y[0] = m[0] + sum_a + sum_b;
  y[1] = kA * difference_a + kB * difference_b;
  y[2] = kA2 * sum_a + kB2 * sum_b;
  y[3] = (kA * kA2) * difference_a + (kB * kB2) * difference_b + m[5];
}
/// A y: gradients of four outputs at the six points.
ANELLO_WINOGRAD_INLINE void outputs_to_points(const V* y, V* w) {
  const V even_a = y[0] + kA2 * y[2], odd_a = kA * (y[1] + kA2 * y[3]);
  const V even_b = y[0] + kB2 * y[2], odd_b = kB * (y[1] + kB2 * y[3]);
  w[0] = y[0];
  w[1] = even_a + odd_a;
  w[2] = even_a - odd_a;
  w[3] = even_b + odd_b;
  w[4] = even_b - odd_b;
  w[5] = y[3];
}
/// G g: three weights at the six points.
ANELLO_WINOGRAD_INLINE void weights_to_points(const V* g, V* u, int from_step) {
  const V g0 = g[0], g1 = g[from_step], g2 = g[2 * from_step];
  const V even_a = kScaleA * (g0 + kA2 * g2), odd_a = (kScaleA * kA) * g1;
  const V even_b = kScaleB * (g0 + kB2 * g2), odd_b = (kScaleB * kB) * g1;
  u[0] = kScale0 * g0;
  u[1] = even_a + odd_a;
  u[2] = even_a - odd_a;
  u[3] = even_b + odd_b;
  u[4] = even_b - odd_b;
  u[5] = g2;
}
/// G^T u: the gradients of three weights.
ANELLO_WINOGRAD_INLINE void points_to_weights(const V* u, V* g) {
  const V sum_a = kScaleA * (u[1] + u[2]), sum_b = kScaleB * (u[3] + u[4]);
  g[0] = kScale0 * u[0] + sum_a + sum_b;
  g[1] = (kScaleA * kA) * (u[1] - u[2]) + (kScaleB * kB) * (u[3] - u[4]);
  g[2] = kA2 * sum_a + kB2 * sum_b + u[5];
}

/// Tiles of 4x4 outputs that cover [n, height, width], counted row by row.
struct Tiles {
  int64_t n, rows, columns;
  Tiles(int64_t images, int64_t height, int64_t width)
      : n(images), rows((height + kOut - 1) / kOut), columns((width + kOut - 1) / kOut) {}
  int64_t count() const { return n * rows * columns; }
  struct Place {
    int64_t image, row, column;  ///< of the first output
  };
  Place operator[](int64_t i) const { return {i / (rows * columns), i / columns % rows * kOut, i % columns * kOut}; }
};

/// Addresses of the places [row, row + size) x [column, column + size) of an image [height, width, channels]; those
/// outside are `zeros`.
template <class T>
inline void window(const T* image, int64_t height, int64_t width, int64_t channels, int64_t row, int64_t column,
                   int size, const T* zeros, const T** at) {
  for (int i = 0; i < size; ++i)
    for (int j = 0; j < size; ++j) {
      const int64_t r = row + i, c = column + j;
      const bool inside = r >= 0 && r < height && c >= 0 && c < width;
      at[i * size + j] = inside ? image + (r * width + c) * channels : zeros;
    }
}

/// The 36 points of `count` channels of kFrom x kFrom windows, whose places are at `at`, to `to` + place * place_step:
/// to_points() of 6x6 inputs, outputs_to_points() of 4x4 gradients. Lanes beyond the last channel are 0; `to` has room
/// for whole registers.
template <int kFrom, void (*kTransform)(const V*, V*), class T>
inline void window_to_points(const T* const* at, int64_t count, float* to, int64_t place_step) {
  for_lanes<float>(
      count, [&](int64_t c, int64_t m) __attribute__((always_inline)) {
        V half[kTile * kFrom], from[kFrom], points[kTile];
        ANELLO_UNROLL for (int j = 0; j < kFrom; ++j) {
          ANELLO_UNROLL for (int i = 0; i < kFrom; ++i) from[i] = read_lanes(at[i * kFrom + j] + c, m);
          kTransform(from, points);
          ANELLO_UNROLL for (int i = 0; i < kTile; ++i) half[i * kFrom + j] = points[i];
        }
        ANELLO_UNROLL for (int i = 0; i < kTile; ++i) {
          kTransform(half + i * kFrom, points);
          ANELLO_UNROLL for (int j = 0; j < kTile; ++j) store_lanes(to + (i * kTile + j) * place_step + c, points[j]);
        }
      });
}

}  // namespace winograd
}  // namespace anello::kernel
