// What a rank did when, for the trace and the report of `anello run --trace FILE`: computing, communicating, waiting.
// Main entry: TimelineSpan, timeline_record(), timeline_step(). Without a trace each costs one load of a flag.
//
// Each rank writes its own file, a JSON event of Chrome's trace format a line (what is complete survives SIGKILL); the
// launcher gathers and merges them. Times are microseconds of the system clock, so that ranks can be laid side by side
// (between hosts as exactly as their clocks agree).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace anello::dist {

/// The row of an event. `wait` is time in which computing stood still for communication: the exposed part of it.
enum class Track { compute = 0, communication = 1, wait = 2 };

/// Whether events are recorded: ANELLO_TRACE named a file when the process started, or timeline_start() did.
bool timeline_enabled() noexcept;
/// Records into this file, which is emptied. Raises IoError when it cannot be written.
void timeline_start(const std::string& path);
/// Writes what is left and ends recording. Runs by itself when the process ends.
void timeline_stop();
/// Writes what is recorded so far. An error of the disk ends recording; it never fails the training.
void timeline_flush() noexcept;

/// Microseconds since 1970.
double timeline_now() noexcept;
/// An event from begin to end (timeline_now()); any thread. `bytes` is shown beside it when it is not negative.
void timeline_record(Track track, std::string_view name, double begin, double end, int64_t bytes = -1) noexcept;
/// Ends a training step of so many samples on this rank; it began where the one before ended, or at the first call of
/// timeline_step_begin().
void timeline_step(int64_t samples) noexcept;
void timeline_step_begin() noexcept;

/// Records its own lifetime.
class TimelineSpan {
 public:
  TimelineSpan(Track track, std::string_view name, int64_t bytes = -1)
      : begin_(timeline_enabled() ? timeline_now() : 0), bytes_(bytes), track_(track), name_(name) {}
  ~TimelineSpan() {
    if (begin_ != 0) timeline_record(track_, name_, begin_, timeline_now(), bytes_);
  }
  TimelineSpan(const TimelineSpan&) = delete;
  TimelineSpan& operator=(const TimelineSpan&) = delete;

 private:
  double begin_;
  int64_t bytes_;
  Track track_;
  std::string_view name_;  // outlives the span
};

}  // namespace anello::dist
