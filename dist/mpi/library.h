// Finds the libmpi of the installation whose mpirun started this process, and fills the table of its functions.
// Main entry: open_library().
#pragma once

#include <anello/dist/mpi/abi.h>

#include <string>

namespace anello::dist::mpi {

struct Library {
  Mpi mpi;
  std::string path, version;  ///< version: "Open MPI 4.1.4"
  std::string looked;         ///< one line a place that was tried
  std::string error;          ///< empty when it can be used
};

/// Loaded at the first call, once a process, and kept. Looks, in this order, at ANELLO_MPI_LIBRARY, what the program
/// has loaded already, OPAL_PREFIX, the mpirun that is an ancestor of this process, the mpirun on PATH, the system's
/// libraries.
const Library& open_library();

}  // namespace anello::dist::mpi
