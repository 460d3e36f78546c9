// The kernel table and the loading of kernel libraries: the best CPU library for this machine, once, at the first
// launch. Main entry: detail::launch().
#include <anello/core/error.h>
#include <anello/core/parallel.h>
#include <anello/core/registry.h>
#include <anello/core/suggest.h>

#include <dlfcn.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <map>
#include <mutex>
#include <utility>

namespace anello {
namespace {

struct Row {
  std::string name;
  uint64_t params_hash;
  std::atomic<ErasedKernel> functions[kDeviceTypeCount][kDTypeCount] = {};
};

constexpr int kMaxKernels = 1024;

struct Registry {
  std::mutex mutex;
  std::map<std::pair<std::string, uint64_t>, int> ids;
  std::atomic<Row*> rows[kMaxKernels] = {};
  std::once_flag cpu_loaded;
  std::string isa, folder;
  std::vector<PluginReport> report;
};
/// Never destroyed: kernels may be launched from destructors of static objects.
Registry& registry() {
  static auto* const instance = new Registry;
  return *instance;
}

int intern(Registry& r, const char* name, uint64_t hash) {
  const std::lock_guard lock(r.mutex);
  const auto [place, added] = r.ids.try_emplace({name, hash}, static_cast<int>(r.ids.size()));
  if (added) {
    check(place->second < kMaxKernels, "registry", "more than ", kMaxKernels, " kernels.");
    r.rows[place->second].store(new Row{name, hash}, std::memory_order_release);
  }
  return place->second;
}

/// CPU libraries, best first.
struct Isa {
  const char* name;
  bool supported;
};
std::vector<Isa> known_isas() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool v2 =
      __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("popcnt") && __builtin_cpu_supports("ssse3");
  const bool v3 = v2 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                  __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("f16c");
  const bool v4 = v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
                  __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                  __builtin_cpu_supports("avx512cd");
  const bool bf16 = v4 && __builtin_cpu_supports("avx512bf16");
  return {{"avx512bf16", bf16}, {"avx512", v4}, {"avx2", v3}, {"x86_64_v2", v2}};
#else
  return {{"generic", true}};
#endif
}

/// Loads one library and adds its kernels; returns what to report.
std::string load_library(Registry& r, const std::string& path) {
  if (access(path.c_str(), R_OK) != 0) return "not found in " + r.folder;
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return concat("refused: ", dlerror());
  const auto entry = reinterpret_cast<PluginEntry>(dlsym(handle, kPluginEntryName));
  if (entry == nullptr) return concat("refused: it has no ", kPluginEntryName);
  const PluginTable* table = entry(kPluginVersion);
  if (table == nullptr || table->version != kPluginVersion)
    return concat("refused: it was built for another version than ", kPluginVersion);
  for (int64_t i = 0; i < table->count; ++i) {
    const KernelEntry& k = table->kernels[i];
    Row& row = *r.rows[intern(r, k.name, k.params_hash)].load(std::memory_order_acquire);
    row.functions[static_cast<int>(table->device)][static_cast<int>(k.dtype)].store(k.function,
                                                                                    std::memory_order_release);
  }
  return "in use";
}

/// Raises ValueError when ANELLO_CPU forces a library that cannot be used.
void load_cpu() {
  Registry& r = registry();
  r.folder = library_folder();
  r.report.clear();
  const std::vector<Isa> isas = known_isas();
  const char* forced = std::getenv("ANELLO_CPU");
  if (forced != nullptr && *forced == '\0') forced = nullptr;
  std::string why_not = "no such instruction set";
  std::vector<std::string_view> usable;
  for (const Isa& isa : isas) {
    const std::string file = concat("libanello_cpu_", isa.name, ".so");
    const std::string path = r.folder + "/" + file;
    const bool present = access(path.c_str(), R_OK) == 0;
    if (present && isa.supported) usable.push_back(isa.name);
    std::string state = !present         ? "not found in " + r.folder
                        : !isa.supported ? "not supported by this CPU"
                                         : "not needed";
    const bool wanted = forced != nullptr ? std::string_view(forced) == isa.name : r.isa.empty();
    if (wanted && present && isa.supported) {
      state = load_library(r, path);
      if (state == "in use") r.isa = isa.name;
    }
    if (forced != nullptr && std::string_view(forced) == isa.name) why_not = state;
    r.report.push_back({file, state});
  }
  if (forced != nullptr)
    check<ValueError>(!r.isa.empty(), "cpu", "ANELLO_CPU=", forced, ": ", why_not, ".", suggest(forced, usable));
  if (r.isa.empty()) {
    std::string lines;
    for (const PluginReport& p : r.report) lines += "\n  " + p.library + ": " + p.state;
    fail<DeviceError>("cpu", "no kernel library could be loaded.", lines, "\nHint: reinstall anello.");
  }
}

void ensure_cpu() { std::call_once(registry().cpu_loaded, load_cpu); }

std::string dtype_list(const Row& row, int device) {
  std::string text;
  for (int t = 0; t < kDTypeCount; ++t)
    if (row.functions[device][t].load() != nullptr)
      text += (text.empty() ? "" : ",") + std::string(name(static_cast<DType>(t)));
  return text;
}

[[noreturn]] void fail_missing(const Row& row, Device device, DType dtype) {
  std::string there;
  for (int d = 0; d < kDeviceTypeCount; ++d)
    if (const std::string list = dtype_list(row, d); !list.empty())
      there += concat(there.empty() ? "" : ", ", name(static_cast<DeviceType>(d)), '{', list, '}');
  fail<DTypeError>(row.name, "no kernel for ", name(device.type), '/', dtype, "; there are ",
                   there.empty() ? "none" : there, ". Hint: cast to one of these first.");
}

[[noreturn]] void raise(Status status, const std::string& op, const char* message) {
  switch (status) {
    case Status::value_error:
      fail<ValueError>(op, message);
    case Status::shape_error:
      fail<ShapeError>(op, message);
    case Status::index_error:
      fail<IndexError>(op, message);
    case Status::dtype_error:
      fail<DTypeError>(op, message);
    case Status::out_of_memory:
      fail<OutOfMemoryError>(op, message);
    default:
      fail<Error>(op, message);
  }
}

}  // namespace

void require_available(std::string_view op, Device device) {
  if (device.type == DeviceType::cpu) return ensure_cpu();
  fail<DeviceError>(op, "device ", device, " is not available: looked for libanello_", name(device.type), ".so in ",
                    library_folder(), ". Hint: use device 'cpu', or install a build with the ", name(device.type),
                    " backend.");
}

namespace detail {

int kernel_id(const char* name, uint64_t params_hash) { return intern(registry(), name, params_hash); }

bool has_kernel(int id, DeviceType device, DType dtype) {
  if (device == DeviceType::cpu) ensure_cpu();
  const Row& row = *registry().rows[id].load(std::memory_order_acquire);
  return row.functions[static_cast<int>(device)][static_cast<int>(dtype)].load(std::memory_order_acquire) != nullptr;
}

void launch(int id, Device device, DType dtype, const void* params) {
  const Row& row = *registry().rows[id].load(std::memory_order_acquire);
  const auto& slot = row.functions[static_cast<int>(device.type)][static_cast<int>(dtype)];
  ErasedKernel function = slot.load(std::memory_order_acquire);
  if (function == nullptr) [[unlikely]] {
    require_available(row.name, device);
    function = slot.load(std::memory_order_acquire);
    if (function == nullptr) fail_missing(row, device, dtype);
  }
  const Context& ctx = cpu_context();
  const Status status = function(ctx, params);
  if (status != Status::ok) [[unlikely]]
    raise(status, row.name, ctx.message);
}

}  // namespace detail

std::vector<KernelInfo> registered_kernels() {
  ensure_cpu();
  Registry& r = registry();
  const std::lock_guard lock(r.mutex);
  std::vector<KernelInfo> list;
  for (const auto& [key, id] : r.ids) {
    const Row& row = *r.rows[id].load();
    KernelInfo info{row.name, {}, {}};
    for (int t = 0; t < kDTypeCount; ++t) {
      if (row.functions[0][t].load() != nullptr) info.cpu.push_back(static_cast<DType>(t));
      if (row.functions[1][t].load() != nullptr) info.cuda.push_back(static_cast<DType>(t));
    }
    if (!info.cpu.empty() || !info.cuda.empty()) list.push_back(std::move(info));
  }
  return list;
}

std::string library_folder() {
  Dl_info info;
  if (dladdr(reinterpret_cast<void*>(&library_folder), &info) == 0 || info.dli_fname == nullptr) return ".";
  const std::string path = info.dli_fname;
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash);
}

std::string cpu_isa() {
  ensure_cpu();
  return registry().isa;
}

std::vector<PluginReport> plugin_report() {
  try {
    ensure_cpu();
  } catch (const Error&) {
    // The report itself tells what is wrong.
  }
  return registry().report;
}

}  // namespace anello
