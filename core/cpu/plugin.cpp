// The one symbol a CPU kernel library exports.
// Main entry: anello_plugin().
#include <anello/core/plugin.h>

extern "C" __attribute__((visibility("default"))) const anello::PluginTable* anello_plugin(uint32_t version) {
  if (version != anello::kPluginVersion) return nullptr;
  static const anello::PluginTable table = [] {
    const auto& kernels = anello::detail::plugin_kernels();
    return anello::PluginTable{anello::kPluginVersion, anello::DeviceType::cpu, ANELLO_CPU_ISA, kernels.data(),
                               static_cast<int64_t>(kernels.size())};
  }();
  return &table;
}
