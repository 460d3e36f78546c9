// SHA-256, to tell whether a file is the one it should be.
// Main entry: sha256_file(). Source: FIPS 180-4.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace anello::data {

class Sha256 {
 public:
  void update(const void* data, size_t bytes);
  /// The digest as 64 lower-case hexadecimal digits; the object is then used up.
  std::string finish();

 private:
  void block(const uint8_t* data);
  std::array<uint32_t, 8> state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<uint8_t, 64> buffer_{};
  size_t buffered_ = 0;
  uint64_t bytes_ = 0;
};

std::string sha256(const void* data, size_t bytes);
/// Raises IoError when the file cannot be read.
std::string sha256_file(const std::string& path);

}  // namespace anello::data
