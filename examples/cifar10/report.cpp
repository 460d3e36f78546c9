// What a person sees of a run.
// Main entry: ProgressBar, write_report().
#include "report.h"

#include <anello/core/atomic_file.h>
#include <anello/core/error.h>

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <iostream>

namespace cifar10 {

namespace {
template <class... Args>
std::string format(const char* text, Args... args) {
  std::array<char, 256> buffer{};
  std::snprintf(buffer.data(), buffer.size(), text, args...);
  return buffer.data();
}
size_t terminal_width() {
  winsize size{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 20 ? size.ws_col : 80;
}
}  // namespace

ProgressBar::ProgressBar(std::string title, int64_t total, bool enabled)
    : title_(std::move(title)), total_(std::max<int64_t>(total, 1)), enabled_(enabled && isatty(STDERR_FILENO) != 0) {}

void ProgressBar::update(int64_t done, const std::string& text) {
  const auto now = std::chrono::steady_clock::now();
  if (!enabled_ || (now - drawn_ < std::chrono::milliseconds(100) && done < total_)) return;
  drawn_ = now;
  const std::string left = title_ + " [", right = anello::concat("] ", done, "/", total_, "  ", text);
  const size_t columns = terminal_width() - 1, taken = left.size() + right.size();
  const size_t room = columns > taken + 5 ? columns - taken : 5;
  const size_t filled = std::min(room, room * static_cast<size_t>(done) / static_cast<size_t>(total_));
  std::cerr << '\r' << (left + std::string(filled, '=') + std::string(room - filled, ' ') + right).substr(0, columns)
            << std::flush;
}

ProgressBar::~ProgressBar() {
  if (enabled_) std::cerr << '\r' << std::string(terminal_width() - 1, ' ') << '\r' << std::flush;
}

std::string with_commas(double value) {
  const std::string digits = std::to_string(std::llround(value));
  std::string text;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) text += ',';
    text += digits[i];
  }
  return text;
}

std::string duration(double seconds) {
  const auto whole = std::llround(seconds);
  return whole >= 60 ? format("%lld min %02lld s", whole / 60, whole % 60) : format("%.1f s", seconds);
}

void print_table(const std::vector<std::pair<std::string, std::string>>& rows) {
  size_t left = 0, right = 0;
  for (const auto& [key, value] : rows) left = std::max(left, key.size()), right = std::max(right, value.size());
  const std::string rule = anello::concat('+', std::string(left + 2, '-'), '+', std::string(right + 2, '-'), "+\n");
  std::cout << rule;
  for (const auto& [key, value] : rows)
    std::cout << "| " << key << std::string(left - key.size(), ' ') << " | " << value
              << std::string(right - value.size(), ' ') << " |\n";
  std::cout << rule << std::flush;
}

namespace {
constexpr double kWidth = 480, kHeight = 320, kMargin = 50;

/// One chart at x = `from`: a frame, the largest and smallest value, and two curves.
std::string chart(double from, const std::string& title, const std::vector<EpochResult>& history,
                  double EpochResult::*train, double EpochResult::*test) {
  double low = history[0].*train, high = low;
  for (const EpochResult& row : history)
    for (const double value : {row.*train, row.*test}) low = std::min(low, value), high = std::max(high, value);
  if (high <= low) high = low + 1;
  const double wide = kWidth - 2 * kMargin, tall = kHeight - 2 * kMargin;
  std::string svg = format("<text x='%g' y='30' font-weight='bold'>%s</text>", from + kMargin, title.c_str());
  svg += format("<rect x='%g' y='%g' width='%g' height='%g' fill='none' stroke='#999'/>", from + kMargin, kMargin, wide,
                tall);
  svg += format("<text x='%g' y='%g' text-anchor='end'>%.3g</text>", from + kMargin - 5, kMargin + 5, high);
  svg += format("<text x='%g' y='%g' text-anchor='end'>%.3g</text>", from + kMargin - 5, kMargin + tall, low);
  svg += format("<text x='%g' y='%g'>epoch %lld to %lld</text>", from + kMargin, kHeight - 30,
                static_cast<long long>(history.front().epoch), static_cast<long long>(history.back().epoch));
  const auto curve = [&](double EpochResult::*member, const char* colour, const char* label, double label_x) {
    svg += format("<polyline fill='none' stroke-width='2' stroke='%s' points='", colour);
    for (size_t i = 0; i < history.size(); ++i) {
      const double part = history.size() > 1 ? static_cast<double>(i) / static_cast<double>(history.size() - 1) : 0.5;
      svg += format("%.1f,%.1f ", from + kMargin + wide * part,
                    kMargin + tall * (1 - (history[i].*member - low) / (high - low)));
    }
    svg += format("'/><text x='%g' y='%g' fill='%s'>%s</text>", from + label_x, kHeight - 30, colour, label);
  };
  curve(train, "#1f77b4", "train", kWidth - 140);
  curve(test, "#d62728", "test", kWidth - 90);
  return svg;
}
}  // namespace

void write_curves(const std::string& path, const std::vector<EpochResult>& history, const std::string& title) {
  anello::AtomicFile file(path);
  file.write(
      format("<svg xmlns='http://www.w3.org/2000/svg' width='%g' height='%g' font-family='sans-serif' "
             "font-size='12'><rect width='100%%' height='100%%' fill='white'/>",
             2 * kWidth, kHeight));
  file.write(chart(0, "Loss of " + title, history, &EpochResult::train_loss, &EpochResult::test_loss));
  file.write(chart(kWidth, "Accuracy", history, &EpochResult::train_accuracy, &EpochResult::test_accuracy));
  file.write("</svg>\n");
  file.commit();
}

void write_report(const std::string& path, const Report& r) {
  const auto integer = [](int64_t value) { return std::to_string(value); };
  const auto real = [](double value) { return format("%.17g", value); };
  const std::vector<std::pair<std::string, std::string>> rows = {{"model", anello::concat('"', r.model, '"')},
                                                                 {"seed", integer(r.seed)},
                                                                 {"test_accuracy", real(r.test_accuracy)},
                                                                 {"images_per_second", real(r.images_per_second)},
                                                                 {"train_seconds", real(r.train_seconds)},
                                                                 {"peak_rss_bytes", integer(r.peak_rss_bytes)},
                                                                 {"parameters", integer(r.parameters)},
                                                                 {"ranks", integer(r.ranks)},
                                                                 {"threads", integer(r.threads)},
                                                                 {"device", "\"cpu\""},
                                                                 {"precision", "\"float32\""}};
  std::string text = "{\n";
  for (const auto& [key, value] : rows)
    text += anello::concat("  \"", key, "\": ", value, key == "precision" ? "\n" : ",\n");
  anello::AtomicFile file(path);
  file.write(text + "}\n");
  file.commit();
}

}  // namespace cifar10
