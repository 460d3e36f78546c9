// The command line of the CIFAR-10 example: the options of train.py, with the same names, limits and defaults.
// Main entry: parse_options(), fill_defaults().
#pragma once

#include <anello/core/state.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace cifar10 {

/// What was asked for. The optional ones depend on the model until fill_defaults(), after which all have a value.
struct Options {
  // What decides what is computed: a resumed run takes these from the checkpoint.
  std::optional<std::string> model, data, optimizer, schedule;
  std::optional<int64_t> epochs, batch_size, seed;
  std::optional<double> lr, momentum, weight_decay, label_smoothing;

  std::optional<int64_t> stop_after, threads, train_size, test_size;
  int64_t workers = 1;
  std::string save, resume, report, plot;
  bool quiet = false, no_sync_bn = false, help = false;
};

/// Raises anello::ValueError with the nearest valid option, name or range.
Options parse_options(const std::vector<std::string>& arguments);
/// The text of --help.
std::string usage();
/// Gives every option that the user left open its value for the chosen model.
void fill_defaults(Options& options);

/// The options that decide what is computed, for a checkpoint.
anello::State fixed_options(const Options& options);
/// Takes them from a checkpoint; one that was given and differs raises anello::ValueError.
void restore_options(Options& options, const anello::State& saved);

}  // namespace cifar10
