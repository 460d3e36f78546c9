// Counter-based random numbers in vector code, and dropout.
// Main entry: kernels of kRandomUniform, kRandomNormal, kRandomIntegers, kDropout.
#include <anello/core/cpu/convert.h>
#include <anello/core/cpu/vec_math.h>
#include <anello/core/kernels/random.h>

#include <algorithm>
#include <numbers>

namespace anello::kernel {
namespace {

constexpr int kCounters = 16;             // counters computed side by side
constexpr int kWords = 4 * kCounters;
constexpr int64_t kPiece = 1024;          // words handed out at a time
constexpr int64_t kGrain = 16 * kPiece;   // words a thread takes

/// Ten rounds for counters first ... first + 15; words[w] is word 4 first + w of the stream.
void philox_words(uint64_t seed, uint64_t stream, uint64_t first, uint32_t* words) {
  uint32_t c0[kCounters], c1[kCounters], c2[kCounters], c3[kCounters];
  for (int i = 0; i < kCounters; ++i) {
    const uint64_t index = first + static_cast<uint64_t>(i);
    c0[i] = static_cast<uint32_t>(index), c1[i] = static_cast<uint32_t>(index >> 32);
    c2[i] = static_cast<uint32_t>(stream), c3[i] = static_cast<uint32_t>(stream >> 32);
  }
  uint32_t k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) {
    for (int i = 0; i < kCounters; ++i) {
      const uint64_t p0 = uint64_t{0xD2511F53u} * c0[i], p1 = uint64_t{0xCD9E8D57u} * c2[i];
      c0[i] = static_cast<uint32_t>(p1 >> 32) ^ c1[i] ^ k0;
      c2[i] = static_cast<uint32_t>(p0 >> 32) ^ c3[i] ^ k1;
      c1[i] = static_cast<uint32_t>(p1);
      c3[i] = static_cast<uint32_t>(p0);
    }
  }
  for (int i = 0; i < kCounters; ++i)
    words[4 * i] = c0[i], words[4 * i + 1] = c1[i], words[4 * i + 2] = c2[i], words[4 * i + 3] = c3[i];
}

/// Calls f(words, at, n) for pieces of the stream's words [0, count): words holds those from `at` on, rounded up to whole counters.
template <class F>
void for_words(const Context& ctx, uint64_t seed, uint64_t stream, int64_t count, const F& f) {
  ctx.parallel_for(count, kGrain, [&](int64_t begin, int64_t end) {
    alignas(64) uint32_t words[kPiece];
    for (int64_t at = begin; at < end; at += kPiece) {
      const int64_t n = std::min(kPiece, end - at);
      for (int64_t w = 0; w < n; w += kWords) philox_words(seed, stream, static_cast<uint64_t>((at + w) / 4), words + w);
      f(words, at, n);
    }
  });
}

template <class C>
void put(const RandomParams& p, int64_t at, int64_t n, const C* values) {
  store_block(element(p.out, p.dtype, at), p.dtype, 1, 0, n, 1, values);
}

/// Bits of a uniform number of this dtype.
int digits(DType dtype) { return dtype == DType::float16 ? 11 : dtype == DType::bfloat16 ? 8 : 24; }

Status uniform(const Context& ctx, const RandomParams& p) {
  if (p.dtype == DType::float64) {
    for_words(ctx, p.seed, p.stream, 2 * p.count, [&](const uint32_t* words, int64_t at, int64_t n) {
      double values[kPiece / 2];
      for (int64_t i = 0; i < n / 2; ++i) values[i] = p.a + (p.b - p.a) * uniform_double(words[2 * i], words[2 * i + 1]);
      put(p, at / 2, n / 2, values);
    });
    return Status::ok;
  }
  const float low = static_cast<float>(p.a), span = static_cast<float>(p.b - p.a);
  const int bits = digits(p.dtype), shift = 32 - bits;
  const float unit = 1.0f / static_cast<float>(1 << bits);
  for_words(ctx, p.seed, p.stream, p.count, [&](const uint32_t* words, int64_t at, int64_t n) {
    float values[kPiece];
    for (int64_t i = 0; i < n; ++i) values[i] = low + span * (static_cast<float>(static_cast<int32_t>(words[i] >> shift)) * unit);
    put(p, at, n, values);
  });
  return Status::ok;
}

/// Box-Muller for all pairs of a piece; a last element without a partner has its words all the same.
void normal_floats(const uint32_t* words, float mean, float deviation, float* values) {
  using V = Vec<float>;
  constexpr int kWidth = V::kWidth;
  for (int64_t i = 0; i < kPiece; i += 2 * kWidth) {
    float u[kWidth], v[kWidth], even[kWidth], odd[kWidth];
    for (int k = 0; k < kWidth; ++k) {
      u[k] = static_cast<float>(words[i + 2 * k]) * 0x1p-32f + 0x1p-33f;
      v[k] = uniform_float(words[i + 2 * k + 1]);
    }
    const V radius = sqrt(log(V::load(u)) * -2.0) * V::splat(deviation);
    const auto [sine, cosine] = detail::sin_cos(V::load(v) * V::splat(2 * std::numbers::pi_v<float>));
    (radius * cosine + V::splat(mean)).store(even);
    (radius * sine + V::splat(mean)).store(odd);
    for (int k = 0; k < kWidth; ++k) values[i + 2 * k] = even[k], values[i + 2 * k + 1] = odd[k];
  }
}

Status normal(const Context& ctx, const RandomParams& p) {
  if (p.dtype == DType::float64) {
    for_words(ctx, p.seed, p.stream, 2 * p.count, [&](const uint32_t* words, int64_t at, int64_t n) {
      double values[kPiece / 2];
      for (int64_t i = 0; i < n; i += 4) {
        const double radius = p.b * std::sqrt(-2 * std::log(1 - uniform_double(words[i], words[i + 1])));
        const double angle = 2 * std::numbers::pi * uniform_double(words[i + 2], words[i + 3]);
        values[i / 2] = p.a + radius * std::cos(angle), values[i / 2 + 1] = p.a + radius * std::sin(angle);
      }
      put(p, at / 2, n / 2, values);
    });
    return Status::ok;
  }
  for_words(ctx, p.seed, p.stream, p.count, [&](uint32_t* words, int64_t at, int64_t n) {
    float values[kPiece];
    const int64_t made = (n + kWords - 1) / kWords * kWords;
    std::fill(words + made, words + kPiece, 0u);
    normal_floats(words, static_cast<float>(p.a), static_cast<float>(p.b), values);
    put(p, at, n, values);
  });
  return Status::ok;
}

Status integers(const Context& ctx, const RandomParams& p) {
  const auto shifted = [&](uint64_t offset) { return static_cast<int64_t>(static_cast<uint64_t>(p.low) + offset); };
  if (p.range <= uint64_t{1} << 32) {
    for_words(ctx, p.seed, p.stream, p.count, [&](const uint32_t* words, int64_t at, int64_t n) {
      int64_t values[kPiece];
      for (int64_t i = 0; i < n; ++i) values[i] = shifted(uniform_below(words[i], p.range));
      put(p, at, n, values);
    });
    return Status::ok;
  }
  for_words(ctx, p.seed, p.stream, 2 * p.count, [&](const uint32_t* words, int64_t at, int64_t n) {
    __extension__ using Wide = unsigned __int128;
    int64_t values[kPiece / 2];
    for (int64_t i = 0; i < n / 2; ++i) {
      const uint64_t bits = (uint64_t{words[2 * i]} << 32) | words[2 * i + 1];
      values[i] = shifted(static_cast<uint64_t>((static_cast<Wide>(bits) * p.range) >> 64));
    }
    put(p, at / 2, n / 2, values);
  });
  return Status::ok;
}

Status dropout(const Context& ctx, const DropoutParams& p) {
  with_float_type(p.dtype, [&]<class C>(C) {
    const C scale = static_cast<C>(p.scale);
    for_words(ctx, p.seed, p.stream, p.count, [&](const uint32_t* words, int64_t at, int64_t n) {
      alignas(64) C in[kPiece], out[kPiece];
      const C* x = load(element(p.x, p.dtype, at), p.dtype, n, 1, in);
      void* dst = element(p.y, p.dtype, at);
      C* y = target(dst, p.dtype, 1, out);
      for (int64_t i = 0; i < n; ++i) y[i] = (words[i] >> 8) >= p.threshold ? x[i] * scale : C{0};
      store(dst, p.dtype, n, 1, y);
    });
  });
  return Status::ok;
}

ANELLO_KERNEL(kRandomUniform, uniform, kFloatTypes);
ANELLO_KERNEL(kRandomNormal, normal, kFloatTypes);
ANELLO_KERNEL(kRandomIntegers, integers, kAllTypes);
ANELLO_KERNEL(kDropout, dropout, kFloatTypes);

}  // namespace
}  // namespace anello::kernel
