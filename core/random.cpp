// The default generator and the tensors drawn from it.
// Main entry: manual_seed(), rand(), randn(), randint(), randperm().
#include <anello/core/kernels/random.h>
#include <anello/core/random.h>
#include <anello/core/registry.h>

#include <atomic>
#include <mutex>

namespace anello {
namespace detail {
Tensor empty_for(std::string_view op, const Shape& shape, DType dtype, Device device);
}
namespace {

std::mutex& generator_mutex() {
  static std::mutex mutex;
  return mutex;
}

template <const auto& Tag>
void draw_into(const char* op, const Tensor& dst, double a, double b) {
  check<DTypeError>(is_floating_point(dst.dtype()), op, "the tensor is ", dst.dtype(),
                    ". Hint: use a float dtype, or randint for integers.");
  require_writable(op, dst);
  const Draw draw = next_draw();
  const bool direct = dst.is_contiguous();
  const Tensor target = direct ? dst : empty(dst.shape(), dst.dtype(), dst.device());
  if (dst.numel() > 0)
    launch<Tag>(dst.device(), dst.dtype(),
                {target.raw_data(), dst.dtype(), dst.numel(), draw.seed, draw.stream, a, b, 0, 0});
  if (direct)
    dst.bump_version();
  else
    copy_into(dst, target);
}

/// Whether every integer in [low, high) has a place in the dtype (float16 and bfloat16 hold whole numbers up to 2^11
/// and 2^8).
bool holds(DType dtype, int64_t low, int64_t high) {
  const auto within = [&](int64_t smallest, int64_t largest) { return low >= smallest && high - 1 <= largest; };
  const auto bits = [&](int count) { return within(-(int64_t{1} << count), int64_t{1} << count); };
  switch (dtype) {
    case DType::bool_:
      return within(0, 1);
    case DType::uint8:
      return within(0, 255);
    case DType::int8:
      return within(-128, 127);
    case DType::int16:
      return within(-32768, 32767);
    case DType::int32:
      return within(INT32_MIN, INT32_MAX);
    case DType::int64:
      return true;
    case DType::float16:
      return bits(11);
    case DType::bfloat16:
      return bits(8);
    case DType::float32:
      return bits(24);
    case DType::float64:
      return bits(53);
  }
  return false;
}

}  // namespace

Generator& default_generator() {
  static Generator generator;
  return generator;
}

void manual_seed(uint64_t seed) {
  const std::lock_guard lock(generator_mutex());
  default_generator().set_state(seed, 0);
}

Draw next_draw() {
  const std::lock_guard lock(generator_mutex());
  Generator& generator = default_generator();
  return {generator.seed(), generator.next_stream()};
}

namespace {
std::atomic<uint64_t> dropout_key{0};
}

void set_dropout_key(uint64_t key) { dropout_key = key; }

Draw next_dropout_draw() {
  Draw draw = next_draw();
  draw.seed ^= dropout_key * 0x9e3779b97f4a7c15u;
  return draw;
}

Tensor rand(const Shape& shape, DType dtype, Device device) {
  Tensor t = detail::empty_for("rand", shape, dtype, device);
  draw_into<kRandomUniform>("rand", t, 0, 1);
  return t;
}

Tensor randn(const Shape& shape, DType dtype, Device device) {
  Tensor t = detail::empty_for("randn", shape, dtype, device);
  draw_into<kRandomNormal>("randn", t, 0, 1);
  return t;
}

void uniform_into(const Tensor& dst, double low, double high) {
  check<ValueError>(low <= high, "uniform", "low ", low, " is above high ", high, ".");
  draw_into<kRandomUniform>("uniform", dst, low, high);
}

void normal_into(const Tensor& dst, double mean, double std) {
  check<ValueError>(std >= 0, "normal", "the standard deviation is ", std, "; it must not be negative.");
  draw_into<kRandomNormal>("normal", dst, mean, std);
}

Tensor randint(int64_t low, int64_t high, const Shape& shape, DType dtype, Device device) {
  check<ValueError>(low < high, "randint", "the range [", low, ", ", high, ") is empty.");
  check<ValueError>(holds(dtype, low, high), "randint", "the range [", low, ", ", high, ") does not fit ", dtype,
                    ". Hint: use a wider dtype.");
  Tensor t = detail::empty_for("randint", shape, dtype, device);
  const Draw draw = next_draw();
  const uint64_t range = static_cast<uint64_t>(high) - static_cast<uint64_t>(low);
  if (t.numel() > 0)
    launch<kRandomIntegers>(device, dtype, {t.raw_data(), dtype, t.numel(), draw.seed, draw.stream, 0, 0, low, range});
  return t;
}

Tensor randperm(int64_t n) {
  check<ValueError>(n >= 0, "randperm", "n is ", n, "; it must not be negative.");
  const Tensor t = arange(0, n);
  int64_t* values = t.data<int64_t>();
  const Draw draw = next_draw();
  for (int64_t i = n - 1; i > 0; --i) {  // Fisher-Yates
    const auto bits = philox(draw.seed, draw.stream, static_cast<uint64_t>(i));
    __extension__ using Wide = unsigned __int128;
    const uint64_t word = (uint64_t{bits[0]} << 32) | bits[1];
    const auto j = static_cast<int64_t>((static_cast<Wide>(word) * static_cast<uint64_t>(i + 1)) >> 64);
    std::swap(values[i], values[j]);
  }
  return t;
}

}  // namespace anello
