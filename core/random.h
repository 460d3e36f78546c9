// Counter-based random numbers (Philox4x32-10): the same bits on every device and for any number of threads.
// Main entry: manual_seed(), Generator, rand(), randn(); philox() for code that keys its own stream.
// Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
#pragma once

#include <anello/core/tensor.h>

#include <array>
#include <cstdint>
#include <utility>

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
/// An unbiased-enough integer in [0, n), n below 2^32 (Lemire's multiply-shift; bias below n / 2^32).
constexpr uint32_t uniform_below(uint32_t bits, uint32_t n) {
  return static_cast<uint32_t>((uint64_t{bits} * n) >> 32);
}

/// The state of a stream of draws: element i of draw d uses philox(seed, d, i / 4), word i % 4.
class Generator {
 public:
  explicit Generator(uint64_t seed = 0) : seed_(seed) {}
  uint64_t seed() const { return seed_; }
  /// Number of draws so far; the next call to next_stream() returns it.
  uint64_t position() const { return position_; }
  void set_state(uint64_t seed, uint64_t position) { seed_ = seed, position_ = position; }
  /// A stream number that no other draw of this generator has.
  uint64_t next_stream() { return position_++; }

 private:
  uint64_t seed_;
  uint64_t position_ = 0;
};
/// The process's generator: initialisation, dropout and the functions below draw from it.
Generator& default_generator();
/// Restarts the default generator.
void manual_seed(uint64_t seed);

/// Uniform in [0, 1).
Tensor rand(const Shape& shape, DType dtype = float32, Device device = cpu);
/// Normal with mean 0 and standard deviation 1 (Box-Muller).
Tensor randn(const Shape& shape, DType dtype = float32, Device device = cpu);
/// Integers in [low, high).
Tensor randint(int64_t low, int64_t high, const Shape& shape, DType dtype = int64, Device device = cpu);
/// A random permutation of 0 .. n-1 (int64).
Tensor randperm(int64_t n);
/// In place: low + (high - low) * rand.
void uniform_into(const Tensor& dst, double low, double high);
/// In place: mean + std * randn.
void normal_into(const Tensor& dst, double mean, double std);

}  // namespace anello
