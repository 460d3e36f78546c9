// The register tile that multiplies two sides lying in wider rows, compiled once for every height and width.
// Main entry: strided_function().
#include <anello/core/cpu/register_tile.h>

#include <array>
#include <utility>

namespace anello::kernel {
namespace {

template <class A, int M, int NV>
void strided(const A* a, int64_t a_step, const A* b, int64_t b_step, int64_t count, A* out, int64_t ld, bool add) {
  Accumulators<A, M, NV> acc;
  if (add)
    acc.load(out, ld);
  else
    acc.start(nullptr);
  for (int64_t i = 0; i < count; ++i, a += a_step, b += b_step) acc.step([a](int p) { return a[p]; }, b);
  acc.store(out, ld);
}

template <int NV, size_t... I>
StridedFunction<float> of_width(int64_t height, std::index_sequence<I...>) {
  static constexpr std::array<StridedFunction<float>, sizeof...(I)> functions = {
      strided<float, static_cast<int>(I) + 1, NV>...};
  return functions[static_cast<size_t>(height - 1)];
}

}  // namespace

StridedFunction<float> strided_function(int64_t height, int64_t vectors) {
  switch (vectors) {
    case 1:
      return of_width<1>(height, std::make_index_sequence<tile_rows(1)>());
    case 2:
      return of_width<2>(height, std::make_index_sequence<tile_rows(2)>());
    case 3:
      if constexpr (kTileVectors >= 3) return of_width<3>(height, std::make_index_sequence<tile_rows(3)>());
      break;
    default:
      if constexpr (kTileVectors >= 4) return of_width<4>(height, std::make_index_sequence<tile_rows(4)>());
  }
  return nullptr;
}

}  // namespace anello::kernel
