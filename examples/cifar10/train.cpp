// Trains an image classifier on CIFAR-10: the C++ twin of train.py, with the same options, nets and recipes.
// Main entry: main(); cifar10_train --help. A checkpoint of one of the two can be taken up by the other. Under
// `anello run -n N` each rank takes its share of every batch; rank 0 speaks and saves.
#include <anello/anello.h>
#include <anello/core/atomic_file.h>

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <exception>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "models.h"
#include "options.h"
#include "recipe.h"
#include "report.h"

namespace cifar10 {
namespace {
namespace data = anello::data;
namespace dist = anello::dist;
using anello::concat;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

/// Number of rows whose largest logit is their label's.
int64_t count_right(const Tensor& logits, const Tensor& labels) {
  return anello::sum(anello::eq(anello::argmax(logits.detach(), 1), labels)).item<int64_t>();
}

int rank() { return dist::world()->rank(); }
int ranks() { return dist::world()->size(); }

/// Each number summed over the ranks.
std::vector<double> total(const std::vector<double>& values) {
  const Tensor sums = anello::from_vector(values);
  dist::world()->all_reduce(sums);
  return sums.to_vector<double>();
}

/// One rank of each machine fetches the archive; what goes wrong there is raised on all.
data::ImageSplits download_and_load(bool quiet) {
  const auto world = dist::world();
  const double patience = world->stall_timeout();
  world->set_stall_timeout(0);  // a download may take long
  std::string problem;
  if (world->local_rank() == 0) {
    try {
      ProgressBar bar("download", 100, !quiet && world->rank() == 0);
      data::download_cifar10("", [&](int64_t done, int64_t all) {
        bar.update(all > 0 ? 100 * done / all : 0, concat(done / (1 << 20), " MiB"));
      });
    } catch (const anello::IoError& error) {
      problem = error.what();
    }
  }
  for (const std::string& text : world->all_gather_bytes(problem))
    if (problem.empty()) problem = text;
  world->set_stall_timeout(patience);
  if (!problem.empty()) throw anello::IoError(problem);
  return data::load_cifar10(data::download_cifar10());
}

/// Train and test set by --data. Without a network and without data the run goes on with synthetic images, and says so.
data::ImageSplits load_data(Options& options) {
  const bool asked = options.data.has_value();
  if (!asked) options.data = "download";
  data::ImageSplits splits;
  if (*options.data == "download") {
    try {
      splits = download_and_load(options.quiet);
    } catch (const anello::IoError& error) {
      if (asked) throw;
      if (rank() == 0)
        std::cout << "CIFAR-10 is not here and could not be downloaded: " << error.what()
                  << "\nTraining on synthetic images instead. To train on the real ones: --data DIR with the folder "
                     "cifar-10-batches-bin, or run once with a network."
                  << std::endl;
      options.data = "synthetic";
    }
  } else if (*options.data != "synthetic") {
    splits = data::load_cifar10(*options.data);
  }
  if (*options.data == "synthetic")
    splits = data::synthetic(options.train_size.value_or(50000), options.test_size.value_or(10000), 0);
  const auto first = [](const data::ImageDataset& set, const std::optional<int64_t>& count) {
    return set.slice(0, std::min(count.value_or(set.size()), set.size()));
  };
  return {first(splits.train, options.train_size), first(splits.test, options.test_size)};
}

/// airbench's test-time augmentation: the image and its mirror (.25 each), two diagonal shifts by a pixel of both (.125
/// each).
Tensor six_views(nn::Module& model, const Tensor& x) {
  const auto mirrored = [&](const Tensor& images) {
    return model(images) * 0.5 + model(anello::flip(images, {2})) * 0.5;
  };
  const Tensor padded = anello::pad(x, {0, 0, 1, 1, 1, 1}, "reflect");
  const auto shifted = [&](int64_t by) {
    return anello::slice(anello::slice(padded, 1, by, by + x.size(1)), 2, by, by + x.size(2));
  };
  return mirrored(x) * 0.5 + mirrored(shifted(0)) * 0.25 + mirrored(shifted(2)) * 0.25;
}

struct Score {
  double loss = 0, accuracy = 0;
};

/// Mean loss and accuracy on a data set, of which each rank takes its share.
Score evaluate(nn::Module& model, const data::ImageDataset& set, bool views) {
  const anello::NoGradGuard no_grad;
  model.eval();
  double loss = 0, right = 0;
  data::DataLoader loader(set, {.batch_size = 500, .shuffle = false, .rank = rank(), .size = ranks()});
  for (const data::Batch& batch : loader) {
    const Tensor logits = views ? six_views(model, batch.inputs) : model(batch.inputs);
    loss += anello::cross_entropy(logits, batch.labels, {.reduction = anello::Reduction::sum}).item<double>();
    right += static_cast<double>(count_right(logits, batch.labels));
  }
  model.train();
  const std::vector<double> sums = total({loss, right});
  const auto n = static_cast<double>(set.size());
  return {sums[0] / n, sums[1] / n};
}

/// Everything that a checkpoint holds: model, recipe, loader, random state, history.
class Run {
 public:
  Run(const Options& options, const data::ImageDataset& train, const anello::State* saved);
  anello::State state_dict() const;
  /// One epoch; fills in the training part of a line of the history.
  EpochResult train_epoch();

  std::shared_ptr<nn::Module> model;
  std::vector<EpochResult> history;
  int64_t epoch = 0;
  int64_t images = 0;  ///< seen by all ranks since they started
  double seconds = 0;  ///< spent on training since then

 private:
  void load_state_dict(const anello::State& state);
  const Options options_;
  std::unique_ptr<data::DataLoader> loader_;
  std::unique_ptr<dist::DataParallel> parallel_;
  std::unique_ptr<Recipe> recipe_;
};

Run::Run(const Options& options, const data::ImageDataset& train, const anello::State* saved) : options_(options) {
  anello::manual_seed(static_cast<uint64_t>(*options.seed));
  model = build_model(*options.model);
  if (ranks() > 1 && !options.no_sync_bn) dist::SyncBatchNorm::convert(*model);
  loader_ = std::make_unique<data::DataLoader>(train,
                                               data::LoaderOptions{.batch_size = *options.batch_size / ranks(),
                                                                   .shuffle = true,
                                                                   .drop_last = train.size() >= *options.batch_size,
                                                                   .workers = static_cast<int>(options.workers),
                                                                   .seed = static_cast<uint64_t>(*options.seed),
                                                                   .rank = rank(),
                                                                   .size = ranks()},
                                               augmentation(*options.model));
  if (auto* airbench = dynamic_cast<Airbench*>(model.get()); airbench != nullptr && saved == nullptr) {
    const data::ImageDataset first = train.slice(0, std::min<int64_t>(5000, train.size()));
    airbench->whiten_from(data::normalize_images(first.images, first.mean, first.stddev));
  }
  // On one rank this only counts samples; on several, gradients are added up while backward runs.
  const bool sums = *options.optimizer == "airbench";
  parallel_ = std::make_unique<dist::DataParallel>(
      model, dist::DataParallelOptions{.reduction = sums ? dist::GradReduction::sum : dist::GradReduction::mean});
  recipe_ = std::make_unique<Recipe>(*model, options, loader_->batches());
  if (saved != nullptr) load_state_dict(*saved);
}

anello::State Run::state_dict() const {
  anello::State state;
  state.put("model", model->state_dict());
  state.put("recipe", recipe_->state_dict());
  const data::LoaderState at = loader_->state();
  const anello::Generator& random = anello::default_generator();
  state.put("options", fixed_options(options_));
  state.values["loader.seed"] = static_cast<int64_t>(at.seed);
  state.values["loader.epoch"] = static_cast<int64_t>(at.epoch);
  state.values["loader.position"] = at.position;
  state.values["loader.count"] = at.count;
  state.values["random"] =
      std::vector<int64_t>{static_cast<int64_t>(random.seed()), static_cast<int64_t>(random.position())};
  state.values["epoch"] = epoch;
  std::vector<int64_t> epochs;
  for (const EpochResult& row : history) epochs.push_back(row.epoch);
  state.values["history.epoch"] = epochs;
  const auto column = [&](const char* name, double EpochResult::*member) {
    std::vector<double> list;
    for (const EpochResult& row : history) list.push_back(row.*member);
    state.values[concat("history.", name)] = list;
  };
  column("train_loss", &EpochResult::train_loss);
  column("train_accuracy", &EpochResult::train_accuracy);
  column("test_loss", &EpochResult::test_loss);
  column("test_accuracy", &EpochResult::test_accuracy);
  column("seconds", &EpochResult::seconds);
  return state;
}

void Run::load_state_dict(const anello::State& state) {
  model->load_state_dict(state.part("model").tensors);
  recipe_->load_state_dict(state.part("recipe"));
  loader_->set_state({.seed = static_cast<uint64_t>(state.get<int64_t>("loader.seed")),
                      .epoch = static_cast<uint64_t>(state.get<int64_t>("loader.epoch")),
                      .position = state.get<int64_t>("loader.position"),
                      .count = state.get<int64_t>("loader.count")});
  const auto random = state.get<std::vector<int64_t>>("random");
  anello::check<anello::IoError>(random.size() == 2, "train", "the checkpoint's random state is damaged");
  anello::default_generator().set_state(static_cast<uint64_t>(random[0]), static_cast<uint64_t>(random[1]));
  epoch = state.get<int64_t>("epoch");
  for (int64_t number : state.get<std::vector<int64_t>>("history.epoch")) history.push_back({.epoch = number});
  const auto column = [&](const char* name, double EpochResult::*member) {
    const auto list = state.get<std::vector<double>>(concat("history.", name));
    for (size_t i = 0; i < std::min(list.size(), history.size()); ++i) history[i].*member = list[i];
  };
  column("train_loss", &EpochResult::train_loss);
  column("train_accuracy", &EpochResult::train_accuracy);
  column("test_loss", &EpochResult::test_loss);
  column("test_accuracy", &EpochResult::test_accuracy);
  column("seconds", &EpochResult::seconds);
}

EpochResult Run::train_epoch() {
  const Clock::time_point start = Clock::now();
  ProgressBar bar(concat("epoch ", epoch + 1, "/", *options_.epochs), loader_->batches(),
                  !options_.quiet && rank() == 0);
  int64_t seen = 0, right = 0, steps = 0;
  double loss_sum = 0;
  model->train();
  for (const data::Batch& batch : *loader_) {
    recipe_->zero_grad();
    const Tensor logits = (*parallel_)(batch.inputs);
    const Tensor loss = recipe_->loss(logits, batch.labels);
    loss.backward();
    recipe_->step();
    dist::timeline_step(batch.size());
    const auto n = static_cast<double>(batch.size());
    const double value = loss.item<double>() / (recipe_->sums_loss() ? std::max(n, 1.0) : 1);
    anello::check(!std::isnan(value), "train", "the loss became NaN in epoch ", epoch + 1,
                  ". Hint: use a smaller --lr.");
    seen += batch.size();
    loss_sum += value * n;
    right += count_right(logits, batch.labels);
    char text[64];
    std::snprintf(text, sizeof text, " images/s  loss %.3f",
                  loss_sum / static_cast<double>(std::max<int64_t>(seen, 1)));
    bar.update(++steps, with_commas(static_cast<double>(ranks() * seen) / seconds_since(start)) + text);
  }
  ++epoch;
  const double took = seconds_since(start);
  const std::vector<double> sums = total({loss_sum, static_cast<double>(right), static_cast<double>(seen)});
  images += static_cast<int64_t>(sums[2]);
  seconds += took;
  const double n = std::max(sums[2], 1.0);
  return {.epoch = epoch, .train_loss = sums[0] / n, .train_accuracy = sums[1] / n, .seconds = took};
}

void finish(const Options& options, const Run& run) {
  if (rank() != 0) return;
  const double rate = run.seconds > 0 ? static_cast<double>(run.images) / run.seconds : 0;
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const Report report{.model = *options.model,
                      .seed = *options.seed,
                      .test_accuracy = run.history.back().test_accuracy,
                      .images_per_second = rate,
                      .train_seconds = run.seconds,
                      .peak_rss_bytes = static_cast<int64_t>(usage.ru_maxrss) * 1024,
                      .parameters = run.model->num_parameters(),
                      .ranks = ranks(),
                      .threads = anello::num_threads()};
  char accuracy[32];
  std::snprintf(accuracy, sizeof accuracy, "%.2f %%", 100 * report.test_accuracy);
  print_table({{"model", *options.model + ", " + with_commas(static_cast<double>(report.parameters)) + " parameters"},
               {"data", *options.data},
               {"epochs", std::to_string(run.epoch)},
               {"test accuracy", accuracy},
               {"training", duration(run.seconds) + ", " + with_commas(rate) + " images/s"},
               {"peak memory", with_commas(static_cast<double>(report.peak_rss_bytes) / (1 << 20)) + " MiB"},
               {"ranks", std::to_string(report.ranks)},
               {"device", concat("cpu (", anello::cpu_isa(), "), ", report.threads, " threads, float32")}});
  if (!options.plot.empty()) {
    write_curves(options.plot, run.history, concat(*options.model, ", seed ", *options.seed));
    std::cout << "curves: " << options.plot << std::endl;
  }
  if (!options.report.empty()) write_report(options.report, report);
}

/// Better told before training than after: whether the files can be written that will be.
void require_writable(const Options& options) {
  for (const std::string* path : {&options.save, &options.report, &options.plot})
    if (!path->empty()) const anello::AtomicFile probe(*path);  // made beside its place, and gone again
}

void train(Options options) {
  if (rank() == 0) require_writable(options);
  if (options.threads) anello::set_num_threads(static_cast<int>(*options.threads));
  anello::State saved;
  const bool resumes = !options.resume.empty();
  if (resumes) {
    saved = anello::load_checkpoint(options.resume);  // by each rank: the file lies where all can read it
    restore_options(options, saved.part("options"));
  }
  fill_defaults(options);
  if (*options.batch_size % ranks() != 0) {
    const int64_t fitting = (*options.batch_size + ranks() - 1) / ranks() * ranks();
    if (rank() == 0)
      std::cout << "batch " << *options.batch_size << " does not divide among " << ranks() << " ranks: " << fitting
                << " instead" << std::endl;
    options.batch_size = fitting;
  }
  const data::ImageSplits splits = load_data(options);
  Run run(options, splits.train, resumes ? &saved : nullptr);
  if (rank() == 0)
    std::cout << *options.model << " (" << with_commas(static_cast<double>(run.model->num_parameters()))
              << " parameters) on " << with_commas(static_cast<double>(splits.train.size())) << " images of "
              << *options.data << ", batch " << *options.batch_size << ", "
              << (ranks() > 1 ? concat(ranks(), " ranks of ") : std::string()) << anello::num_threads()
              << " threads, cpu " << anello::cpu_isa() << std::endl;
  while (run.epoch < std::min(*options.epochs, options.stop_after.value_or(*options.epochs))) {
    const int64_t before = run.images;
    EpochResult row = run.train_epoch();
    const Score test = evaluate(*run.model, splits.test, run.epoch == *options.epochs && *options.model == "airbench");
    row.test_loss = test.loss;
    row.test_accuracy = test.accuracy;
    run.history.push_back(row);
    if (rank() != 0) continue;
    std::printf("epoch %3lld  train loss %.4f  acc %5.2f %%   test loss %.4f  acc %5.2f %%   %s images/s  %s\n",
                static_cast<long long>(row.epoch), row.train_loss, 100 * row.train_accuracy, row.test_loss,
                100 * row.test_accuracy, with_commas(static_cast<double>(run.images - before) / row.seconds).c_str(),
                duration(row.seconds).c_str());
    std::fflush(stdout);
    if (!options.save.empty()) anello::save_checkpoint(options.save, run.state_dict());
  }
  anello::check<anello::ValueError>(!run.history.empty(), "train", "there was nothing to train");
  finish(options, run);
}

}  // namespace
}  // namespace cifar10

int main(int argc, char** argv) {
  try {
    const cifar10::Options options = cifar10::parse_options({argv + 1, argv + argc});
    if (options.help) {
      std::cout << cifar10::usage();
      return 0;
    }
    cifar10::train(options);
    return 0;
  } catch (const anello::ValueError& error) {
    std::cerr << error.what() << std::endl;
    return 2;
  } catch (const std::exception& error) {
    std::cerr << error.what() << std::endl;
    return 1;
  }
}
