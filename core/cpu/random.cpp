// Counter-based random numbers in vector code, and dropout.
// Main entry: kernels of kRandomUniform, kRandomNormal, kRandomIntegers, kDropout.
#include <anello/core/cpu/convert.h>
#include <anello/core/cpu/vec_math.h>
#include <anello/core/kernels/random.h>

#include <algorithm>
#include <numbers>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace anello::kernel {
namespace {

constexpr int kCounters = 16;  // counters computed side by side
constexpr int kWords = 4 * kCounters;
constexpr int64_t kPiece = 1024;         // words handed out at a time
constexpr int64_t kGrain = 16 * kPiece;  // words a thread takes

using Words64 __attribute__((vector_size(kRegisterBytes))) = uint64_t;
constexpr int kWidth64 = kRegisterBytes / 8;

/// Products of the lower halves of 64-bit lanes with a 32-bit constant.
inline Words64 multiply(Words64 a, uint32_t constant) {
#if defined(__AVX512F__)
  // Without a mask GCC 12's header warns of a variable of its own.
  return std::bit_cast<Words64>(_mm512_maskz_mul_epu32(0xff, std::bit_cast<__m512i>(a), _mm512_set1_epi64(constant)));
#elif defined(__AVX2__)
  return std::bit_cast<Words64>(_mm256_mul_epu32(std::bit_cast<__m256i>(a), _mm256_set1_epi64x(constant)));
#elif defined(__SSE2__)
  return std::bit_cast<Words64>(_mm_mul_epu32(std::bit_cast<__m128i>(a), _mm_set1_epi64x(constant)));
#else
  return (a & 0xffffffffu) * uint64_t{constant};
#endif
}

/// Some counters side by side, a 64-bit lane each, of which only the lower half counts.
struct Counters {
  Words64 c0, c1, c2, c3;

  void round(uint32_t k0, uint32_t k1) {
    const Words64 p0 = multiply(c0, 0xD2511F53u), p1 = multiply(c2, 0xCD9E8D57u);
    c0 = (p1 >> 32) ^ c1 ^ uint64_t { k0 };
    c2 = (p0 >> 32) ^ c3 ^ uint64_t { k1 };
    c1 = p1, c3 = p0;
  }
  /// The four words of each counter, one counter after another.
  void store(uint32_t* words) const {
    const Words64 first = (c0 & 0xffffffffu) | (c1 << 32), second = (c2 & 0xffffffffu) | (c3 << 32);
    Words64 low, high;  // lanes 0, W, 1, W + 1, ... of both
    for (int i = 0; i < kWidth64; ++i)
      low[i] = static_cast<uint64_t>(i / 2 + i % 2 * kWidth64), high[i] = low[i] + kWidth64 / 2;
    low = __builtin_shuffle(first, second, low), high = __builtin_shuffle(first, second, high);
    std::memcpy(words, &low, sizeof low);
    std::memcpy(words + kRegisterBytes / 4, &high, sizeof high);
  }
};

/// Ten rounds for counters first ... first + kCounters - 1; words[w] is word 4 first + w of the stream.
void philox_words(uint64_t seed, uint64_t stream, uint64_t first, uint32_t* words) {
  constexpr int kGroups = kCounters / kWidth64;
  Counters groups[kGroups];
  for (int g = 0; g < kGroups; ++g) {
    Words64 index;
    for (int i = 0; i < kWidth64; ++i) index[i] = first + static_cast<uint64_t>(g * kWidth64 + i);
    groups[g] = {index, index >> 32, Words64{} + stream, Words64{} + (stream >> 32)};
  }
  uint32_t k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u)
    for (Counters& group : groups) group.round(k0, k1);
  for (int g = 0; g < kGroups; ++g) groups[g].store(words + g * 4 * kWidth64);
}

/// Calls f(words, at, n) for pieces of the stream's words [0, count): words holds those from `at` on, rounded up to
/// whole counters.
template <class F>
void for_words(const Context& ctx, uint64_t seed, uint64_t stream, int64_t count, const F& f) {
  ctx.parallel_for(count, kGrain, [&](int64_t begin, int64_t end) {
    alignas(64) uint32_t words[kPiece];
    for (int64_t at = begin; at < end; at += kPiece) {
      const int64_t n = std::min(kPiece, end - at);
      for (int64_t w = 0; w < n; w += kWords)
        philox_words(seed, stream, static_cast<uint64_t>((at + w) / 4), words + w);
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
      for (int64_t i = 0; i < n / 2; ++i)
        values[i] = p.a + (p.b - p.a) * uniform_double(words[2 * i], words[2 * i + 1]);
      put(p, at / 2, n / 2, values);
    });
    return Status::ok;
  }
  const float low = static_cast<float>(p.a), span = static_cast<float>(p.b - p.a);
  const int bits = digits(p.dtype), shift = 32 - bits;
  const float unit = 1.0f / static_cast<float>(1 << bits);
  for_words(ctx, p.seed, p.stream, p.count, [&](const uint32_t* words, int64_t at, int64_t n) {
    float values[kPiece];
    for (int64_t i = 0; i < n; ++i)
      values[i] = low + span * (static_cast<float>(static_cast<int32_t>(words[i] >> shift)) * unit);
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

/// A selection, not a product: NaN and infinity are dropped too. Free of branches, which the processor could only
/// guess.
template <class C>
void keep_some(C* __restrict y, const C* __restrict x, const uint32_t* __restrict words, int64_t n, uint32_t threshold,
               C scale) {
  for (int64_t i = 0; i < n; ++i) {
    const C kept = x[i] * scale;
    y[i] = (words[i] >> 8) >= threshold ? kept : C{0};
  }
}

Status dropout(const Context& ctx, const DropoutParams& p) {
  with_float_type(p.dtype, [&]<class C>(C) {
    const C scale = static_cast<C>(p.scale);
    for_words(ctx, p.seed, p.stream, p.count, [&](const uint32_t* words, int64_t at, int64_t n) {
      alignas(64) C in[kPiece], out[kPiece];
      const C* x = load(element(p.x, p.dtype, at), p.dtype, n, 1, in);
      void* dst = element(p.y, p.dtype, at);
      C* y = target(dst, p.dtype, 1, out);
      keep_some(y, x, words, n, p.threshold, scale);
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
