// Counter-based random numbers (Philox4x32-10): the same bits on every device and for any number of threads.
// Main entry: manual_seed(), Generator, rand(), randn(); philox() for code that keys its own stream.
// Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
#pragma once

#include <anello/core/kernels/philox.h>
#include <anello/core/tensor.h>

#include <cstdint>

namespace anello {

/// The state of a stream of draws: draw d fills its elements from philox(seed, d, ...); core/kernels/random.h says
/// which words an element takes. Not safe to use from several threads at once.
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
/// The process's generator: initialisation, dropout and the functions below draw from it. Read or set its state while
/// nobody draws.
Generator& default_generator();
/// Restarts the default generator.
void manual_seed(uint64_t seed);

/// The key of one draw.
struct Draw {
  uint64_t seed, stream;
};
/// The next draw of the default generator. Safe from any thread; which thread gets which draw is up to the callers.
Draw next_draw();
/// Makes dropout masks differ between processes of one seed: their rank, say. 0, the default, is that of one process.
void set_dropout_key(uint64_t key);
/// next_draw() with the seed changed by the dropout key.
Draw next_dropout_draw();

/// Uniform in [0, 1); float dtypes.
Tensor rand(const Shape& shape, DType dtype = float32, Device device = cpu);
/// Normal with mean 0 and standard deviation 1 (Box-Muller); float dtypes.
Tensor randn(const Shape& shape, DType dtype = float32, Device device = cpu);
/// Integers in [low, high). Raises ValueError when the range is empty or the dtype does not hold it.
Tensor randint(int64_t low, int64_t high, const Shape& shape, DType dtype = int64, Device device = cpu);
/// A random permutation of 0 .. n-1 (int64).
Tensor randperm(int64_t n);
/// In place: low + (high - low) * rand. Raises DTypeError for integers.
void uniform_into(const Tensor& dst, double low, double high);
/// In place: mean + std * randn.
void normal_into(const Tensor& dst, double mean, double std);

}  // namespace anello
