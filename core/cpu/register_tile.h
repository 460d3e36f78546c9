// The innermost loops of matrix products and convolutions: a tile of output kept in registers, one source for every
// register width, float and double.
// Main entry: gather_function(), panel_function(), EvenCut, tile_rows().
#pragma once

#include <anello/core/cpu/lanes.h>

#include <algorithm>
#include <cstdint>

#define ANELLO_UNROLL _Pragma("GCC unroll 16")

namespace anello::kernel {

inline int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }
inline int64_t round_up(int64_t a, int64_t b) { return divide_up(a, b) * b; }

/// `count` things in pieces of at most `most`, as even as possible, the larger ones first.
struct EvenCut {
  int64_t count, pieces;
  EvenCut(int64_t n, int64_t most) : count(n), pieces(std::max<int64_t>(1, divide_up(n, most))) {}
  int64_t size(int64_t i) const { return count / pieces + (i < count % pieces ? 1 : 0); }
  int64_t begin(int64_t i) const { return count / pieces * i + std::min(i, count % pieces); }
  int64_t largest() const { return size(0); }
};

// A tile is `rows` x `vectors` registers of sums; each step multiplies one broadcast value a row with `vectors`
// registers. Wide tiles need fewer loads for each product (6 x 4: 10 loads for 24), tall ones read less of the right
// side (12 x 2).
#if defined(__AVX512F__) || defined(__aarch64__)
inline constexpr int kTileVectors = 4, kTallTileVectors = 2, kTileRows = 12;
constexpr int tile_rows(int64_t vectors) { return vectors <= 2 ? 12 : vectors == 3 ? 8 : 6; }
#elif defined(__FMA__)
inline constexpr int kTileVectors = 2, kTallTileVectors = 2, kTileRows = 6;
constexpr int tile_rows(int64_t) { return 6; }
#else
inline constexpr int kTileVectors = 2, kTallTileVectors = 2, kTileRows = 4;
constexpr int tile_rows(int64_t) { return 4; }
#endif
/// Columns of the widest tile; kTileRows are the rows of the tallest.
template <class A>
inline constexpr int kTileColumns = kTileVectors* kLanes<A>;

/// A value in every lane, loaded once: left alone the compiler repeats the broadcast in every multiplication that uses
/// it.
template <class A>
inline __attribute__((always_inline)) Lanes<A> broadcast(A value) {
  Lanes<A> v = splat(value);
#if defined(__x86_64__)
  asm("" : "+v"(v));
#elif defined(__aarch64__)
  asm("" : "+w"(v));
#endif
  return v;
}

/// acc[M][NV] of A, with the ways to fill and to store it, and one step of the product.
template <class A, int M, int NV>
struct Accumulators {
  Lanes<A> v[M][NV];

  /// All rows the same NV registers (null: zero).
  inline __attribute__((always_inline)) void start(const A* row) {
    ANELLO_UNROLL for (int q = 0; q < NV; ++q) {
      const Lanes<A> first = row == nullptr ? Lanes<A>{} : load_lanes(row + q * kLanes<A>);
      ANELLO_UNROLL for (int p = 0; p < M; ++p) v[p][q] = first;
    }
  }
  inline __attribute__((always_inline)) void load(const A* from, int64_t ld) {
    ANELLO_UNROLL for (int p = 0; p < M; ++p) {
      ANELLO_UNROLL for (int q = 0; q < NV; ++q) v[p][q] = load_lanes(from + p * ld + q * kLanes<A>);
    }
  }
  inline __attribute__((always_inline)) void store(A* to, int64_t ld) const {
    ANELLO_UNROLL for (int p = 0; p < M; ++p) {
      ANELLO_UNROLL for (int q = 0; q < NV; ++q) store_lanes(to + p * ld + q * kLanes<A>, v[p][q]);
    }
  }
  /// v[p] += left(p) * right for all rows.
  template <class Left>
  inline __attribute__((always_inline)) void step(const Left& left, const A* right) {
    Lanes<A> b[NV];
    ANELLO_UNROLL for (int q = 0; q < NV; ++q) b[q] = load_lanes(right + q * kLanes<A>);
    ANELLO_UNROLL for (int p = 0; p < M; ++p) {
      const Lanes<A> value = broadcast<A>(left(p));
      ANELLO_UNROLL for (int q = 0; q < NV; ++q) v[p][q] += value * b[q];
    }
  }
};

/// What a gather tile reads: rows of values in one or more taps, and a weight panel [tap][channel][columns].
template <class A>
struct GatherTile {
  const A* base;           ///< offsets count from here
  const A* zeros;          ///< `channels` zeros, read where an offset is negative
  const int64_t* offsets;  ///< [tap_count][height]
  const int32_t* taps;     ///< [tap_count] places in the panel
  int64_t tap_count;
  int64_t channels;
  const A* panel;
  int64_t panel_step;  ///< elements from one channel to the next, at least the columns
  const A* bias;       ///< the columns' first summands, or null
};

/// out[p] = bias + sum over taps t and channels c of base[offsets[t][p] + c] * panel[taps[t]][c], for `height` rows p
/// of `vectors` registers. With `add` the sum starts from what is in out instead of bias. `ld` elements between the
/// rows of out.
template <class A>
using GatherFunction = void (*)(const GatherTile<A>&, A* out, int64_t ld, bool add);
/// The height of the smallest gather tile that holds `count` rows, of those for tiles of up to `rows` (see tile_rows())
/// rows.
int gather_height(int64_t count, int64_t rows);
/// The gather tile of a height given by gather_height() and up to kTileVectors registers a row. For float and double.
template <class A>
GatherFunction<A> gather_function(int64_t height, int64_t vectors);

/// One step of a sum over pairs: a place in a panel of `height` columns and one in a panel of `vectors` registers.
struct PanelPair {
  int32_t a, b;
};
/// out[p] (+)= sum over i of a[i][p] * b[i], or over the places that pairs name when there are any; a is [..][height],
/// b is
/// [..][vectors registers]. The sum starts from zero unless `add`.
template <class A>
using PanelFunction = void (*)(const A* a, const A* b, const PanelPair* pairs, int64_t count, A* out, int64_t ld,
                               bool add);
/// The panel tile of a height in [1, tile_rows(vectors)] and up to kTileVectors registers a row. For float and double.
template <class A>
PanelFunction<A> panel_function(int64_t height, int64_t vectors);

/// out[p] (+)= sum over i of a[i a_step + p] * b[i b_step], for `height` values p of a and `vectors` registers of b:
/// the sides lie in wider rows. The sum starts from zero unless `add`.
template <class A>
using StridedFunction = void (*)(const A* a, int64_t a_step, const A* b, int64_t b_step, int64_t count, A* out,
                                 int64_t ld, bool add);
/// As panel_function(), for float.
StridedFunction<float> strided_function(int64_t height, int64_t vectors);

}  // namespace anello::kernel
