// What a communicator needs from the wires below it: messages between two ranks, and which ranks share a machine.
// Main entry: Transport; local_transports() for ranks that are threads of one process, open_mpi() for processes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace anello::dist {

/// Messages of bytes between the ranks of a group. Between two ranks, messages of one tag arrive in the order sent;
/// tags do not wait for each other. Neither call blocks: send() and receive() start, test() says whether it is done.
/// Called by one thread at a time (the communicator sees to that). A peer that is gone raises DistError in test().
class Transport {
 public:
  virtual ~Transport() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// Equal for ranks that can map the same memory. Hosts are numbered from 0 in the order of their first rank.
  virtual int host_of(int rank) const = 0;
  /// "local" or "mpi (Open MPI 4.1.4)", for reports and errors.
  virtual std::string_view name() const = 0;

  /// A message under way; 0 is none.
  using Request = uint64_t;
  /// `data` stays untouched until test() is true. Sizes are 64-bit: what the wire cannot carry at once goes in pieces.
  virtual Request send(int to, uint32_t tag, const void* data, size_t bytes) = 0;
  /// Raises DistError in test() when the message that arrives has another size.
  virtual Request receive(int from, uint32_t tag, void* data, size_t bytes) = 0;
  /// True when the message has been sent or has arrived; the request is then 0.
  virtual bool test(Request& request) = 0;
  /// Gives a request up (after an error): the memory may be reused when this returns.
  virtual void cancel(Request& request) = 0;

  /// A short message outside all tags (at most kControlBytes): a stall report, an abort. Never waits for the receiver.
  static constexpr size_t kControlBytes = 4096;
  virtual void send_control(int to, const std::string& message) = 0;
  struct Control {
    int from = -1;
    std::string message;
  };
  /// Takes the next control message that has arrived; false when there is none.
  virtual bool receive_control(Control& control) = 0;

  /// The ranks that gave the same color, ordered by (key, rank), as a transport of its own. Collective; blocks. A
  /// negative color takes part and gets none.
  virtual std::shared_ptr<Transport> split(int color, int key) = 0;
  /// Ends the job of all ranks, the message to standard error: the last resort when errors cannot be raised. MPI's
  /// launcher then kills what is left.
  virtual void abort(const std::string& reason) = 0;
};

/// Ranks that are threads of this process: element i belongs to rank i. `hosts` (default: all on one) gives each rank's
/// host, so that tests can have several on one machine.
std::vector<std::shared_ptr<Transport>> local_transports(int size, const std::vector<int>& hosts = {});

}  // namespace anello::dist
