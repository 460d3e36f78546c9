// Files of tensors: safetensors for weights, and whole training states on top of it.
// Main entry: save_safetensors(), load_safetensors(); save_checkpoint(), load_checkpoint().
#pragma once

#include <anello/core/state.h>

#include <map>
#include <string>

namespace anello {

using Metadata = std::map<std::string, std::string>;

/// Writes tensors (any device, strides and dtype; 0 elements too) in the safetensors format:
/// https://huggingface.co/docs/safetensors. The file is written beside its place, synced and renamed: a failure (a full
/// disk, an exception, a crash) leaves the file that was there as it was. Raises IoError with path and reason,
/// ValueError for the reserved name "__metadata__".
void save_safetensors(const std::string& path, const TensorMap& tensors, const Metadata& metadata = {});

struct Safetensors {
  TensorMap tensors;  ///< on the CPU, in the order of the file's header
  Metadata metadata;
};
/// Reads and checks a whole file. Raises IoError that names file and tensor when it is missing, truncated, or too long,
/// when its header is no valid JSON of the format, has a name twice or an unknown dtype, and when offsets overlap,
/// leave gaps, lie outside of the file or do not fit shape and dtype. Nothing is allocated before the sizes are known
/// to fit.
Safetensors load_safetensors(const std::string& path);

/// Writes a training state (see State::put: "model", "optimizer", "schedule", "rng", ...) to one file: the tensors as
/// safetensors, the values as JSON in its metadata under "anello.values". One file, so that tensors and values can
/// never be of two saves. Beside it `path`.json holds the same values for people to read; loading does not need it.
/// Numbers keep every bit. Raises IoError.
void save_checkpoint(const std::string& path, const State& state);
/// Raises IoError as load_safetensors() does, and for a safetensors file that holds no training state.
State load_checkpoint(const std::string& path);

}  // namespace anello
