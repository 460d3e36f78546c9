// Runs of elements from storage to compute types and back, vectorised.
// Main entry: load_block(), store_block().
#include <anello/core/cpu/convert.h>

#include <cstring>

#ifdef __F16C__
#include <immintrin.h>
#endif

namespace anello::kernel {
namespace {

template <class To, class From>
void convert_run(To* __restrict dst, const From* __restrict src, int64_t n) {
  for (int64_t i = 0; i < n; ++i) dst[i] = convert<To>(src[i]);
}

/// bfloat16 rounding as straight-line integer arithmetic: the branches of BFloat16(float) would keep the loop scalar.
void convert_run(BFloat16* __restrict dst, const float* __restrict src, int64_t n) {
  uint16_t* out = reinterpret_cast<uint16_t*>(dst);
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t u = std::bit_cast<uint32_t>(src[i]);
    const uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
    const uint32_t quiet = (u >> 16) | 0x40u;
    out[i] = static_cast<uint16_t>((u & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
  }
}

#ifdef __F16C__
void convert_run(float* __restrict dst, const Float16* __restrict src, int64_t n) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8)
    _mm256_storeu_ps(dst + i, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(src + i))));
  for (; i < n; ++i) dst[i] = static_cast<float>(src[i]);
}
void convert_run(Float16* __restrict dst, const float* __restrict src, int64_t n) {
  constexpr int nearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  int64_t i = 0;
  for (; i + 8 <= n; i += 8)
    _mm_storeu_si128(reinterpret_cast<__m128i*>(dst + i), _mm256_cvtps_ph(_mm256_loadu_ps(src + i), nearest));
  for (; i < n; ++i) dst[i] = Float16(src[i]);
}
#endif

template <class T, class C>
void load_row(const T* src, int64_t n, int64_t stride, C* buffer) {
  if (stride == 1) {
    if constexpr (std::is_same_v<T, C>)
      std::memcpy(buffer, src, static_cast<size_t>(n) * sizeof(C));
    else
      convert_run(buffer, src, n);
  } else if (stride == 0) {
    const C value = convert<C>(*src);
    for (int64_t i = 0; i < n; ++i) buffer[i] = value;
  } else {
    for (int64_t i = 0; i < n; ++i) buffer[i] = convert<C>(src[i * stride]);
  }
}
/// A byte of any value but 0 is true; reading it as C++ bool would be undefined.
template <class C>
void load_bool_row(const uint8_t* src, int64_t n, int64_t stride, C* buffer) {
  for (int64_t i = 0; i < n; ++i) buffer[i] = static_cast<C>(src[i * stride] != 0);
}

template <class T, class C>
void store_row(T* dst, int64_t n, int64_t stride, const C* values) {
  if (stride == 1) {
    if constexpr (std::is_same_v<T, C>)
      std::memmove(dst, values, static_cast<size_t>(n) * sizeof(C));
    else
      convert_run(dst, values, n);
  } else {
    for (int64_t i = 0; i < n; ++i) dst[i * stride] = convert<T>(values[i]);
  }
}

/// Calls f with a null pointer of the C++ type that stores dtype.
template <class F>
void with_storage_type(DType dtype, const F& f) {
  switch (dtype) {
    case DType::bool_:
      return f(static_cast<bool*>(nullptr));
    case DType::uint8:
      return f(static_cast<uint8_t*>(nullptr));
    case DType::int8:
      return f(static_cast<int8_t*>(nullptr));
    case DType::int16:
      return f(static_cast<int16_t*>(nullptr));
    case DType::int32:
      return f(static_cast<int32_t*>(nullptr));
    case DType::int64:
      return f(static_cast<int64_t*>(nullptr));
    case DType::float16:
      return f(static_cast<Float16*>(nullptr));
    case DType::bfloat16:
      return f(static_cast<BFloat16*>(nullptr));
    case DType::float32:
      return f(static_cast<float*>(nullptr));
    case DType::float64:
      return f(static_cast<double*>(nullptr));
  }
}

}  // namespace

template <class C>
void load_block(const void* src, DType dtype, int64_t rows, int64_t row_stride, int64_t n, int64_t stride, C* buffer) {
  with_storage_type(dtype, [&]<class T>(T*) {
    using Stored = std::conditional_t<std::is_same_v<T, bool>, uint8_t, T>;
    const Stored* row = static_cast<const Stored*>(src);
    for (int64_t r = 0; r < rows; ++r, row += row_stride, buffer += n) {
      if constexpr (std::is_same_v<T, bool>)
        load_bool_row(row, n, stride, buffer);
      else
        load_row(row, n, stride, buffer);
    }
  });
}

template <class C>
void store_block(void* dst, DType dtype, int64_t rows, int64_t row_stride, int64_t n, int64_t stride, const C* values) {
  with_storage_type(dtype, [&]<class T>(T*) {
    T* row = static_cast<T*>(dst);
    for (int64_t r = 0; r < rows; ++r, row += row_stride, values += n) store_row(row, n, stride, values);
  });
}

#define ANELLO_INSTANTIATE(C)                                                              \
  template void load_block<C>(const void*, DType, int64_t, int64_t, int64_t, int64_t, C*); \
  template void store_block<C>(void*, DType, int64_t, int64_t, int64_t, int64_t, const C*);
ANELLO_INSTANTIATE(float)
ANELLO_INSTANTIATE(double)
ANELLO_INSTANTIATE(int64_t)
#undef ANELLO_INSTANTIATE

}  // namespace anello::kernel
