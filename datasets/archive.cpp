// A strict reader of ustar archives over zlib's file functions.
// Main entry: TarReader::next().
#include <anello/core/error.h>
#include <anello/datasets/archive.h>

#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <vector>

namespace anello::data {

namespace {

constexpr std::string_view kOp = "archive";
constexpr size_t kBlock = 512;

std::string text_field(const uint8_t* p, size_t size) {
  const auto* text = reinterpret_cast<const char*>(p);
  return {text, strnlen(text, size)};
}

// An octal number, ended by a space or a zero byte.
bool octal_field(const uint8_t* p, size_t size, uint64_t* value) {
  *value = 0;
  size_t i = 0;
  while (i < size && p[i] == ' ') ++i;
  const size_t first = i;
  for (; i < size && p[i] >= '0' && p[i] <= '7'; ++i) *value = *value * 8 + static_cast<uint64_t>(p[i] - '0');
  return i > first && (i == size || p[i] == ' ' || p[i] == 0);
}

bool checksum_matches(const uint8_t* header) {
  uint64_t expected = 0, sum = 0;
  for (size_t i = 0; i < kBlock; ++i) sum += i >= 148 && i < 156 ? uint64_t{' '} : header[i];
  return octal_field(header + 148, 8, &expected) && sum == expected;
}

}  // namespace

struct TarReader::Stream {
  gzFile file;
  ~Stream() {
    if (file != nullptr) gzclose_r(file);
  }
};

TarReader::TarReader(const std::string& path) : path_(path), stream_(new Stream{gzopen(path.c_str(), "rbe")}) {
  check<IoError>(stream_->file != nullptr, kOp, "cannot open ", path, ": ", std::strerror(errno));
  gzbuffer(stream_->file, 1u << 18);
}

TarReader::~TarReader() = default;

void TarReader::fill(void* out, size_t bytes) {
  auto* p = static_cast<char*>(out);
  while (bytes > 0) {
    const auto piece = static_cast<unsigned>(std::min<size_t>(bytes, std::numeric_limits<int>::max()));
    const int got = gzread(stream_->file, p, piece);
    if (got <= 0) {
      int code = 0;
      const char* reason = gzerror(stream_->file, &code);
      const bool damaged = code != Z_OK && code != Z_BUF_ERROR;
      fail<IoError>(kOp, path_, damaged ? " is damaged: " : " is truncated: ",
                    damaged ? (code == Z_ERRNO ? std::strerror(errno) : reason) : "it ends in the middle of a member",
                    ". Hint: download it again.");
    }
    p += got;
    bytes -= static_cast<size_t>(got);
  }
}

void TarReader::skip(size_t bytes) {
  std::vector<char> waste(std::min<size_t>(bytes, 1 << 16));
  while (bytes > 0) {
    const size_t n = std::min(bytes, waste.size());
    fill(waste.data(), n);
    bytes -= n;
  }
}

// False at the end mark, a block of zeros.
bool TarReader::read_header(uint8_t* header) {
  fill(header, kBlock);
  if (std::all_of(header, header + kBlock, [](uint8_t b) { return b == 0; })) return false;
  check<IoError>(checksum_matches(header), kOp, path_, " is not a tar archive, or a header in it is damaged");
  return true;
}

bool TarReader::next() {
  skip(unread_);
  unread_ = 0;
  uint8_t header[kBlock];
  while (read_header(header)) {
    uint64_t size = 0;
    check<IoError>(octal_field(header + 124, 12, &size) && size < (uint64_t{1} << 40), kOp, path_,
                   " has a member whose size cannot be read: ", text_field(header, 100));
    const size_t padded = (static_cast<size_t>(size) + kBlock - 1) / kBlock * kBlock;
    const bool regular = header[156] == '0' || header[156] == 0;
    if (!regular) {  // folders, links, extended headers
      skip(padded);
      continue;
    }
    const bool ustar = std::memcmp(header + 257, "ustar", 5) == 0;
    const std::string prefix = ustar ? text_field(header + 345, 155) : "";
    name_ = (prefix.empty() ? "" : prefix + "/") + text_field(header, 100);
    size_ = static_cast<size_t>(size);
    unread_ = padded;
    return true;
  }
  return false;
}

void TarReader::read(void* out) {
  check<Error>(unread_ >= size_, kOp, "member ", name_, " of ", path_, " was read before");
  fill(out, size_);
  skip(unread_ - size_);
  unread_ = 0;
}

}  // namespace anello::data
