// The innermost loops of matrix products and convolutions: a tile of output kept in registers, one source for every
// register width, float and double.
// Main entry: gather_tile(), panel_tile(), kTileRows, kTileVectors.
#pragma once

#include <anello/core/cpu/lanes.h>

#include <cstdint>

#define ANELLO_UNROLL _Pragma("GCC unroll 16")

namespace anello::kernel {

/// Rows and registers a row of the largest tile: rows * vectors accumulators, the vectors of one step and one broadcast value fill
/// the register file (32 registers with AVX-512 and on ARM, 16 otherwise).
#if defined(__AVX512F__) || defined(__aarch64__)
inline constexpr int kTileRows = 12;
#elif defined(__FMA__)
inline constexpr int kTileRows = 6;
#else
inline constexpr int kTileRows = 4;
#endif
inline constexpr int kTileVectors = 2;
/// Columns of the widest tile.
template <class A>
inline constexpr int kTileColumns = kTileVectors * kLanes<A>;

/// A value in every lane, loaded once: left alone the compiler repeats the broadcast in every multiplication that uses it.
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

/// acc[M][NV] of A, with the ways to fill and to store it.
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
};

/// What a gather tile reads: rows of values in one or more taps, and a weight panel [tap][channel][NV registers].
template <class A>
struct GatherTile {
  const A* base;            ///< offsets count from here
  const A* zeros;           ///< `channels` zeros, read where an offset is negative
  const int64_t* offsets;   ///< [tap_count][M]
  const int32_t* taps;      ///< [tap_count] places in the panel
  int64_t tap_count;
  int64_t channels;
  const A* panel;
  int64_t panel_step;       ///< elements from one channel to the next, at least NV registers
  const A* bias;            ///< NV registers to start from, or null
};

/// out[p] = bias + sum over taps t and channels c of base[offsets[t][p] + c] * panel[taps[t]][c]; M rows of NV registers. With
/// `add` the sum starts from what is in out instead of bias. `ld` elements between the rows of out.
template <class A, int M, int NV>
inline void gather_tile(const GatherTile<A>& g, A* out, int64_t ld, bool add) {
  Accumulators<A, M, NV> acc;
  if (add) acc.load(out, ld);
  else acc.start(g.bias);
  const int64_t tap_step = g.channels * g.panel_step, step = g.panel_step, channels = g.channels;
  for (int64_t t = 0; t < g.tap_count; ++t) {
    const A* rows[M];
    ANELLO_UNROLL for (int p = 0; p < M; ++p) {
      const int64_t offset = g.offsets[t * M + p];
      rows[p] = offset < 0 ? g.zeros : g.base + offset;
    }
    const A* w = g.panel + g.taps[t] * tap_step;
    for (int64_t c = 0; c < channels; ++c, w += step) {
      Lanes<A> b[NV];
      ANELLO_UNROLL for (int q = 0; q < NV; ++q) b[q] = load_lanes(w + q * kLanes<A>);
      ANELLO_UNROLL for (int p = 0; p < M; ++p) {
        const Lanes<A> value = broadcast(rows[p][c]);
        ANELLO_UNROLL for (int q = 0; q < NV; ++q) acc.v[p][q] += value * b[q];
      }
    }
  }
  acc.store(out, ld);
}

/// One step of a sum over pairs: a place in a panel of M columns and one in a panel of NV registers.
struct PanelPair {
  int32_t a, b;
};

/// out[p] += sum over i of a[i][p] * b[i], or over the pairs' places when there are any; a is [..][M], b is [..][NV registers].
/// The sum starts from zero unless `add`.
template <class A, int M, int NV>
inline void panel_tile(const A* a, const A* b, const PanelPair* pairs, int64_t count, A* out, int64_t ld, bool add) {
  constexpr int kColumns = NV * kLanes<A>;
  Accumulators<A, M, NV> acc;
  if (add) acc.load(out, ld);
  else acc.start(nullptr);
  for (int64_t i = 0; i < count; ++i) {
    const A* left = pairs != nullptr ? a + static_cast<int64_t>(pairs[i].a) * M : a + i * M;
    const A* right = pairs != nullptr ? b + static_cast<int64_t>(pairs[i].b) * kColumns : b + i * kColumns;
    Lanes<A> v[NV];
    ANELLO_UNROLL for (int q = 0; q < NV; ++q) v[q] = load_lanes(right + q * kLanes<A>);
    ANELLO_UNROLL for (int p = 0; p < M; ++p) {
      const Lanes<A> value = broadcast(left[p]);
      ANELLO_UNROLL for (int q = 0; q < NV; ++q) acc.v[p][q] += value * v[q];
    }
  }
  acc.store(out, ld);
}

/// The tiles of all heights and both widths as functions, to be picked by number.
template <class A>
using GatherFunction = void (*)(const GatherTile<A>&, A* out, int64_t ld, bool add);
template <class A>
using PanelFunction = void (*)(const A* a, const A* b, const PanelPair* pairs, int64_t count, A* out, int64_t ld, bool add);

/// The height of the smallest gather tile that holds `rows` (1 .. kTileRows).
int gather_height(int64_t rows);
/// The gather tile of a height given by gather_height(), of 1 or 2 registers a row. For float and double.
template <class A>
GatherFunction<A> gather_function(int height, int vectors);
/// The panel tile of a height in [1, kTileRows], of 1 or 2 registers a row. For float and double.
template <class A>
PanelFunction<A> panel_function(int height, int vectors);

}  // namespace anello::kernel
