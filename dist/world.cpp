// The group of all ranks of this job: one process alone, or what mpirun or srun started.
// Main entry: world(), shutdown().
#include <anello/dist/communicator.h>
#include <anello/dist/mpi_transport.h>

#include <cstdlib>
#include <mutex>

namespace anello::dist {
namespace {
std::mutex mutex;
std::shared_ptr<Communicator> all;
}  // namespace

bool launched() { return launch_environment().size > 1; }

std::shared_ptr<Communicator> world() {
  const std::lock_guard lock(mutex);
  if (all == nullptr) all = Communicator::create(launched() ? open_mpi() : local_transports(1)[0]);
  // Before the end of MPI, which open_mpi() registered first: nothing may listen to peers any more.
  static const int at_exit = std::atexit([] {
    const std::lock_guard last(mutex);
    all.reset();
  });
  (void)at_exit;
  return all;
}

void shutdown() {
  std::shared_ptr<Communicator> group;
  {
    const std::lock_guard lock(mutex);
    group.swap(all);
  }
  if (group != nullptr && group->size() > 1) group->barrier();
}

}  // namespace anello::dist
