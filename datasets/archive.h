// Reads the members of a gzip-compressed (or plain) tar archive one after the other, in one pass.
// Main entry: TarReader::next(). Source: POSIX.1-1988 ustar, RFC 1952.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace anello::data {

class TarReader {
 public:
  /// Raises IoError when the file cannot be opened.
  explicit TarReader(const std::string& path);
  ~TarReader();
  TarReader(const TarReader&) = delete;
  TarReader& operator=(const TarReader&) = delete;

  /// Goes to the next regular file; false at the end of the archive. Raises IoError, naming the archive, when it is
  /// truncated or damaged (each header and the gzip stream carry a checksum).
  bool next();
  /// Path of the current member as the archive has it, and its size in bytes.
  const std::string& name() const { return name_; }
  size_t size() const { return size_; }
  /// The current member's content; `out` has room for size() bytes. Once a member.
  void read(void* out);

 private:
  struct Stream;
  void fill(void* out, size_t bytes);
  void skip(size_t bytes);
  bool read_header(uint8_t* header);

  std::string path_, name_;
  size_t size_ = 0, unread_ = 0;  // bytes of the member, padding included, not yet read
  std::unique_ptr<Stream> stream_;
};

}  // namespace anello::data
