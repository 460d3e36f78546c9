// A file that appears whole or not at all.
// Main entry: AtomicFile::commit().
#include <anello/core/atomic_file.h>

#include <anello/core/error.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>

namespace anello {

void AtomicFile::fail_with_reason(const char* what) const {
  fail<IoError>("save", "cannot ", what, " '", path_, "': ", std::generic_category().message(errno));
}

AtomicFile::AtomicFile(const std::string& path) : path_(path) {
  check<IoError>(path.find('\0') == std::string::npos, "save", "a file's name with a NUL: '", path.c_str(), "' ...");
  std::error_code ignored;
  if (std::filesystem::is_symlink(path, ignored)) {
    const std::filesystem::path target = std::filesystem::weakly_canonical(path, ignored);
    if (!ignored) path_ = target.string();
  }
  // A name of its own for every writer, so that two of them cannot mix their bytes.
  static std::atomic<int> number{0};
  temporary_ = concat(path_, ".tmp-", getpid(), '-', number.fetch_add(1));
  struct stat former {};
  const bool replaces = ::stat(path_.c_str(), &former) == 0;
  if (replaces && !S_ISREG(former.st_mode)) fail<IoError>("save", "'", path_, "' exists and is not a regular file");
  descriptor_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (descriptor_ < 0) fail_with_reason("write");
  if (replaces) (void)!::fchmod(descriptor_, former.st_mode & 07777);  // best effort: the new file is still ours
}

AtomicFile::~AtomicFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void AtomicFile::write(const void* data, size_t bytes) {
  const char* next = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t written = ::write(descriptor_, next, std::min<size_t>(bytes, size_t{1} << 30));
    if (written < 0) {
      if (errno == EINTR) continue;
      fail_with_reason("write");
    }
    next += written;
    bytes -= static_cast<size_t>(written);
  }
}

void AtomicFile::commit() {
  if (::fsync(descriptor_) != 0) fail_with_reason("sync");
  const int closed = ::close(descriptor_);
  descriptor_ = -1;
  if (closed != 0) fail_with_reason("close");
  if (std::rename(temporary_.c_str(), path_.c_str()) != 0) fail_with_reason("rename");
  temporary_.clear();
  // The rename itself lies in the folder. Some file systems cannot sync folders; the file is complete all the same.
  std::string folder = std::filesystem::path(path_).parent_path().string();
  if (folder.empty()) folder = ".";
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return;
  ::fsync(descriptor);
  ::close(descriptor);
}

}  // namespace anello
