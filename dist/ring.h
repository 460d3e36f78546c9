// The ring all-reduce in its three steps, pipelined in segments: split, scatter-reduce, all-gather.
// Main entry: split(), scatter_reduce(), all_gather(); all_reduce() chooses by size and dtype.
//
// With n ranks each sends 2 (n-1)/n of the bytes, the least there is, whatever n (P. Patarasuk and X. Yuan, "Bandwidth
// optimal all-reduce algorithms for clusters of workstations", 2009).
#pragma once

#include <anello/dist/channel.h>
#include <anello/dist/reduce.h>
#include <anello/dist/task.h>

#include <vector>

namespace anello::dist {

/// The ranks of a channel's group that take part, in ring order, and this rank's place among them. The channel must
/// outlive the tasks.
struct Ring {
  Channel* channel;
  std::vector<int> members;
  int place;

  int size() const { return static_cast<int>(members.size()); }
  int member(int at) const { return members[static_cast<size_t>((at % size() + size()) % size())]; }
  static Ring of_all(Channel& channel);
};

/// Bytes of a segment: small enough that a link and a core work at the same time, large enough that their start costs
/// nothing.
inline constexpr int64_t kSegmentBytes = 256 << 10;
/// Up to this many bytes recursive doubling is faster: log2(n) messages one after the other instead of 2 (n-1).
inline constexpr int64_t kDoublingBytes = 16 << 10;

/// Step 1: [0, n) in as many slices as the ring has ranks; slice i will be place i's.
std::vector<Slice> split(int64_t n, int ranks);
/// Step 2: each rank ends with the reduction of its own slice, not scaled; the other slices hold partial results.
/// Only for dtypes that are their own accumulator.
Task scatter_reduce(Ring ring, Reduction how, void* data, std::vector<Slice> slices);
/// Step 2 for 16-bit floats: each slice travels as it is to its owner, who adds in float32 in the order of places and
/// rounds once (scaled). The other slices are left alone.
Task scatter_to_owners(Ring ring, Reduction how, void* data, std::vector<Slice> slices);
/// Step 3: each rank's own slice goes round until all have all. Slices are in elements of item_bytes.
Task all_gather(Ring ring, void* data, std::vector<Slice> slices, int64_t item_bytes);

/// The reduction of all in log2(n) exchanges of everything; every rank computes the same expression.
Task recursive_doubling(Ring ring, Reduction how, void* data, int64_t n);
/// In place, scaled, whatever the dtype.
Task all_reduce(Ring ring, Reduction how, void* data, int64_t n);

}  // namespace anello::dist
