// The programs of the collectives: what each rank sends and receives.
// Main entry: broadcast(), gather_blocks(), exchange_rows(); all_reduce() is in ring.h.
#pragma once

#include <anello/dist/ring.h>

#include <functional>
#include <vector>

namespace anello::dist {

/// Compares descriptors with the neighbours, so that a difference anywhere is seen somewhere.
Task meet_neighbours(Channel& channel);
Task barrier(Channel& channel);
/// Root's bytes to all: a binomial tree when small, else a chain of segments.
Task broadcast(Channel& channel, void* data, int64_t bytes, int root);
/// Blocks of `bytes` from all to all, block r from rank r; this rank's own lies in its place (Bruck et al., 1997:
/// log2(n) messages).
Task gather_blocks(Channel& channel, void* blocks, int64_t bytes);
/// Every rank's `bytes` of any number; `make` gives memory for all, once the sizes are known (null on every rank: the
/// sizes are all that is wanted).
Task gather_bytes(Channel& channel, const void* mine, int64_t bytes,
                  std::function<char*(const std::vector<int64_t>&)> make);
/// Rank r receives sizes[r] bytes from `mine`, block after block; `make` gives memory for what arrives.
Task exchange_bytes(Channel& channel, const char* mine, std::vector<int64_t> sizes,
                    std::function<char*(const std::vector<int64_t>&)> make);
/// The slices (in elements) of the reduction stay with their owners, scaled; the rest of data is used up.
Task reduce_scatter(Channel& channel, Reduction how, void* data, std::vector<Slice> slices);

Task send(Channel& channel, const void* data, int64_t bytes, int to);
Task receive(Channel& channel, void* data, int64_t bytes, int from);

}  // namespace anello::dist
