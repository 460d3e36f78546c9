// Philox4x32-10: random bits as a pure function of (seed, stream, index), the same on every device.
// Main entry: philox(seed, stream, index).
// Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
#pragma once

#include <array>
#include <cstdint>

namespace anello {

/// Ten rounds of Philox4x32: 128 random bits from a 128-bit counter and a 64-bit key.
constexpr std::array<uint32_t, 4> philox(std::array<uint32_t, 4> c, std::array<uint32_t, 2> k) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53u} * c[0], p1 = uint64_t{0xCD9E8D57u} * c[2];
    c = {static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ k[0], static_cast<uint32_t>(p1),
         static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ k[1], static_cast<uint32_t>(p0)};
    k[0] += 0x9E3779B9u;
    k[1] += 0xBB67AE85u;
  }
  return c;
}
/// 128 bits for (seed, stream, index): key = seed, counter = (index, stream).
constexpr std::array<uint32_t, 4> philox(uint64_t seed, uint64_t stream, uint64_t index) {
  return philox({static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32), static_cast<uint32_t>(stream),
                 static_cast<uint32_t>(stream >> 32)},
                {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
}
/// 24 random bits as a float in [0, 1).
constexpr float uniform_float(uint32_t bits) { return static_cast<float>(bits >> 8) * 0x1p-24f; }
/// 53 random bits as a double in [0, 1).
constexpr double uniform_double(uint32_t high, uint32_t low) {
  return static_cast<double>(((static_cast<uint64_t>(high) << 32) | low) >> 11) * 0x1p-53;
}
/// An unbiased-enough integer in [0, n), n at most 2^32 (Lemire's multiply-shift; bias below n / 2^32).
constexpr uint32_t uniform_below(uint32_t bits, uint64_t n) {
  return static_cast<uint32_t>((uint64_t{bits} * n) >> 32);
}

}  // namespace anello
