// What a person sees of a run: the progress bar, the closing table, the curves, the JSON report.
// Main entry: ProgressBar, print_table(), write_curves(), write_report().
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace cifar10 {

/// A bar on stderr when that is a terminal (nothing elsewhere), redrawn at most ten times a second.
class ProgressBar {
 public:
  ProgressBar(std::string title, int64_t total, bool enabled);
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;
  void update(int64_t done, const std::string& text);

 private:
  std::string title_;
  int64_t total_;
  bool enabled_;
  std::chrono::steady_clock::time_point drawn_{};
};

/// One line an epoch.
struct EpochResult {
  int64_t epoch = 0;
  double train_loss = 0, train_accuracy = 0, test_loss = 0, test_accuracy = 0, seconds = 0;
};

/// "50,000"
std::string with_commas(double value);
/// "3 min 05 s", "12.3 s"
std::string duration(double seconds);
/// Two columns, in a frame.
void print_table(const std::vector<std::pair<std::string, std::string>>& rows);
/// Loss and accuracy by epoch, as an SVG picture. Raises anello::IoError.
void write_curves(const std::string& path, const std::vector<EpochResult>& history, const std::string& title);

struct Report {
  std::string model;
  int64_t seed = 0;
  double test_accuracy = 0, images_per_second = 0, train_seconds = 0;
  int64_t peak_rss_bytes = 0, parameters = 0, ranks = 1, threads = 0;
};
/// As JSON; the file is complete or not there. Raises anello::IoError.
void write_report(const std::string& path, const Report& report);

}  // namespace cifar10
