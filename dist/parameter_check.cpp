// Comparison of parameters between ranks.
// Main entry: broadcast_module(), check_same_values().
#include <anello/dist/parameter_check.h>

#include <algorithm>
#include <cstring>

namespace anello::dist {
namespace {

std::string describe(const std::pair<std::string, Tensor>& entry) {
  return concat("'", entry.first, "' ", entry.second.shape(), ' ', entry.second.dtype(),
                entry.second.requires_grad() ? "" : " (no gradient)");
}

/// The ranks whose value is not the one that most ranks have (of equally many: the lowest rank's).
std::vector<int> minority(const std::vector<uint64_t>& values) {
  uint64_t best = values[0];
  for (uint64_t value : values)
    if (std::count(values.begin(), values.end(), value) > std::count(values.begin(), values.end(), best)) best = value;
  std::vector<int> ranks;
  for (size_t r = 0; r < values.size(); ++r)
    if (values[r] != best) ranks.push_back(static_cast<int>(r));
  return ranks;
}

}  // namespace

void check_same_layout(Communicator& communicator, const NamedTensors& tensors) {
  std::string mine;
  for (const auto& entry : tensors) mine += describe(entry) + '\n';
  const std::vector<std::string> all = communicator.all_gather_bytes(mine);
  for (size_t r = 1; r < all.size(); ++r) {
    if (all[r] == all[0]) continue;
    std::istringstream first(all[0]), other(all[r]);
    std::string a, b;
    do {
      if (!std::getline(first, a)) a = "nothing";
      if (!std::getline(other, b)) b = "nothing";
    } while (a == b);
    fail<DistError>("DataParallel", "the models differ: rank ", r, " has ", b, " where rank 0 has ", a,
                    ". Hint: build the same model on every rank.");
  }
}

void broadcast_tensors(Communicator& communicator, const NamedTensors& tensors, int root) {
  std::vector<Work> works;
  for (const auto& [name, tensor] : tensors) {
    CollectiveOptions options;
    options.name = "initial " + name;
    works.push_back(communicator.broadcast_async(tensor, root, options));
  }
  for (const Work& work : works) work.wait();
}

void broadcast_module(Communicator& communicator, const nn::Module& module) {
  NamedTensors tensors = module.named_parameters();
  for (auto& entry : module.named_buffers()) tensors.push_back(entry);
  check_same_layout(communicator, tensors);
  broadcast_tensors(communicator, tensors);
  check_same_values(communicator, tensors, "after rank 0's were given to all");
}

// Four lanes of multiply and rotate over 8-byte words, then mixed; as in many non-cryptographic hashes.
uint64_t checksum(const Tensor& tensor) {
  const Tensor data = contiguous_data(tensor);
  const auto* bytes = static_cast<const unsigned char*>(data.raw_data());
  const size_t size = data.nbytes();
  constexpr uint64_t kMultiplier = 0x9e3779b97f4a7c15u;
  const auto mix = [](uint64_t hash, uint64_t word) {
    hash = (hash ^ word) * kMultiplier;
    return hash ^ (hash >> 29);
  };
  uint64_t lanes[4] = {1, 2, 3, 4};
  size_t i = 0;
  for (; i + 32 <= size; i += 32) {
    uint64_t words[4];
    std::memcpy(words, bytes + i, 32);
    for (int k = 0; k < 4; ++k) lanes[k] = mix(lanes[k], words[k]);
  }
  for (; i < size; ++i) lanes[0] = mix(lanes[0], bytes[i] + 1u);
  return mix(mix(mix(mix(size, lanes[0]), lanes[1]), lanes[2]), lanes[3]);
}

void check_same_values(Communicator& communicator, const NamedTensors& tensors, const std::string& when) {
  if (communicator.size() == 1 || tensors.empty()) return;
  std::vector<int64_t> mine;
  for (const auto& [name, tensor] : tensors) mine.push_back(static_cast<int64_t>(checksum(tensor)));
  const Tensor gathered = communicator.all_gather(from_vector(mine));
  const std::vector<int64_t> all = contiguous_data(gathered).to_vector<int64_t>();
  const auto ranks = static_cast<size_t>(communicator.size());
  for (size_t t = 0; t < tensors.size(); ++t) {
    std::vector<uint64_t> values(ranks);
    for (size_t r = 0; r < ranks; ++r) values[r] = static_cast<uint64_t>(all[r * tensors.size() + t]);
    const std::vector<int> odd = minority(values);
    if (odd.empty()) continue;
    std::string list;
    for (int r : odd) list += concat(list.empty() ? "" : ", ", r);
    int base = 0;
    while (std::find(odd.begin(), odd.end(), base) != odd.end()) ++base;
    fail<DistError>("DataParallel", "'", tensors[t].first, "' of rank ", list, " differs from that of rank ", base, ' ',
                    when, ". Hint: change parameters on all ranks alike (the same optimizer, schedule and clipping), ",
                    "and start from one checkpoint.");
  }
}

}  // namespace anello::dist
