// The group of all ranks of this job: one process alone, or what mpirun or srun started.
// Main entry: world(), shutdown().
#include <anello/dist/communicator.h>

#include <cstdlib>
#include <mutex>

namespace anello::dist {
namespace {
std::mutex mutex;
std::shared_ptr<Communicator> all;

int started_ranks() {
  for (const char* variable : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"})
    if (const char* text = std::getenv(variable)) return std::atoi(text);
  return 1;
}
}  // namespace

bool launched() { return started_ranks() > 1; }

std::shared_ptr<Communicator> world() {
  const std::lock_guard lock(mutex);
  if (all != nullptr) return all;
  check<DistError>(!launched(), "world", "this is one of ", started_ranks(), " ranks, and there is no MPI transport.");
  all = Communicator::create(local_transports(1)[0]);
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
