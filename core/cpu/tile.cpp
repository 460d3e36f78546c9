// The register tiles of core/cpu/tile.h, compiled once for every height and width.
// Main entry: gather_function(), panel_function().
#include <anello/core/cpu/tile.h>

#include <array>
#include <utility>

namespace anello::kernel {
namespace {

template <class A, int M, int NV>
void gather(const GatherTile<A>& g, A* out, int64_t ld, bool add) {
  gather_tile<A, M, NV>(g, out, ld, add);
}

// Two functions, so that the loop over pairs and the plain one each keep their registers.
template <class A, int M, int NV>
void panel(const A* a, const A* b, const PanelPair* pairs, int64_t count, A* out, int64_t ld, bool add) {
  if (pairs != nullptr) panel_tile<A, M, NV>(a, b, pairs, count, out, ld, add);
  else panel_tile<A, M, NV>(a, b, nullptr, count, out, ld, add);
}

template <class A, int NV, size_t... I>
constexpr std::array<PanelFunction<A>, sizeof...(I)> panels(std::index_sequence<I...>) {
  return {panel<A, static_cast<int>(I) + 1, NV>...};
}

template <class A, int NV>
GatherFunction<A> gather_of_width(int height) {
  switch (height) {
    case 1: return gather<A, 1, NV>;
    case 2: return gather<A, 2, NV>;
    case 4: return gather<A, 4, NV>;
    default:
      if constexpr (kTileRows > 8) {
        if (height == 8) return gather<A, 8, NV>;
      }
      return gather<A, kTileRows, NV>;
  }
}

}  // namespace

int gather_height(int64_t rows) {
  for (const int height : {1, 2, 4, 8})
    if (height < kTileRows && rows <= height) return height;
  return kTileRows;
}

template <class A>
GatherFunction<A> gather_function(int height, int vectors) {
  return vectors == 1 ? gather_of_width<A, 1>(height) : gather_of_width<A, 2>(height);
}
template GatherFunction<float> gather_function<float>(int, int);
template GatherFunction<double> gather_function<double>(int, int);

template <class A>
PanelFunction<A> panel_function(int height, int vectors) {
  using Heights = std::make_index_sequence<kTileRows>;
  static constexpr auto narrow = panels<A, 1>(Heights{}), wide = panels<A, 2>(Heights{});
  return (vectors == 1 ? narrow : wide)[static_cast<size_t>(height - 1)];
}
template PanelFunction<float> panel_function<float>(int, int);
template PanelFunction<double> panel_function<double>(int, int);

}  // namespace anello::kernel
