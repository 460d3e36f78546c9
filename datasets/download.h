// Gets a file from the network into a cache: resumes, checks, and puts it into place in one step.
// Main entry: download(), cache_dir().
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace anello::data {

/// Called on the caller's thread about ten times a second: bytes there, bytes in all (0: unknown). It may raise to
/// stop.
using Progress = std::function<void(int64_t done, int64_t total)>;

struct Download {
  std::string url;
  std::string path;         ///< where the file goes; its folder is made
  std::string sha256 = "";  ///< 64 lower-case hexadecimal digits; empty: not checked
  int64_t bytes = 0;        ///< its size; 0: unknown
  Progress progress = {};
  /// A program with leading arguments that is run with two more, URL and FILE, and appends to FILE what it lacks; exit
  /// status 0 when FILE is whole, 33 when the server cannot resume. Empty: curl, else wget, whichever is there.
  std::vector<std::string> fetcher = {};
  std::string hint = "download it by hand";  ///< how else the user gets on, for the error
};

/// Returns at once when the file is there with its size (or, when that is unknown, its checksum). Else fetches into
/// PATH.part, going on where an earlier call stopped, checks size and SHA-256, and renames it: whatever was at PATH
/// stays until then. Only one process fetches (PATH.lock); others wait for it. Raises IoError that names the URL and
/// the reason.
void download(const Download& request);

/// $ANELLO_CACHE, else $XDG_CACHE_HOME/anello, else ~/.cache/anello. Not created. Raises IoError when none is set.
std::string cache_dir();

}  // namespace anello::data
