// Collective operations between the ranks of a group: the same program on each, one call each.
// Main entry: world(), Communicator::all_reduce(); DataParallel (dist/data_parallel.h) for training.
#pragma once

#include <anello/core/tensor.h>
#include <anello/dist/transport.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace anello::dist {

/// Floats of 16 bits are added in float32, in the order of ranks, and rounded once. `average` of integers raises
/// DTypeError.
enum class ReduceOp { sum, average, min, max, product };
std::ostream& operator<<(std::ostream& out, ReduceOp op);

/// What every collective may be told besides its arguments.
struct CollectiveOptions {
  /// Ranks match operations by name, so that those with names may start in another order on each rank; "" matches the
  /// unnamed ones by their order. The name stands in every error.
  std::string name = {};
  double prescale = 1;   ///< each rank's values are multiplied by it before the reduction (floats only)
  double postscale = 1;  ///< the result is multiplied by it before it is rounded (floats only)
};

/// An operation under way. Letting it go does not end the operation. wait() raises what went wrong.
class Work {
 public:
  struct State;
  Work() = default;
  explicit Work(std::shared_ptr<State> state) : state_(std::move(state)) {}
  /// True when it is done or has failed; never blocks.
  bool test() const;
  /// Blocks until it is done (interruptible, see core/interrupt.h); raises DistError when it failed.
  void wait() const;
  /// Calls f when it is done or has failed, on whichever thread moved it (at once when it is done already); f starts
  /// other operations but waits for none.
  void then(std::function<void()> f) const;

 private:
  std::shared_ptr<State> state_;
};

/// A group of ranks. Every rank of the group makes the same calls; a call that differs in shape, dtype, reduce-op, root
/// or kind raises DistError on every rank, naming both sides. A rank that does not come is reported after
/// stall_timeout(): the tensor, who waits, who is absent, what each rank did last. After an error the communicator is
/// broken: every later call raises the same error at once.
///
/// Results are the same bits on all ranks and in every run. Any dtype; tensors may be strided (copied through
/// contiguous memory). Calls may come from several threads if they are named; one communication thread a process moves
/// what is asynchronous, a blocking call runs inline while it is idle. In-place results bump the tensor's version; none
/// of these is recorded by autograd (dist/functions.h has forms that are).
///
/// With one rank every collective is a no-op that still checks its arguments.
class Communicator : public std::enable_shared_from_this<Communicator> {
 public:
  /// Takes part in making a group over a transport (collective).
  static std::shared_ptr<Communicator> create(std::shared_ptr<Transport> transport);
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// This rank among those on its machine, and their number.
  virtual int local_rank() const = 0;
  virtual int local_size() const = 0;
  virtual int host() const = 0;
  virtual int hosts() const = 0;
  virtual std::string transport_name() const = 0;

  // --- In place ---
  virtual Work all_reduce_async(const Tensor& tensor, ReduceOp op, const CollectiveOptions& options) = 0;
  virtual Work broadcast_async(const Tensor& tensor, int root, const CollectiveOptions& options) = 0;
  void all_reduce(const Tensor& tensor, ReduceOp op = ReduceOp::sum, const CollectiveOptions& options = {});
  void broadcast(const Tensor& tensor, int root = 0, const CollectiveOptions& options = {});

  // --- New tensors. The async forms set `output` in Work::wait(), so it may go when nobody waits. ---
  /// Rank r gets the rows slice_of(input.size(0), r, size()) of the reduction.
  virtual Work reduce_scatter_async(Tensor& output, const Tensor& input, ReduceOp op, const CollectiveOptions&) = 0;
  /// Concatenates along dim 0, whose size may differ between ranks (output is made when it is known).
  virtual Work all_gather_async(Tensor& output, const Tensor& input, const CollectiveOptions& options) = 0;
  /// Row blocks of input go to the ranks in order; `counts[r]` rows to rank r (empty: even, must divide).
  virtual Work all_to_all_async(Tensor& output, const Tensor& input, const std::vector<int64_t>& counts,
                                const CollectiveOptions& options) = 0;
  Tensor reduce_scatter(const Tensor& input, ReduceOp op = ReduceOp::sum, const CollectiveOptions& options = {});
  Tensor all_gather(const Tensor& input, const CollectiveOptions& options = {});
  Tensor all_to_all(const Tensor& input, const std::vector<int64_t>& counts = {},
                    const CollectiveOptions& options = {});
  /// On root the tensors of all ranks in order (shapes may differ), elsewhere nothing.
  virtual std::vector<Tensor> gather(const Tensor& input, int root = 0, const CollectiveOptions& options = {}) = 0;
  /// Root's tensors[r] arrives at rank r; `tensors` is empty elsewhere.
  virtual Tensor scatter(const std::vector<Tensor>& tensors, int root = 0, const CollectiveOptions& options = {}) = 0;

  // --- Point to point. `tag` is the user's. ---
  virtual Work send_async(const Tensor& tensor, int to, int tag = 0) = 0;
  virtual Work recv_async(const Tensor& into, int from, int tag = 0) = 0;
  void send(const Tensor& tensor, int to, int tag = 0) { send_async(tensor, to, tag).wait(); }
  void recv(const Tensor& into, int from, int tag = 0) { recv_async(into, from, tag).wait(); }

  // --- Bytes of any length (Python objects, strings). ---
  virtual std::string broadcast_bytes(const std::string& bytes, int root = 0) = 0;
  virtual std::vector<std::string> all_gather_bytes(const std::string& bytes) = 0;

  virtual void barrier() = 0;
  /// Collective. Ranks of one color, ordered by (key, rank); null for a negative color.
  virtual std::shared_ptr<Communicator> split(int color, int key = 0) = 0;

  /// Collective over the whole group: 1-d memory that the ranks of a host can read in place, so that an all_reduce of
  /// it (or of a contiguous view of it) copies nothing. Falls back to ordinary memory where none can be shared.
  virtual Tensor allocate_shared(int64_t numel, DType dtype) = 0;

  /// Seconds without progress after which a waiting rank asks the others and raises; 0: never. Default 60, or
  /// ANELLO_STALL_TIMEOUT.
  virtual void set_stall_timeout(double seconds) = 0;
  virtual double stall_timeout() const = 0;
  /// Makes every rank's current and later calls raise DistError with this reason. Not collective; never blocks.
  virtual void abort(const std::string& reason) = 0;
};

/// The group of all ranks of this job. Made at the first call (collective): from MPI when mpirun or srun started this
/// process, else of size 1. Raises DistError when started by mpirun without a usable MPI.
std::shared_ptr<Communicator> world();
/// Whether this process was started as one of several ranks; starts nothing.
bool launched();
/// Ends the group of all ranks (collective): waits for what is under way; world() starts it anew.
void shutdown();

/// The part of [0, n) that belongs to rank r of size: even, the first n % size ranks get one more.
struct Slice {
  int64_t begin = 0, end = 0;
};
Slice slice_of(int64_t n, int rank, int size);

}  // namespace anello::dist
