// The register tile that multiplies two panels, compiled once for every height and width.
// Main entry: panel_function().
#include <anello/core/cpu/register_tile.h>

#include <array>
#include <utility>

namespace anello::kernel {
namespace {

/// kPaired: the places of the pairs, else consecutive places.
template <class A, int M, int NV, bool kPaired>
inline __attribute__((always_inline)) void multiply(const A* a, const A* b, const PanelPair* pairs, int64_t count,
                                                    A* out, int64_t ld, bool add) {
  constexpr int kColumns = NV * kLanes<A>;
  Accumulators<A, M, NV> acc;
  if (add)
    acc.load(out, ld);
  else
    acc.start(nullptr);
  const auto at = [&](int64_t i) __attribute__((always_inline)) {
    const A* left = a + (kPaired ? pairs[i].a : i) * M;
    const A* right = b + (kPaired ? pairs[i].b : i) * kColumns;
    acc.step([left](int p) { return left[p]; }, right);
  };
  int64_t i = 0;
  for (; i + 2 <= count; i += 2) {
    at(i);
    at(i + 1);
  }
  if (i < count) at(i);
  acc.store(out, ld);
}

template <class A, int M, int NV>
void panel(const A* a, const A* b, const PanelPair* pairs, int64_t count, A* out, int64_t ld, bool add) {
  if (pairs != nullptr)
    multiply<A, M, NV, true>(a, b, pairs, count, out, ld, add);
  else
    multiply<A, M, NV, false>(a, b, pairs, count, out, ld, add);
}

template <class A, int NV, size_t... I>
PanelFunction<A> of_width(int64_t height, std::index_sequence<I...>) {
  static constexpr std::array<PanelFunction<A>, sizeof...(I)> functions = {panel<A, static_cast<int>(I) + 1, NV>...};
  return functions[static_cast<size_t>(height - 1)];
}

}  // namespace

template <class A>
PanelFunction<A> panel_function(int64_t height, int64_t vectors) {
  switch (vectors) {
    case 1:
      return of_width<A, 1>(height, std::make_index_sequence<tile_rows(1)>());
    case 2:
      return of_width<A, 2>(height, std::make_index_sequence<tile_rows(2)>());
    case 3:
      if constexpr (kTileVectors >= 3) return of_width<A, 3>(height, std::make_index_sequence<tile_rows(3)>());
      break;
    default:
      if constexpr (kTileVectors >= 4) return of_width<A, 4>(height, std::make_index_sequence<tile_rows(4)>());
  }
  return nullptr;
}
template PanelFunction<float> panel_function<float>(int64_t, int64_t);
template PanelFunction<double> panel_function<double>(int64_t, int64_t);

}  // namespace anello::kernel
