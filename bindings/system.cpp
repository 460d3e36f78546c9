// What the process knows about itself: threads, memory, kernel libraries, version.
// Main entry: bind_system().
#include "bindings.h"

#include <anello/core/parallel.h>
#include <anello/core/registry.h>
#include <anello/core/version.h>

namespace anello::python {

void bind_system(py::module_& m) {
  m.attr("__version__") = version();
  m.def("get_num_threads", &num_threads,
        R"(Threads that work on one call, the caller included: ANELLO_NUM_THREADS, else what the machine and its
limits give.

>>> import anello
>>> anello.get_num_threads() >= 1
True
)");
  m.def(
      "set_num_threads", &set_num_threads, py::arg("count"), NoGil(),
      R"(Sets the number of threads for all later calls. Results do not depend on it, to the last bit. Raises ValueError
below 1.

>>> import anello
>>> anello.set_num_threads(anello.get_num_threads())
)");
  m.def(
      "memory_stats",
      [](Device device) {
        const MemoryStats stats = memory_stats(device);
        py::dict result;
        result["current"] = stats.current;
        result["peak"] = stats.peak;
        result["reserved"] = stats.reserved;
        return result;
      },
      py::arg("device") = cpu,
      R"(Bytes of a device's memory: 'current' in tensors and workspaces now, 'peak' the largest that was, 'reserved'
taken from the system.

>>> import anello
>>> x = anello.zeros(1000)
>>> anello.memory_stats()['current'] >= 4000
True
)");
  m.def("reset_peak_memory", &reset_peak_memory, py::arg("device") = cpu,
        R"(Makes memory_stats()['peak'] start from what is in use now.

>>> import anello
>>> anello.reset_peak_memory()
)");
  m.def("empty_cache", &empty_cache, py::arg("device") = cpu, NoGil(), R"(Gives cached memory back to the system.

>>> import anello
>>> anello.empty_cache()
)");
  m.def("cpu_isa", &cpu_isa,
        R"(The instruction set of the CPU kernels in use: 'avx512bf16', 'avx512', 'avx2', 'x86_64_v2' or 'generic'.
ANELLO_CPU forces one.

>>> import anello
>>> isinstance(anello.cpu_isa(), str)
True
)");
  m.def(
      "plugin_report",
      [] {
        std::vector<std::pair<std::string, std::string>> lines;
        for (const PluginReport& report : plugin_report()) lines.emplace_back(report.library, report.state);
        return lines;
      },
      R"(The kernel libraries that were looked for, each with what became of it.

>>> import anello
>>> len(anello.plugin_report()) > 0
True
)");
  m.def(
      "registered_kernels",
      [] {
        py::dict result;
        for (const KernelInfo& kernel : registered_kernels()) {
          py::dict devices;
          devices["cpu"] = py::cast(kernel.cpu);
          devices["cuda"] = py::cast(kernel.cuda);
          result[kernel.name.c_str()] = devices;
        }
        return result;
      },
      R"(Every kernel that is loaded, with the dtypes it has on each device.

>>> import anello
>>> anello.float32 in anello.registered_kernels()['exp']['cpu']
True
)");
}

}  // namespace anello::python
