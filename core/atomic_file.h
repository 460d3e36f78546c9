// A file that appears whole or not at all: written beside its place, synced, then renamed over it.
// Main entry: AtomicFile.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace anello {

/// Writes to a temporary file in the same folder. Until commit() the file of that name is as it was; an object that
/// goes without commit() removes the temporary file. Every failure raises IoError with the path and the system's
/// reason. A symbolic link is followed: its target is replaced.
class AtomicFile {
 public:
  explicit AtomicFile(const std::string& path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(const void* data, size_t bytes);
  void write(std::string_view text) { write(text.data(), text.size()); }
  /// Syncs the file, renames it to its place and syncs the folder, so that it also survives a loss of power.
  void commit();

 private:
  [[noreturn]] void fail_with_reason(const char* what) const;
  std::string path_, temporary_;
  int descriptor_ = -1;
};

}  // namespace anello
