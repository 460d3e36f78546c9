// The programs of the collectives besides all_reduce.
// Main entry: broadcast(), gather_blocks(), gather_bytes(), exchange_bytes().
#include <anello/dist/collectives.h>

#include <algorithm>
#include <bit>
#include <cstring>

namespace anello::dist {
namespace {

constexpr int64_t kTreeBytes = 64 << 10;
constexpr int64_t kWindow = 4;

bool all_done(Channel& channel, std::vector<Channel::Ticket>& tickets) {
  bool done = true;
  for (Channel::Ticket& t : tickets) done &= channel.test(t);
  return done;
}

Task tree(Channel& channel, char* data, int64_t bytes, int root) {
  const int n = channel.size(), me = (channel.rank() - root + n) % n;
  const auto rank_of = [&](int place) { return (place + root) % n; };
  if (me != 0) {
    const int parent = me & (me - 1);
    Channel::Ticket arriving = channel.receive(rank_of(parent), data, static_cast<size_t>(bytes));
    while (!channel.test(arriving)) co_await pause();
  }
  std::vector<Channel::Ticket> sending;
  const int lowest = me == 0 ? static_cast<int>(std::bit_ceil(static_cast<unsigned>(n))) : me & -me;
  for (int bit = lowest / 2; bit > 0; bit /= 2)
    if (me + bit < n) sending.push_back(channel.send(rank_of(me + bit), data, static_cast<size_t>(bytes)));
  while (!all_done(channel, sending)) co_await pause();
}

// Each rank passes a segment on while the next one arrives.
Task chain(Channel& channel, char* data, int64_t bytes, int root) {
  const int n = channel.size(), me = (channel.rank() - root + n) % n;
  const int before = (channel.rank() + n - 1) % n, after = (channel.rank() + 1) % n;
  const int64_t count = (bytes + kSegmentBytes - 1) / kSegmentBytes;
  const bool receives = me > 0, sends = me + 1 < n;
  Channel::Ticket arriving[kWindow] = {}, leaving[kWindow] = {};
  int64_t asked = 0, arrived = receives ? 0 : count, sent = 0, gone = sends ? 0 : count;
  const auto size_of = [&](int64_t k) {
    return static_cast<size_t>(std::min(kSegmentBytes, bytes - k * kSegmentBytes));
  };
  while (arrived < count || gone < count) {
    bool idle = true;
    for (; receives && asked < count && asked - arrived < kWindow; ++asked)
      arriving[asked % kWindow] = channel.receive(before, data + asked * kSegmentBytes, size_of(asked));
    for (; receives && arrived < asked && channel.test(arriving[arrived % kWindow]); ++arrived) idle = false;
    for (; sends && sent < arrived && sent - gone < kWindow; ++sent)
      leaving[sent % kWindow] = channel.send(after, data + sent * kSegmentBytes, size_of(sent));
    for (; sends && gone < sent && channel.test(leaving[gone % kWindow]); ++gone) idle = false;
    if (idle) co_await pause();
  }
}

}  // namespace

Task meet_neighbours(Channel& channel) {
  const int n = channel.size();
  if (n == 1) co_return;
  channel.announce((channel.rank() + 1) % n);
  while (!channel.met((channel.rank() + n - 1) % n)) co_await pause();
}

// Dissemination: after round k a rank has heard, through others, of the 2^k before it.
Task barrier(Channel& channel) {
  const int n = channel.size();
  char nothing = 0, heard = 0;
  for (int step = 1; step < n; step *= 2) {
    Channel::Ticket sending = channel.send((channel.rank() + step) % n, &nothing, 1);
    Channel::Ticket arriving = channel.receive((channel.rank() + n - step) % n, &heard, 1);
    while (!channel.test(arriving) || !channel.test(sending)) co_await pause();
  }
}

Task broadcast(Channel& channel, void* data, int64_t bytes, int root) {
  if (channel.size() == 1) co_return;
  channel.announce((channel.rank() + 1) % channel.size());
  if (bytes <= kTreeBytes || channel.size() == 2)
    co_await tree(channel, static_cast<char*>(data), bytes, root);
  else
    co_await chain(channel, static_cast<char*>(data), bytes, root);
  co_await meet_neighbours(channel);
}

Task gather_blocks(Channel& channel, void* blocks, int64_t bytes) {
  const int n = channel.size(), me = channel.rank();
  if (n == 1) co_return;
  // In a list that starts with the own block: block i of the list is rank me + i's.
  std::vector<char> list(static_cast<size_t>(n * bytes));
  std::memcpy(list.data(), static_cast<char*>(blocks) + me * bytes, static_cast<size_t>(bytes));
  for (int have = 1; have < n; have *= 2) {
    const auto amount = static_cast<size_t>(std::min(have, n - have) * bytes);
    Channel::Ticket sending = channel.send((me + n - have) % n, list.data(), amount);
    Channel::Ticket arriving = channel.receive((me + have) % n, list.data() + have * bytes, amount);
    while (!channel.test(arriving) || !channel.test(sending)) co_await pause();
  }
  for (int i = 0; i < n; ++i)
    std::memcpy(static_cast<char*>(blocks) + (me + i) % n * bytes, list.data() + i * bytes, static_cast<size_t>(bytes));
}

Task gather_bytes(Channel& channel, const void* mine, int64_t bytes,
                  std::function<char*(const std::vector<int64_t>&)> make) {
  std::vector<int64_t> sizes(static_cast<size_t>(channel.size()));
  sizes[static_cast<size_t>(channel.rank())] = bytes;
  co_await gather_blocks(channel, sizes.data(), sizeof(int64_t));
  std::vector<Slice> slices;
  int64_t end = 0;
  for (int64_t size : sizes) {
    slices.push_back({end, end + size});
    end += size;
  }
  char* const all = make(sizes);
  if (all == nullptr) co_return;
  if (bytes > 0) std::memcpy(all + slices[static_cast<size_t>(channel.rank())].begin, mine, static_cast<size_t>(bytes));
  co_await all_gather(Ring::of_all(channel), all, slices, 1);
}

Task exchange_bytes(Channel& channel, const char* mine, std::vector<int64_t> sizes,
                    std::function<char*(const std::vector<int64_t>&)> make) {
  const int n = channel.size(), me = channel.rank();
  std::vector<int64_t> incoming(static_cast<size_t>(n));
  incoming[static_cast<size_t>(me)] = sizes[static_cast<size_t>(me)];
  std::vector<Channel::Ticket> moving;
  for (int step = 1; step < n; ++step) {
    const int to = (me + step) % n, from = (me + n - step) % n;
    moving.push_back(channel.send(to, &sizes[static_cast<size_t>(to)], sizeof(int64_t)));
    moving.push_back(channel.receive(from, &incoming[static_cast<size_t>(from)], sizeof(int64_t)));
  }
  while (!all_done(channel, moving)) co_await pause();
  char* const arrived = make(incoming);
  const auto begin_of = [](const std::vector<int64_t>& blocks, int rank) {
    int64_t begin = 0;
    for (int r = 0; r < rank; ++r) begin += blocks[static_cast<size_t>(r)];
    return begin;
  };
  const auto own = static_cast<size_t>(sizes[static_cast<size_t>(me)]);
  if (own > 0) std::memcpy(arrived + begin_of(incoming, me), mine + begin_of(sizes, me), own);
  for (int step = 1; step < n; ++step) {
    const int to = (me + step) % n, from = (me + n - step) % n;
    moving.push_back(channel.send(to, mine + begin_of(sizes, to), static_cast<size_t>(sizes[static_cast<size_t>(to)])));
    moving.push_back(channel.receive(from, arrived + begin_of(incoming, from),
                                     static_cast<size_t>(incoming[static_cast<size_t>(from)])));
  }
  while (!all_done(channel, moving)) co_await pause();
}

Task reduce_scatter(Channel& channel, Reduction how, void* data, std::vector<Slice> slices) {
  const Ring ring = Ring::of_all(channel);
  const auto item = static_cast<int64_t>(item_size(how.dtype));
  const Slice own = slices[static_cast<size_t>(channel.rank())];
  const auto scale = [&how, item](void* at, Slice part, double before, double after, int divisor) {
    void* const begin = static_cast<char*>(at) + part.begin * item;
    const void* sources[] = {begin};
    if (before != 1 || after != 1 || divisor != 1)
      reduce({how.dtype, how.op, before, after, divisor}, begin, sources, 1, part.end - part.begin);
  };
  if (channel.size() > 1 && (how.dtype == float16 || how.dtype == bfloat16)) {
    co_await scatter_to_owners(ring, how, data, slices);
    co_return;
  }
  scale(data, {0, slices.back().end}, how.prescale, 1, 1);
  if (channel.size() > 1) co_await scatter_reduce(ring, how, data, slices);
  scale(data, own, 1, how.postscale, how.divisor);
}

Task send(Channel& channel, const void* data, int64_t bytes, int to) {
  Channel::Ticket sending = channel.send(to, data, static_cast<size_t>(bytes));
  while (!channel.test(sending)) co_await pause();
}

Task receive(Channel& channel, void* data, int64_t bytes, int from) {
  Channel::Ticket arriving = channel.receive(from, data, static_cast<size_t>(bytes));
  while (!channel.test(arriving)) co_await pause();
}

}  // namespace anello::dist
