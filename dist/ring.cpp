// The ring all-reduce: split, scatter-reduce, all-gather; and recursive doubling for what is small.
// Main entry: all_reduce().
#include <anello/core/tensor.h>
#include <anello/dist/ring.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>

namespace anello::dist {
namespace {

/// Messages that may be under way in each direction: enough to keep the link busy while one is being added.
constexpr int64_t kWindow = 4;

int64_t length(const Slice& s) { return s.end - s.begin; }
char* at(void* data, int64_t bytes) { return static_cast<char*>(data) + bytes; }

/// The segments of slices of a ring: the same number in each slice, so that every rank counts the same messages.
struct Segments {
  const std::vector<Slice>* slices;
  int64_t item, each = 1;

  Segments(const std::vector<Slice>& of, int64_t item_bytes) : slices(&of), item(item_bytes) {
    int64_t longest = 0;
    for (const Slice& s : of) longest = std::max(longest, length(s) * item);
    each = std::max<int64_t>(1, (longest + kSegmentBytes - 1) / kSegmentBytes);
  }
  /// Segment k of slice number `slice` (any integer, taken round the ring), in elements of the whole buffer.
  Slice operator()(int64_t slice, int64_t k) const {
    const auto n = static_cast<int64_t>(slices->size());
    const Slice& whole = (*slices)[static_cast<size_t>((slice % n + n) % n)];
    const Slice part = slice_of(length(whole), static_cast<int>(k), static_cast<int>(each));
    return {whole.begin + part.begin, whole.begin + part.end};
  }
  int64_t longest() const {
    int64_t most = 0;
    for (const Slice& s : *slices) most = std::max(most, (length(s) + each - 1) / each);
    return most;
  }
};

/// dst = a op b without scales.
void combine(const Reduction& how, void* dst, const void* a, const void* b, int64_t n) {
  const void* sources[] = {a, b};
  reduce({how.dtype, how.op, 1, 1, 1}, dst, sources, 2, n);
}
void scale_before(const Reduction& how, void* data, int64_t n) {
  const void* sources[] = {data};
  if (how.prescale != 1) reduce({how.dtype, how.op, how.prescale, 1, 1}, data, sources, 1, n);
}
void scale_after(const Reduction& how, void* data, int64_t n) {
  const void* sources[] = {data};
  if (how.postscale != 1 || how.divisor != 1)
    reduce({how.dtype, how.op, 1, how.postscale, how.divisor}, data, sources, 1, n);
}
bool sixteen_bits(DType dtype) { return dtype == float16 || dtype == bfloat16; }

}  // namespace

Slice slice_of(int64_t n, int rank, int size) {
  const int64_t part = n / size, more = n % size;
  const int64_t begin = rank * part + std::min<int64_t>(rank, more);
  return {begin, begin + part + (rank < more ? 1 : 0)};
}

Ring Ring::of_all(Channel& channel) {
  std::vector<int> members(static_cast<size_t>(channel.size()));
  std::iota(members.begin(), members.end(), 0);
  return {&channel, members, channel.rank()};
}

std::vector<Slice> split(int64_t n, int ranks) {
  std::vector<Slice> slices;
  for (int r = 0; r < ranks; ++r) slices.push_back(slice_of(n, r, ranks));
  return slices;
}

// In step s a rank passes on slice place-s-1, to which it added its own part in the step before, and takes slice
// place-s-2; after n-1 steps its own slice has been everywhere. Segment k of step s+1 leaves as soon as segment k of
// step s was added: steps overlap.
Task scatter_reduce(Ring ring, Reduction how, void* data, std::vector<Slice> slices) {
  const auto item = static_cast<int64_t>(item_size(how.dtype));
  const Segments segment(slices, item);
  const int64_t each = segment.each, total = each * (ring.size() - 1), room = segment.longest() * item;
  const int left = ring.member(ring.place - 1), right = ring.member(ring.place + 1);
  std::vector<char> arrived(static_cast<size_t>(kWindow * room));
  Channel::Ticket sending[kWindow] = {}, receiving[kWindow] = {};
  int64_t sent = 0, gone = 0, asked = 0, added = 0;
  while (gone < total || added < total) {
    bool idle = true;
    for (; sent < total && sent - gone < kWindow && sent - added < each; ++sent) {
      const Slice s = segment(ring.place - sent / each - 1, sent % each);
      sending[sent % kWindow] =
          ring.channel->send(right, at(data, s.begin * item), static_cast<size_t>(length(s) * item));
    }
    for (; asked < total && asked - added < kWindow; ++asked) {
      const Slice s = segment(ring.place - asked / each - 2, asked % each);
      receiving[asked % kWindow] =
          ring.channel->receive(left, arrived.data() + asked % kWindow * room, static_cast<size_t>(length(s) * item));
    }
    if (added < asked && ring.channel->test(receiving[added % kWindow])) {
      const Slice s = segment(ring.place - added / each - 2, added % each);
      void* mine = at(data, s.begin * item);
      combine(how, mine, arrived.data() + added % kWindow * room, mine, length(s));
      ++added;
      idle = false;
    }
    for (; gone < sent && ring.channel->test(sending[gone % kWindow]); ++gone) idle = false;
    if (idle) co_await pause();
  }
}

Task scatter_to_owners(Ring ring, Reduction how, void* data, std::vector<Slice> slices) {
  const auto item = static_cast<int64_t>(item_size(how.dtype));
  const Segments segment(slices, item);
  const int others = ring.size() - 1;
  const int64_t each = segment.each, room = segment.longest() * item, window = std::min<int64_t>(kWindow, each);
  const auto slots = static_cast<size_t>(window * others);
  std::vector<char> arrived(slots * static_cast<size_t>(room));
  std::vector<Channel::Ticket> sending(slots), receiving(slots);
  int64_t sent = 0, gone = 0, asked = 0, added = 0;
  while (gone < each || added < each) {
    bool idle = true;
    for (; asked < each && asked - added < window; ++asked)
      for (int o = 0; o < others; ++o) {
        const Slice s = segment(ring.place, asked);
        const auto slot = static_cast<size_t>(asked % window * others + o);
        receiving[slot] =
            ring.channel->receive(ring.member(ring.place + 1 + o), arrived.data() + slot * static_cast<size_t>(room),
                                  static_cast<size_t>(length(s) * item));
      }
    for (; sent < each && sent - gone < window; ++sent)
      for (int o = 0; o < others; ++o) {
        const Slice s = segment(ring.place + 1 + o, sent);
        sending[static_cast<size_t>(sent % window * others + o)] = ring.channel->send(
            ring.member(ring.place + 1 + o), at(data, s.begin * item), static_cast<size_t>(length(s) * item));
      }
    const auto all_done = [&](std::vector<Channel::Ticket>& tickets, int64_t k) {
      bool done = true;
      for (int o = 0; o < others; ++o)
        done &= ring.channel->test(tickets[static_cast<size_t>(k % window * others + o)]);
      return done;
    };
    if (added < asked && all_done(receiving, added)) {
      const Slice s = segment(ring.place, added);
      std::vector<const void*> sources;
      for (int place = 0; place < ring.size(); ++place) {
        const int o = (place - ring.place - 1 + ring.size()) % ring.size();
        sources.push_back(place == ring.place ? at(data, s.begin * item)
                                              : arrived.data() + (added % window * others + o) * room);
      }
      reduce(how, at(data, s.begin * item), sources.data(), ring.size(), length(s));
      ++added;
      idle = false;
    }
    for (; gone < sent && all_done(sending, gone); ++gone) idle = false;
    if (idle) co_await pause();
  }
}

Task all_gather(Ring ring, void* data, std::vector<Slice> slices, int64_t item_bytes) {
  const Segments segment(slices, item_bytes);
  const int64_t each = segment.each, total = each * (ring.size() - 1);
  const int left = ring.member(ring.place - 1), right = ring.member(ring.place + 1);
  Channel::Ticket sending[kWindow] = {}, receiving[kWindow] = {};
  int64_t sent = 0, gone = 0, asked = 0, arrived = 0;
  while (gone < total || arrived < total) {
    bool idle = true;
    for (; sent < total && sent - gone < kWindow && sent - arrived < each; ++sent) {
      const Slice s = segment(ring.place - sent / each, sent % each);
      sending[sent % kWindow] =
          ring.channel->send(right, at(data, s.begin * item_bytes), static_cast<size_t>(length(s) * item_bytes));
    }
    for (; asked < total && asked - arrived < kWindow; ++asked) {
      const Slice s = segment(ring.place - asked / each - 1, asked % each);
      receiving[asked % kWindow] =
          ring.channel->receive(left, at(data, s.begin * item_bytes), static_cast<size_t>(length(s) * item_bytes));
    }
    for (; arrived < asked && ring.channel->test(receiving[arrived % kWindow]); ++arrived) idle = false;
    for (; gone < sent && ring.channel->test(sending[gone % kWindow]); ++gone) idle = false;
    if (idle) co_await pause();
  }
}

// With n not a power of two, the first 2 (n - 2^k) ranks fold in pairs before and unfold after. The partial of the
// lower ranks is always the first operand, so that every rank computes the very same expression.
Task recursive_doubling(Ring ring, Reduction how, void* data, int64_t n) {
  const size_t bytes = static_cast<size_t>(n) * item_size(how.dtype);
  const int power = static_cast<int>(std::bit_floor(static_cast<unsigned>(ring.size()))), folded = ring.size() - power;
  std::vector<char> other(bytes);
  Channel::Ticket sending = 0, receiving = 0;
  const bool in_pair = ring.place < 2 * folded;
  if (in_pair && ring.place % 2 == 0) {
    sending = ring.channel->send(ring.member(ring.place + 1), data, bytes);
    while (!ring.channel->test(sending)) co_await pause();
    receiving = ring.channel->receive(ring.member(ring.place + 1), data, bytes);
    while (!ring.channel->test(receiving)) co_await pause();
    co_return;
  }
  if (in_pair) {
    receiving = ring.channel->receive(ring.member(ring.place - 1), other.data(), bytes);
    while (!ring.channel->test(receiving)) co_await pause();
    combine(how, data, other.data(), data, n);
  }
  const int me = in_pair ? ring.place / 2 : ring.place - folded;
  for (int bit = 1; bit < power; bit *= 2) {
    const int partner = me ^ bit, place = partner < folded ? 2 * partner + 1 : partner + folded;
    sending = ring.channel->send(ring.member(place), data, bytes);
    receiving = ring.channel->receive(ring.member(place), other.data(), bytes);
    while (!ring.channel->test(receiving) || !ring.channel->test(sending)) co_await pause();
    const bool lower = partner < me;
    combine(how, data, lower ? other.data() : data, lower ? data : other.data(), n);
  }
  if (in_pair) {
    sending = ring.channel->send(ring.member(ring.place - 1), data, bytes);
    while (!ring.channel->test(sending)) co_await pause();
  }
}

Task all_reduce(Ring ring, Reduction how, void* data, int64_t n) {
  if (ring.size() == 1) {
    scale_before(how, data, n);
    scale_after(how, data, n);
    co_return;
  }
  const bool small = n * static_cast<int64_t>(item_size(how.dtype)) <= kDoublingBytes;
  if (small && sixteen_bits(how.dtype)) {  // float32 on the wire, rounded at the end
    const Tensor half = from_memory(data, {n}, how.dtype, [] {});
    const Tensor wide = copy_as(half, float32);
    how.dtype = float32;
    scale_before(how, wide.raw_data(), n);
    co_await recursive_doubling(ring, how, wide.raw_data(), n);
    scale_after(how, wide.raw_data(), n);
    copy_into(half, wide);
  } else if (small) {
    scale_before(how, data, n);
    co_await recursive_doubling(ring, how, data, n);
    scale_after(how, data, n);
  } else {
    const std::vector<Slice> slices = split(n, ring.size());
    const Slice own = slices[static_cast<size_t>(ring.place)];
    if (sixteen_bits(how.dtype)) {
      co_await scatter_to_owners(ring, how, data, slices);
    } else {
      scale_before(how, data, n);
      co_await scatter_reduce(ring, how, data, slices);
      scale_after(how, at(data, own.begin * static_cast<int64_t>(item_size(how.dtype))), length(own));
    }
    co_await all_gather(ring, data, slices, static_cast<int64_t>(item_size(how.dtype)));
  }
}

}  // namespace anello::dist
