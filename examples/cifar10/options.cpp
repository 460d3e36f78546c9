// The command line of the CIFAR-10 example.
// Main entry: parse_options().
#include "options.h"

#include <anello/core/suggest.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <limits>
#include <string_view>

#include "models.h"

namespace cifar10 {

namespace {
using anello::check;
using anello::fail;
using anello::ValueError;

const std::vector<std::string_view> kOptimizers = {"airbench", "sgd", "adam", "adamw", "muon"};
const std::vector<std::string_view> kSchedules = {"onecycle", "cosine", "multistep", "linear", "constant"};

int64_t whole(const std::string& option, const std::string& text, int64_t low) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  check<ValueError>(error == std::errc() && end == text.data() + text.size() && value >= low, "train", option, " is '",
                    text, "', a whole number of at least ", low, " is needed");
  return value;
}

double real(const std::string& option, const std::string& text, double high = std::numeric_limits<double>::infinity()) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  check<ValueError>(!text.empty() && *end == '\0' && value >= 0 && value <= high && std::isfinite(value), "train",
                    option, " is '", text, "', a number from 0 to ", high, " is needed");
  return value;
}

std::string choice(const std::string& option, const std::string& text, const std::vector<std::string_view>& valid) {
  if (std::find(valid.begin(), valid.end(), text) != valid.end()) return text;
  fail<ValueError>("train", option, " knows no '", text, "'.", anello::suggest(text, valid));
}

struct Rule {
  std::string_view name, value, help;  ///< value: what follows the option; empty: nothing
  std::function<void(Options&, const std::string& option, const std::string& text)> set;
};

/// A rule that stores what `parse` makes of the text.
template <class Member, class Parse, class... Limits>
auto store(Member Options::*member, Parse parse, Limits... limits) {
  return [=](Options& o, const std::string& option, const std::string& text) {
    o.*member = parse(option, text, limits...);
  };
}
auto store_text(std::string Options::*member) {
  return [member](Options& o, const std::string&, const std::string& text) { o.*member = text; };
}

const std::vector<Rule>& rules() {
  using O = Options;
  const auto any_real = [](const std::string& option, const std::string& text) { return real(option, text); };
  static const std::vector<Rule> list = {
      {"--data", "DIR|download|synthetic",
       "CIFAR-10 (binary version) in a folder or archive; download: into the cache;\n"
       "synthetic: made-up images (default: the cache, else download)",
       [](O& o, const std::string&, const std::string& text) { o.data = text; }},
      {"--model", "NAME", "airbench, resnet18 or resnet20 (default: airbench, cut to two epochs)",
       store(&O::model, choice, model_names())},
      {"--epochs", "N", "default: airbench 8, resnet18 15, resnet20 30", store(&O::epochs, whole, 1)},
      {"--batch-size", "N", "default: airbench 2000, ResNets 128", store(&O::batch_size, whole, 1)},
      {"--seed", "N", "default: 0", store(&O::seed, whole, 0)},
      {"--optimizer", "NAME", "airbench, sgd, adam, adamw or muon (default: airbench's own, ResNets sgd)",
       store(&O::optimizer, choice, kOptimizers)},
      {"--lr", "X", "peak learning rate (airbench: a factor on its rates)", store(&O::lr, any_real)},
      {"--momentum", "X", "of sgd and muon (default: 0.9)", store(&O::momentum, real, 1.0)},
      {"--weight-decay", "X", "", store(&O::weight_decay, any_real)},
      {"--schedule", "NAME", "onecycle, cosine, multistep, linear or constant: the learning rate over the whole run",
       store(&O::schedule, choice, kSchedules)},
      {"--label-smoothing", "X", "", store(&O::label_smoothing, real, 1.0)},
      {"--save", "FILE", "write a checkpoint after every epoch", store_text(&O::save)},
      {"--resume", "FILE", "go on from a checkpoint, bit for bit", store_text(&O::resume)},
      {"--stop-after", "EPOCH", "end early, after this epoch", store(&O::stop_after, whole, 1)},
      {"--threads", "N", "default: what the machine and its limits allow", store(&O::threads, whole, 1)},
      {"--workers", "N", "threads that prepare batches (default: 1)", store(&O::workers, whole, 0)},
      {"--train-size", "N", "use only so many training images", store(&O::train_size, whole, 1)},
      {"--test-size", "N", "use only so many test images", store(&O::test_size, whole, 1)},
      {"--report", "FILE", "write the result as JSON", store_text(&O::report)},
      {"--plot", "FILE", "write the curves as a picture (SVG)", store_text(&O::plot)},
      {"--no-sync-bn", "", "batch statistics of each rank alone, not of all together",
       [](O& o, const std::string&, const std::string&) { o.no_sync_bn = true; }},
      {"--quiet", "", "no progress bar", [](O& o, const std::string&, const std::string&) { o.quiet = true; }},
      {"--help", "", "this text", [](O& o, const std::string&, const std::string&) { o.help = true; }},
  };
  return list;
}
}  // namespace

Options parse_options(const std::vector<std::string>& arguments) {
  Options options;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    const size_t equals = argument.find('=');
    const std::string name = argument == "-h" ? "--help" : argument.substr(0, equals);
    const auto rule = std::find_if(rules().begin(), rules().end(), [&](const Rule& r) { return r.name == name; });
    if (rule == rules().end()) {
      std::vector<std::string_view> names;
      for (const Rule& r : rules()) names.push_back(r.name);
      fail<ValueError>("train", "unknown option '", name, "'.", anello::suggest(name, names));
    }
    std::string text;
    if (!rule->value.empty()) {
      const bool inside = equals != std::string::npos;
      check<ValueError>(inside || i + 1 < arguments.size(), "train", name, " needs a value: ", rule->value);
      text = inside ? argument.substr(equals + 1) : arguments[++i];
    }
    rule->set(options, name, text);
  }
  return options;
}

std::string usage() {
  std::string text = "Trains an image classifier on CIFAR-10.\n\n";
  for (const Rule& rule : rules()) {
    std::string line = "  " + std::string(rule.name) + " " + std::string(rule.value);
    line.resize(std::max<size_t>(line.size() + 1, 30), ' ');
    for (char c : rule.help) line += c == '\n' ? "\n" + std::string(30, ' ') : std::string(1, c);
    text += line + "\n";
  }
  return text;
}

void fill_defaults(Options& o) {
  const bool quick = !o.model;
  const auto fill = [](auto& option, auto value) {
    if (!option) option = value;
  };
  fill(o.model, "airbench");
  const bool airbench = *o.model == "airbench";
  fill(o.epochs, quick ? 2 : airbench ? 8 : *o.model == "resnet18" ? 15 : 30);
  fill(o.batch_size, quick ? 1000 : airbench ? 2000 : 128);
  fill(o.seed, 0);
  fill(o.momentum, 0.9);
  fill(o.optimizer, airbench ? "airbench" : "sgd");
  // airbench's own recipe, the ResNets' own, or the usual values of another optimizer.
  const bool own = *o.optimizer == "airbench";
  fill(o.schedule, airbench && own ? "linear" : "onecycle");
  fill(o.label_smoothing, airbench && own ? 0.2 : 0.1);
  const bool adam = *o.optimizer == "adam", adamw = *o.optimizer == "adamw", muon = *o.optimizer == "muon";
  fill(o.lr, own ? 1.0 : adam || adamw ? 0.002 : muon ? 0.02 : 0.2);
  fill(o.weight_decay, own ? 0.004 : adam ? 0.0 : adamw || muon ? 0.01 : 5e-4);
}

namespace {
/// Calls f(name, option) for every option that decides what is computed.
template <class O, class F>
void each_fixed(O& o, const F& f) {
  f("model", o.model);
  f("data", o.data);
  f("epochs", o.epochs);
  f("batch_size", o.batch_size);
  f("seed", o.seed);
  f("optimizer", o.optimizer);
  f("lr", o.lr);
  f("momentum", o.momentum);
  f("weight_decay", o.weight_decay);
  f("schedule", o.schedule);
  f("label_smoothing", o.label_smoothing);
}
}  // namespace

anello::State fixed_options(const Options& options) {
  anello::State state;
  each_fixed(options, [&](const char* name, const auto& option) { state.values[name] = option.value(); });
  return state;
}

void restore_options(Options& options, const anello::State& saved) {
  each_fixed(options, [&]<class T>(const std::string& name, std::optional<T>& option) {
    const T value = saved.get<T>(name);
    std::string spelled = "--" + name;
    std::replace(spelled.begin(), spelled.end(), '_', '-');
    check<ValueError>(!option || *option == value, "train", "the checkpoint was made with ", spelled, " ", value,
                      ", not ", option.value_or(value), ". Hint: leave ", spelled, " out.");
    option = value;
  });
}

}  // namespace cifar10
