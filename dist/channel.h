// The messages of one operation: its own tag, and a description that both sides of every pair compare first.
// Main entry: Channel::send(), receive(), test(); Descriptor, difference().
#pragma once

#include <anello/dist/communicator.h>
#include <anello/dist/transport.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace anello::dist {

enum class Kind : uint8_t {
  all_reduce,
  reduce_scatter,
  all_gather,
  broadcast,
  all_to_all,
  gather,
  scatter,
  send,
  recv,
  barrier,
  broadcast_bytes,
  all_gather_bytes,
  split,
  allocate_shared,
};
std::string_view name(Kind kind);

/// What a rank says about its side of an operation: the first message between two ranks of it.
struct Descriptor {
  static constexpr int kNameRoom = 112;
  Kind kind = Kind::barrier;
  DType dtype = DType::uint8;
  ReduceOp op = ReduceOp::sum;
  uint8_t dims = 0;
  int32_t root = -1;
  uint64_t count = 0;  ///< how many of this name came before it
  double prescale = 1, postscale = 1;
  int64_t sizes[kMaxDims] = {};
  char name[kNameRoom] = {};  ///< cut, with a hash at its end, when it is longer

  void set_shape(const Shape& shape);
  Shape shape() const { return Shape(sizes, sizes + dims); }
  void set_name(const std::string& name);
};
static_assert(std::is_trivially_copyable_v<Descriptor>);

/// " 'fc.weight'" or, without a name, " number 3".
std::string label(const Descriptor& descriptor);
/// "" when the two sides fit, else the whole error text, which names both.
std::string difference(const Descriptor& a, int rank_a, const Descriptor& b, int rank_b);

/// One operation's messages over a transport. The descriptor goes ahead of the first message to each rank and is
/// compared before the first message from it is taken, so that nobody reads bytes of another shape. Messages that are
/// still under way when the channel goes are given up: memory must outlive the channel. Used by one thread at a time.
class Channel {
 public:
  Channel(Transport& transport, uint32_t tag, const Descriptor& mine);
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  int rank() const { return transport_.rank(); }
  int size() const { return transport_.size(); }
  Transport& transport() const { return transport_; }
  uint32_t tag() const { return tag_; }
  const Descriptor& mine() const { return mine_; }

  /// A message under way; 0 is none.
  using Ticket = uint32_t;
  Ticket send(int to, const void* data, size_t bytes);
  Ticket receive(int from, void* data, size_t bytes);
  /// True when it has been sent or has arrived (the ticket is then 0), and for 0. Raises DistError on a mismatch.
  bool test(Ticket& ticket);

  /// Sends the descriptor unless it has been sent.
  void announce(int to);
  /// True when the descriptor of a rank has arrived and fits; raises DistError when it does not.
  bool met(int from);
  /// What a rank that was met said.
  const Descriptor& theirs(int from) const { return peers_[static_cast<size_t>(from)].theirs; }

  /// True when all descriptors have left: the channel may go.
  bool flush();

  /// Tells the engine that something happened since the last step.
  void note_progress() { moved_ = true; }
  bool take_progress() { return std::exchange(moved_, false); }
  /// Ranks that messages are awaited from or go to, for reports.
  std::vector<int> waits_for() const;

 private:
  struct Message {
    Transport::Request request = 0;
    int peer = -1;
    void* data = nullptr;  ///< of a receive that waits for the descriptor
    size_t bytes = 0;
    bool live = false, deferred = false;
  };
  struct Peer {
    Descriptor theirs;
    Transport::Request sending = 0, receiving = 0;
    bool announced = false, asked = false, met = false;
    std::vector<Ticket> deferred;
  };
  Ticket take_message();

  Transport& transport_;
  uint32_t tag_;
  Descriptor mine_;
  std::vector<Message> messages_;
  std::vector<Ticket> free_;
  std::vector<Peer> peers_;
  bool moved_ = false;
};

}  // namespace anello::dist
