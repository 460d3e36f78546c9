// The table of kernels: which function runs a tag on a device for a dtype. Plug-ins fill it when they are loaded.
// Main entry: launch<kTag>(device, dtype, params).
#pragma once

#include <anello/core/plugin.h>

#include <string>
#include <vector>

namespace anello {

namespace detail {
/// A small integer for a (name, hash), the same for the life of the process.
int kernel_id(const char* name, uint64_t params_hash);
/// Runs kernel `id`; a miss raises "[conv2d] no kernel for cuda/int32; there are cpu{...}, cuda{...}".
void launch(int id, Device device, DType dtype, const void* params);
bool has_kernel(int id, DeviceType device, DType dtype);
}  // namespace detail

/// Runs the kernel of Tag for (device, dtype). Raises DTypeError when there is none, DeviceError when the device's
/// library is not there, and the matching error when the kernel reports one.
template <const auto& Tag>
inline void launch(Device device, DType dtype, const detail::ParamsOf<decltype(Tag)>& params) {
  static const int id = detail::kernel_id(Tag.name, detail::params_hash<detail::ParamsOf<decltype(Tag)>>());
  detail::launch(id, device, dtype, &params);
}

struct KernelInfo {
  std::string name;
  std::vector<DType> cpu, cuda;
};
/// Every kernel of the libraries loaded so far, by name.
std::vector<KernelInfo> registered_kernels();

/// The instruction set of the CPU library in use ("avx512bf16", "avx512", "avx2", "x86_64_v2", "generic").
/// `ANELLO_CPU` forces one; an unknown or unsupported one raises ValueError that lists those present.
std::string cpu_isa();
/// The folder that libanello.so lies in, and its plug-ins beside it.
std::string library_folder();
/// What was found at start: one line a library, for `anello doctor`.
struct PluginReport {
  std::string library;  ///< file name
  std::string state;    ///< "in use", "not supported by this CPU", "not found in ...", "refused: ..."
};
std::vector<PluginReport> plugin_report();

}  // namespace anello
