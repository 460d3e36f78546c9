// The events of this rank: collected as text under a lock, written in pieces of whole lines.
// Main entry: timeline_record().
#include <anello/core/error.h>
#include <anello/dist/timeline.h>

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>

namespace anello::dist {
namespace {

constexpr size_t kPiece = 16 << 10;
std::atomic<bool> enabled{false};

struct File {
  std::mutex mutex;
  std::string text;
  int descriptor = -1;
  double step_begin = 0;
  int64_t steps = 0;

  ~File() { close(); }

  void open(const std::string& path, int flags) {
    descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | flags, 0600);
    enabled = descriptor >= 0;
  }
  void close() noexcept {
    write();
    enabled = false;
    if (descriptor >= 0) ::close(descriptor);
    descriptor = -1;
  }
  void write() noexcept {
    size_t at = 0;
    while (descriptor >= 0 && at < text.size()) {
      const ssize_t done = ::write(descriptor, text.data() + at, text.size() - at);
      if (done > 0) at += static_cast<size_t>(done);
      if (done < 0 && errno != EINTR) {  // a full disk costs the trace, not the training
        enabled = false;
        ::close(descriptor);
        descriptor = -1;
      }
    }
    text.clear();
  }
};

File& file() {
  static File one;
  return one;
}

/// ANELLO_TRACE counts from the start of the process. Others may write lines to the same file: it is not emptied.
const bool from_environment = [] {
  if (const char* path = std::getenv("ANELLO_TRACE"); path != nullptr && *path != 0) file().open(path, 0);
  return true;
}();

void append_name(std::string& text, std::string_view name) {
  for (const char c : name) {
    if (c == '"' || c == '\\') text += '\\';
    text += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
}

void append(File& f, std::string_view category, int row, std::string_view name, double begin, double end,
            const char* argument, int64_t value) {
  char number[160];
  f.text += R"({"ph": "X", "name": ")";
  append_name(f.text, name);
  f.text += R"(", "cat": ")";
  f.text += category;
  std::snprintf(number, sizeof number, R"(", "tid": %d, "ts": %.3f, "dur": %.3f)", row, begin, end - begin);
  f.text += number;
  if (value >= 0) {
    std::snprintf(number, sizeof number, R"(, "args": {"%s": %lld})", argument, static_cast<long long>(value));
    f.text += number;
  }
  f.text += "}\n";
  if (f.text.size() >= kPiece) f.write();
}

}  // namespace

bool timeline_enabled() noexcept { return enabled.load(std::memory_order_relaxed); }

double timeline_now() noexcept {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<double>(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count()) / 1e3;
}

void timeline_start(const std::string& path) {
  File& f = file();
  const std::lock_guard lock(f.mutex);
  f.close();
  f.step_begin = 0;
  f.steps = 0;
  f.open(path, O_TRUNC);
  const int error = errno;
  check<IoError>(f.descriptor >= 0, "timeline", "cannot write ", path, ": ", std::strerror(error), '.');
}

void timeline_stop() {
  const std::lock_guard lock(file().mutex);
  file().close();
}

void timeline_flush() noexcept {
  const std::lock_guard lock(file().mutex);
  file().write();
}

void timeline_record(Track track, std::string_view name, double begin, double end, int64_t bytes) noexcept try {
  static constexpr const char* kNames[] = {"compute", "communication", "wait"};
  if (!timeline_enabled()) return;
  const int row = static_cast<int>(track);
  const std::lock_guard lock(file().mutex);
  append(file(), kNames[row], row, name, begin, end, "bytes", bytes);
} catch (...) {  // no memory for the text: the event is lost
}

void timeline_step_begin() noexcept {
  if (!timeline_enabled()) return;
  const std::lock_guard lock(file().mutex);
  file().step_begin = timeline_now();
}

void timeline_step(int64_t samples) noexcept try {
  if (!timeline_enabled()) return;
  File& f = file();
  const std::lock_guard lock(f.mutex);
  const double now = timeline_now();
  char name[48];
  std::snprintf(name, sizeof name, "step %lld", static_cast<long long>(++f.steps));
  if (f.step_begin != 0)
    append(f, "step", static_cast<int>(Track::compute), name, f.step_begin, now, "samples", samples);
  f.step_begin = now;
} catch (...) {
}

}  // namespace anello::dist
