// Downloads through a child program: TLS, proxies and certificates are the system's, no library is linked for them.
// Main entry: download().
#include <anello/core/error.h>
#include <anello/core/interrupt.h>
#include <anello/datasets/download.h>
#include <anello/datasets/sha256.h>

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <thread>

extern char** environ;

namespace anello::data {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kOp = "download";
constexpr int kTick = 100;  // milliseconds between progress reports

int64_t size_of(const std::string& path) {
  std::error_code code;
  const auto size = fs::file_size(path, code);
  return code ? 0 : static_cast<int64_t>(size);
}

void report(const Download& d) {
  check_interrupt();
  if (d.progress) d.progress(size_of(d.path + ".part"), d.bytes);
}

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() { close(); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }
  void close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }

 private:
  int fd_;
};

// A running program; whoever leaves early ends it.
class Child {
 public:
  // Gives errno of the start, 0 when it runs. `lock` stays open in the child: it holds the lock even when we are
  // killed.
  int start(const std::vector<std::string>& command, int lock) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return errno;
    Descriptor write_end(ends[1]);
    errors_ = ends[0];
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], 2);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
    if (lock >= 0) posix_spawn_file_actions_adddup2(&actions, lock, 3);
    std::vector<char*> argv;
    for (const std::string& part : command) argv.push_back(const_cast<char*>(part.c_str()));
    argv.push_back(nullptr);
    const int code = posix_spawnp(&pid_, argv[0], &actions, nullptr, argv.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    if (code != 0) pid_ = -1;
    return code;
  }

  // Waits up to a tick for the child's end; true when it came.
  bool ended() {
    pollfd p{errors_, POLLIN, 0};
    if (poll(&p, 1, kTick) > 0) {
      char buffer[512];
      const ssize_t n = read(errors_, buffer, sizeof buffer);
      if (n > 0)
        text_.append(buffer, static_cast<size_t>(n));
      else if (n == 0)
        return wait(0);
    }
    return false;
  }

  int status() const { return status_; }
  // The last line that is not empty.
  std::string message() const {
    const size_t end = text_.find_last_not_of(" \r\n");
    if (end == std::string::npos) return "no message";
    const size_t begin = text_.find_last_of("\r\n", end);
    return text_.substr(begin == std::string::npos ? 0 : begin + 1,
                        end - (begin == std::string::npos ? 0 : begin + 1) + 1);
  }

  ~Child() {
    if (pid_ > 0) {
      kill(pid_, SIGTERM);
      wait(0);
    }
    if (errors_ >= 0) ::close(errors_);
  }

 private:
  bool wait(int flags) {
    int raw = 0;
    pid_t got = 0;
    do got = waitpid(pid_, &raw, flags);
    while (got < 0 && errno == EINTR);
    if (got == 0) return false;
    // A host program that ignores SIGCHLD takes the status away: the checks of size and digest then decide.
    status_ = got < 0 ? 0 : WIFEXITED(raw) ? WEXITSTATUS(raw) : 128 + WTERMSIG(raw);
    pid_ = -1;
    return true;
  }

  pid_t pid_ = -1;
  int errors_ = -1, status_ = 0;
  std::string text_;
};

std::vector<std::vector<std::string>> commands(const Download& d, const std::string& part) {
  if (!d.fetcher.empty()) {
    std::vector<std::string> own = d.fetcher;
    own.insert(own.end(), {d.url, part});
    return {own};
  }
  return {{"curl", "--fail", "--location", "--silent", "--show-error", "--connect-timeout", "20", "--speed-limit", "1",
           "--speed-time", "30", "--continue-at", "-", "--output", part, "--url", d.url},
          {"wget", "--no-verbose", "--continue", "--tries=2", "--timeout=20", "--output-document=" + part, d.url}};
}

enum class Fetched { whole, cannot_resume };

Fetched fetch(const Download& d, const std::string& part, int lock) {
  std::string programs;
  for (const auto& command : commands(d, part)) {
    Child child;
    const int code = child.start(command, lock);
    if (code == ENOENT) {
      programs += (programs.empty() ? "" : " and ") + command[0];
      continue;
    }
    check<IoError>(code == 0, kOp, "cannot run ", command[0], ": ", std::strerror(code), ". Hint: ", d.hint, ".");
    while (!child.ended()) report(d);
    const int status = child.status();
    if (status == 0) return Fetched::whole;
    // curl: 22 refused by the server, 33 no ranges, 36 cannot continue; wget: 8 refused by the server.
    if (size_of(part) > 0 && (status == 22 || status == 33 || status == 36 || status == 8))
      return Fetched::cannot_resume;
    fail<IoError>(kOp, "cannot get ", d.url, " (", child.message(), "). Hint: is there a network? Else ", d.hint, ".");
  }
  fail<IoError>(kOp, "neither of the programs that download is here: ", programs, ". Hint: install one, or ", d.hint,
                ".");
}

// Empty when the file is what it should be, else what is wrong with it.
std::string fault(const Download& d, const std::string& file) {
  const int64_t size = size_of(file);
  if (d.bytes > 0 && size != d.bytes) return concat("it has ", size, " bytes, not ", d.bytes);
  if (d.sha256.empty()) return "";
  const std::string found = sha256_file(file);
  return found == d.sha256 ? "" : concat("it has SHA-256 ", found, ", not ", d.sha256);
}

bool is_there(const Download& d) {
  if (!fs::is_regular_file(d.path)) return false;
  if (d.bytes > 0) return size_of(d.path) == d.bytes;
  return fault(d, d.path).empty();
}

void put_in_place(const std::string& part, const std::string& path) {
  const Descriptor file(open(part.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() >= 0) fsync(file.get());
  std::error_code code;
  fs::rename(part, path, code);
  check<IoError>(!code, kOp, "cannot rename ", part, " to ", path, ": ", code.message());
  const Descriptor folder(open(fs::path(path).parent_path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder.get() >= 0) fsync(folder.get());
}

// Waits until no other process fetches the same file. A file system without locks does without.
void wait_for_lock(const Download& d, int lock) {
  while (flock(lock, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) return;
    report(d);
    std::this_thread::sleep_for(std::chrono::milliseconds(kTick));
  }
}

void fetch_checked(const Download& d, int lock) {
  const std::string part = d.path + ".part";
  for (;;) {
    const int64_t before = size_of(part);
    const bool complete = d.bytes > 0 && before == d.bytes;
    if (d.bytes > 0 && before > d.bytes) fs::remove(part);
    if (!complete && fetch(d, part, lock) == Fetched::cannot_resume) {
      fs::remove(part);
      continue;
    }
    report(d);
    const std::string wrong = fault(d, part);
    if (wrong.empty()) return put_in_place(part, d.path);
    if (d.bytes > 0 && size_of(part) < d.bytes)
      fail<IoError>(kOp, d.url, " ended early: ", wrong, ". Hint: run it again to go on from there.");
    fs::remove(part);
    // A part left by an earlier call may be of another file: once more from the start.
    if (before == 0)
      fail<IoError>(kOp, "the file from ", d.url, " is not the right one: ", wrong, ". Hint: ", d.hint, ".");
  }
}

}  // namespace

void download(const Download& request) {
  Download d = request;
  std::error_code code;
  d.path = fs::absolute(d.path, code).string();
  if (is_there(d)) return;
  const fs::path folder = fs::path(d.path).parent_path();
  fs::create_directories(folder, code);
  check<IoError>(fs::is_directory(folder), kOp, "cannot make the folder ", folder.string(), ": ", code.message(),
                 ". Hint: set ANELLO_CACHE to one that can be written.");
  const Descriptor lock(open((d.path + ".lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  check<IoError>(lock.get() >= 0, kOp, "cannot write in ", folder.string(), ": ", std::strerror(errno),
                 ". Hint: set ANELLO_CACHE to a folder that can be written.");
  wait_for_lock(d, lock.get());
  if (is_there(d)) return;  // another process brought it
  fetch_checked(d, lock.get());
}

std::string cache_dir() {
  const auto value = [](const char* name) {
    const char* text = std::getenv(name);
    return std::string(text == nullptr ? "" : text);
  };
  if (const std::string own = value("ANELLO_CACHE"); !own.empty()) return own;
  if (const std::string xdg = value("XDG_CACHE_HOME"); !xdg.empty()) return xdg + "/anello";
  const std::string home = value("HOME");
  check<IoError>(!home.empty(), "cache_dir",
                 "none of ANELLO_CACHE, XDG_CACHE_HOME, HOME is set. Hint: set ANELLO_CACHE.");
  return home + "/.cache/anello";
}

}  // namespace anello::data
