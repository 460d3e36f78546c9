// The register tile that gathers its rows, compiled once for every height and width.
// Main entry: gather_function().
#include <anello/core/cpu/register_tile.h>

namespace anello::kernel {
namespace {

template <class A, int M, int NV>
void gather(const GatherTile<A>& g, A* out, int64_t ld, bool add) {
  Accumulators<A, M, NV> acc;
  if (add)
    acc.load(out, ld);
  else
    acc.start(g.bias);
  const int64_t tap_step = g.channels * g.panel_step, step = g.panel_step, channels = g.channels;
  for (int64_t t = 0; t < g.tap_count; ++t) {
    const A* rows[M];
    ANELLO_UNROLL for (int p = 0; p < M; ++p) {
      const int64_t offset = g.offsets[t * M + p];
      rows[p] = offset < 0 ? g.zeros : g.base + offset;
    }
    const A* w = g.panel + g.taps[t] * tap_step;
    int64_t c = 0;
    for (; c + 2 <= channels; c += 2, w += 2 * step) {
      acc.step([&](int p) { return rows[p][c]; }, w);
      acc.step([&](int p) { return rows[p][c + 1]; }, w + step);
    }
    if (c < channels) acc.step([&](int p) { return rows[p][c]; }, w);
  }
  acc.store(out, ld);
}

template <class A, int NV>
GatherFunction<A> of_width(int64_t height) {
  switch (height) {
    case 1:
      return gather<A, 1, NV>;
    case 2:
      return gather<A, 2, NV>;
    case 4:
      return gather<A, 4, NV>;
    case 6:
      if constexpr (kTileRows >= 6) return gather<A, 6, NV>;
      break;
    case 8:
      if constexpr (kTileRows >= 8 && NV <= 3) return gather<A, 8, NV>;
      break;
    default:
      if constexpr (kTileRows >= 12 && NV <= 2) return gather<A, 12, NV>;
  }
  return nullptr;
}

}  // namespace

int gather_height(int64_t count, int64_t rows) {
  for (const int height : {1, 2, 4, 6, 8})
    if (height <= rows && count <= height) return height;
  return static_cast<int>(rows);
}

template <class A>
GatherFunction<A> gather_function(int64_t height, int64_t vectors) {
  switch (vectors) {
    case 1:
      return of_width<A, 1>(height);
    case 2:
      return of_width<A, 2>(height);
    case 3:
      if constexpr (kTileVectors >= 3) return of_width<A, 3>(height);
      break;
    default:
      if constexpr (kTileVectors >= 4) return of_width<A, 4>(height);
  }
  return nullptr;
}
template GatherFunction<float> gather_function<float>(int64_t, int64_t);
template GatherFunction<double> gather_function<double>(int64_t, int64_t);

}  // namespace anello::kernel
