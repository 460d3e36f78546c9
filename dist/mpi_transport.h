// Ranks that are processes, started by Open MPI's mpirun or by Slurm's srun. MPI is looked for when it is asked for.
// Main entry: open_mpi(), launch_environment(), mpi_report().
#pragma once

#include <anello/dist/transport.h>

#include <memory>
#include <string>
#include <vector>

namespace anello::dist {

/// What the environment says about how this process was started; starts nothing.
struct LaunchEnvironment {
  std::string launcher;  ///< "mpirun", "srun", "another MPI's mpirun"; "" when it was started alone
  int rank = 0, size = 1;
  int local_rank = 0, local_size = 1;
};
LaunchEnvironment launch_environment();

/// The group of all ranks of this job, over MPI; collective. Raises DistError: no Open MPI (with the places looked at),
/// another MPI, and a world of another size than the launcher said. MPI stays up until the process ends, so that this
/// may be called again after the transport is gone.
std::shared_ptr<Transport> open_mpi();

/// What `anello doctor` shows.
struct MpiReport {
  bool found = false;
  std::string version, path;        ///< "Open MPI 4.1.4" and its file
  std::string problem;              ///< one line, when it is not found or refused
  std::vector<std::string> looked;  ///< one line a place
};
MpiReport mpi_report();

}  // namespace anello::dist
