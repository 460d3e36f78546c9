// The border between libanello and libanello_mpi.so: one C entry point, a versioned table of functions.
// Main entry: MpiPlugin; used by dist/mpi_transport.cpp alone.
#pragma once

#include <cstddef>
#include <cstdint>

namespace anello::dist::mpi {

/// Raised whenever the table or the meaning of one of its functions changes.
inline constexpr uint32_t kMpiPluginVersion = 1;

/// A group of ranks, and the messages under way in it.
class Group;

/// What was found, for errors and `anello doctor`.
struct LibraryInfo {
  char path[1024];
  char version[256];  ///< "Open MPI 4.1.4"
  char looked[4096];  ///< one line a place: path, and why not
};

/// Every function that can fail returns null, or a text that stays valid until the thread's next call.
struct MpiPlugin {
  uint32_t version;

  /// Looks for Open MPI and loads it; starts nothing.
  const char* (*find)(LibraryInfo* info);
  /// Starts MPI (unless the program has) and makes the group of all ranks; collective.
  const char* (*open)(Group** world);
  int (*rank)(const Group*);
  int (*size)(const Group*);
  /// Collective; blocks, napping, until all ranks are there. A negative color gets null.
  const char* (*split)(Group*, int color, int key, Group** part);
  /// Not collective: what is still under way is given up.
  void (*close)(Group*);

  /// Tags are 31 bits wide. Requests are numbers above 0.
  const char* (*send)(Group*, int to, uint32_t tag, const void* data, size_t bytes, uint64_t* request);
  const char* (*receive)(Group*, int from, uint32_t tag, void* data, size_t bytes, uint64_t* request);
  const char* (*test)(Group*, uint64_t request, int* done);
  void (*cancel)(Group*, uint64_t request);

  /// Short messages on a communicator of their own; sent from a copy.
  const char* (*send_control)(Group*, int to, const char* data, size_t bytes);
  const char* (*receive_control)(Group*, char* data, size_t room, size_t* bytes, int* from);  ///< from -1: none

  /// Ends MPI if `open` started it: waits for all ranks to come here; gives up, without ending it, when a rank
  /// complains meanwhile (a control message on world). Once a process.
  void (*finish)();
  /// Ends the job of all ranks.
  void (*abort)(int code);
};

using MpiPluginEntry = const MpiPlugin* (*)(uint32_t version);
inline constexpr const char* kMpiPluginEntryName = "anello_plugin";

}  // namespace anello::dist::mpi
