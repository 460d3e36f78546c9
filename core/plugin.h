// The border between libanello and a kernel library: one C entry point, a versioned table of kernels.
// Main entry: ANELLO_KERNEL(tag, function, dtypes...) in a plug-in's source; anello_plugin(version) in its library.
#pragma once

#include <anello/core/context.h>
#include <anello/core/device.h>
#include <anello/core/dtype.h>

#include <cstdint>
#include <exception>
#include <initializer_list>
#include <new>
#include <string_view>
#include <type_traits>
#include <vector>

namespace anello {

/// Raised whenever Context, a parameter struct's meaning or PluginTable changes without its size changing.
inline constexpr uint32_t kPluginVersion = 1;

/// A kernel's name and C++ signature. One constexpr object a kernel, in core/kernels/.
template <class Params>
struct KernelTag {
  const char* name;
};

namespace detail {
/// FNV-1a over the parameter struct's full name, size and alignment: both sides must have compiled the same struct.
template <class Params>
constexpr uint64_t params_hash() {
  uint64_t hash = 0xcbf29ce484222325ull;
  for (char c : std::string_view(__PRETTY_FUNCTION__)) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3ull;
  return (hash ^ (sizeof(Params) * 64 + alignof(Params))) * 0x100000001b3ull;
}
}  // namespace detail

using ErasedKernel = Status (*)(const Context&, const void* params);

struct KernelEntry {
  const char* name;
  uint64_t params_hash;
  DType dtype;
  ErasedKernel function;
};

struct PluginTable {
  uint32_t version;
  DeviceType device;
  const char* isa;  ///< "avx512"; for a GPU the architectures it was built for
  const KernelEntry* kernels;
  int64_t count;
};

/// The entry point's type: the table when the plug-in speaks this version, else null.
using PluginEntry = const PluginTable* (*)(uint32_t version);
inline constexpr const char* kPluginEntryName = "anello_plugin";

namespace detail {
/// The kernels of the library this is compiled into (hidden: one list a plug-in).
__attribute__((visibility("hidden"))) inline std::vector<KernelEntry>& plugin_kernels() {
  static std::vector<KernelEntry> list;
  return list;
}

/// Runs a kernel of type Status(const Context&, const Params&) and turns whatever it raises into a status.
template <auto Function, class Params>
Status erased(const Context& ctx, const void* params) noexcept {
  try {
    return Function(ctx, *static_cast<const Params*>(params));
  } catch (const std::bad_alloc&) {
    return ctx.error(Status::out_of_memory, "no memory left for the kernel's workspace");
  } catch (const std::exception& e) {
    return ctx.error(Status::failed, "%s", e.what());
  } catch (...) {
    return ctx.error(Status::failed, "unknown failure");
  }
}

template <auto Function, class Params>
struct KernelRegistrar {
  KernelRegistrar(const KernelTag<Params>& tag, std::initializer_list<DType> dtypes) {
    for (DType d : dtypes) plugin_kernels().push_back({tag.name, params_hash<Params>(), d, &erased<Function, Params>});
  }
};
}  // namespace detail

inline constexpr std::initializer_list<DType> kFloatTypes = {float16, bfloat16, float32, float64};
inline constexpr std::initializer_list<DType> kIntTypes = {uint8, int8, int16, int32, int64};
inline constexpr std::initializer_list<DType> kNumberTypes = {uint8,   int8,     int16,   int32,  int64,
                                                              float16, bfloat16, float32, float64};
inline constexpr std::initializer_list<DType> kAllTypes = {bool_, uint8,   int8,     int16,   int32,
                                                           int64, float16, bfloat16, float32, float64};

#define ANELLO_JOIN_(a, b) a##b
#define ANELLO_JOIN(a, b) ANELLO_JOIN_(a, b)
/// Registers function (Status(const Context&, const Params&)) for the tag and a list of dtypes:
///   ANELLO_KERNEL(kSum, sum_kernel<float>, {float16, bfloat16, float32});
#define ANELLO_KERNEL(tag, function, ...)                                                                          \
  static const ::anello::detail::KernelRegistrar<function, ::anello::detail::ParamsOf<decltype(tag)>> ANELLO_JOIN( \
      kernel_registrar_, __COUNTER__) {                                                                            \
    tag, __VA_ARGS__                                                                                               \
  }

namespace detail {
template <class Tag>
struct ParamsOfTag;
template <class Params>
struct ParamsOfTag<const KernelTag<Params>> {
  using type = Params;
};
template <class Tag>
using ParamsOf = typename ParamsOfTag<std::remove_reference_t<Tag>>::type;
}  // namespace detail

}  // namespace anello
