// Data sets and the loader as Python classes.
// Main entry: bind_data().
#include "bindings.h"
#include "state.h"
#include "tensor_type.h"

#include <anello/autograd/functions.h>
#include <anello/datasets/augment.h>
#include <anello/datasets/cifar10.h>
#include <anello/datasets/loader.h>
#include <anello/datasets/synthetic.h>

#include <atomic>
#include <limits>
#include <set>

namespace anello::python {
namespace {

using data::Augmentation;
using data::DataLoader;
using data::ImageDataset;
using data::ImageSplits;
using data::TensorDataset;

// --- Data sets ---

template <class Set>
int64_t checked_place(const Set& set, int64_t index) {
  const int64_t size = set.size();
  check<IndexError>(index >= -size && index < size, "dataset", "sample ", index, " of ", size);
  return index < 0 ? index + size : index;
}

void bind_image_dataset(py::module_& m) {
  py::class_<ImageDataset>(m, "ImageDataset", R"(Labelled images of one size, whole in memory: images uint8 [count,
height, width, channels], labels int64 [count], names of the classes, mean and stddev of each channel (of pixels
scaled to 0..1). dataset[i] is (image, label).

>>> import anello
>>> images = anello.zeros(4, 8, 8, 3, dtype=anello.uint8)
>>> dataset = anello.data.ImageDataset(images, anello.tensor([0, 1, 0, 1]), ["cat", "dog"])
>>> len(dataset), len(dataset.slice(1, 3))
(4, 2)
)")
      .def(py::init([](const Tensor& images, const Tensor& labels, const std::vector<std::string>& class_names,
                       const std::vector<double>& mean, const std::vector<double>& stddev) {
             ImageDataset made{contiguous_data(images), contiguous_data(labels), class_names, mean, stddev};
             made.validate("ImageDataset");
             return made;
           }),
           py::arg("images"), py::arg("labels"), py::arg("class_names") = std::vector<std::string>(),
           py::arg("mean") = std::vector<double>(), py::arg("stddev") = std::vector<double>())
      .def_readonly("images", &ImageDataset::images, "uint8 [count, height, width, channels].")
      .def_readonly("labels", &ImageDataset::labels, "int64 [count].")
      .def_readonly("class_names", &ImageDataset::class_names, "The name of each label; may be empty.")
      .def_readonly("mean", &ImageDataset::mean, "Of each channel, of pixels scaled to 0..1; empty: unknown.")
      .def_readonly("stddev", &ImageDataset::stddev, "Of each channel, of pixels scaled to 0..1; empty: unknown.")
      .def("__len__", &ImageDataset::size)
      .def(
          "__getitem__",
          [](const ImageDataset& self, int64_t index) {
            const int64_t i = checked_place(self, index);
            return py::make_tuple(select(self.images, 0, i), select(self.labels, 0, i));
          },
          py::arg("index"))
      .def("slice", &ImageDataset::slice, py::arg("begin"), py::arg("end"),
           "Images [begin, end), without a copy. Raises IndexError outside.")
      .def("subset", &ImageDataset::subset, py::arg("indices"), NoGil(),
           "Copies of the images at these indices. Raises IndexError outside.")
      .def("__repr__", [](const ImageDataset& self) {
        return concat("ImageDataset(", self.size(), " images ", self.images.shape(), ", ", self.class_names.size(),
                      " classes)");
      });
  py::class_<ImageSplits>(m, "ImageSplits",
                          "A training and a test set: `train, test = splits`, or splits.train and splits.test.")
      .def_readonly("train", &ImageSplits::train, "The training set.")
      .def_readonly("test", &ImageSplits::test, "The test set.")
      .def("__iter__", [](const ImageSplits& self) { return py::iter(py::make_tuple(self.train, self.test)); });
  py::class_<TensorDataset>(m, "TensorDataset", R"(Samples of any kind: row i of `features` belongs to row i of
`labels`.

>>> import anello
>>> dataset = anello.data.TensorDataset(anello.randn(6, 3), anello.arange(6))
>>> len(dataset), dataset[5][1].item()
(6, 5)
)")
      .def(py::init([](const Tensor& features, const Tensor& labels) {
             check<ShapeError>(features.dim() > 0 && labels.dim() > 0 && features.size(0) == labels.size(0),
                               "TensorDataset", "features ", features.shape(), " and labels ", labels.shape(),
                               " have different first sizes");
             return TensorDataset{features, labels};
           }),
           py::arg("features"), py::arg("labels"))
      .def_readonly("features", &TensorDataset::features, "The inputs.")
      .def_readonly("labels", &TensorDataset::labels, "The targets.")
      .def("__len__", &TensorDataset::size)
      .def(
          "__getitem__",
          [](const TensorDataset& self, int64_t index) {
            const int64_t i = checked_place(self, index);
            return py::make_tuple(select(self.features, 0, i), select(self.labels, 0, i));
          },
          py::arg("index"));
}

void bind_sources(py::module_& m) {
  m.def(
      "synthetic",
      [](int64_t train_count, int64_t test_count, const py::int_& seed) {
        const uint64_t bits = seed_from("synthetic", seed);
        const GilRelease release;
        return data::synthetic(train_count, test_count, bits);
      },
      py::arg("train_count") = 50000, py::arg("test_count") = 10000, py::arg("seed") = 0,
      R"(A made-up set of 32x32 colour images in 10 classes that needs no file: discs, rings, stripes, ... at random
places. Image i depends on (seed, i) alone and is the same on every machine.

>>> import anello
>>> train, test = anello.data.synthetic(100, 20)
>>> train.images.shape, len(test)
((100, 32, 32, 3), 20)
)");
  m.def(
      "load_cifar10",
      [](const py::object& path, const std::string& verify) {
        const std::string name = path_of("load_cifar10", path);
        check<ValueError>(verify == "automatic" || verify == "always" || verify == "never", "load_cifar10",
                          "verify is '", verify, "'. Hint: 'automatic', 'always' or 'never'.");
        const GilRelease release;
        return data::load_cifar10(name, verify == "always"  ? data::Verify::always
                                        : verify == "never" ? data::Verify::never
                                                            : data::Verify::automatic);
      },
      py::arg("path"), py::arg("verify") = "automatic",
      R"(CIFAR-10 (binary version) as (train, test): 50,000 and 10,000 images [32, 32, 3] in official order. `path`:
the folder cifar-10-batches-bin, the one above it, cifar-10-binary.tar.gz, or the folder that holds it. verify:
whether SHA-256 must match; 'automatic' checks an archive's members. Raises IoError that names the file and what is
wrong with it.

>>> import anello
>>> try:
...     anello.data.load_cifar10("/nowhere")
... except OSError as error:
...     print("/nowhere" in str(error))
True
)");
  m.def(
      "_download_cifar10",
      [](const py::object& cache, const py::object& progress, const std::vector<std::string>& fetcher) -> py::str {
        const std::string cache_dir = path_of("download_cifar10", cache);
        data::Progress report;
        if (!progress.is_none())
          report = [held = SharedObject(progress)](int64_t done, int64_t total) {
            const GilAcquire gil;
            held.get()(done, total);
          };
        std::string archive;
        {
          const GilRelease release;
          archive = data::download_cifar10(cache_dir, report, fetcher);
        }
        return path_object(archive);
      },
      py::arg("cache_dir"), py::arg("progress"), py::arg("fetcher"),
      "Downloads the archive; see anello.data.download_cifar10().");
  m.def(
      "cache_dir", []() -> py::str { return path_object(data::cache_dir()); },
      R"(Where downloads go: $ANELLO_CACHE, else $XDG_CACHE_HOME/anello, else
~/.cache/anello.

>>> import anello
>>> isinstance(anello.data.cache_dir(), str)
True
)");
  m.def(
      "channel_stats",
      [](const Tensor& images) {
        const data::ChannelStats stats = data::channel_stats(contiguous_data(images));
        return std::make_pair(stats.mean, stats.stddev);
      },
      py::arg("images"), R"((mean, stddev) of each channel of uint8 images [..., channels], of pixels scaled to 0..1.

>>> import anello
>>> anello.data.channel_stats(anello.full((2, 4, 4, 1), 255, dtype=anello.uint8))
([1.0], [0.0])
)");
  m.def("normalize_images", &data::normalize_images, py::arg("images"), py::arg("mean"), py::arg("stddev"),
        py::arg("dtype") = float32, NoGil(),
        R"((pixel / 255 - mean) / stddev of a whole uint8 [n, height, width, channels] tensor.

>>> import anello
>>> images = anello.full((1, 1, 1, 1), 255, dtype=anello.uint8)
>>> anello.data.normalize_images(images, [0.5], [0.25]).item()
2.0
)");
}

void bind_augmentation(py::module_& m) {
  py::class_<Augmentation>(m, "Augmentation", R"(What happens to each training image, in this order: pad by
crop_padding ('reflect' or 'zero') and cut out the old size at a random place; flip ('none', 'random', or
'alternating': mirrored in every other epoch); normalise with mean and stddev (those of the data set, unless given);
cutout, the side of a square that gets the mean colour. What is drawn for a sample depends on (seed, epoch, sample
index) alone.

>>> import anello
>>> anello.data.Augmentation(crop_padding=4, padding="zero", flip="random", cutout=8)
Augmentation(crop_padding=4, padding='zero', flip='random', cutout=8, normalize=True)
)")
      .def(py::init([](int crop_padding, const std::string& padding, const std::string& flip, int cutout,
                       bool normalize, const std::optional<std::vector<double>>& mean,
                       const std::optional<std::vector<double>>& stddev, DType dtype) {
             const Augmentation made{crop_padding,
                                     data::padding_from_name(padding),
                                     data::flip_from_name(flip),
                                     cutout,
                                     normalize,
                                     mean.value_or(std::vector<double>()),
                                     stddev.value_or(std::vector<double>()),
                                     dtype};
             made.validate();
             return made;
           }),
           py::kw_only(), py::arg("crop_padding") = 0, py::arg("padding") = "reflect", py::arg("flip") = "none",
           py::arg("cutout") = 0, py::arg("normalize") = true, py::arg("mean") = py::none(),
           py::arg("stddev") = py::none(), py::arg("dtype") = float32)
      .def_static("airbench", &Augmentation::airbench, "Reflecting crop of 2 and alternating flip (arXiv 2404.00498).")
      .def("__repr__", [](const Augmentation& a) {
        return concat("Augmentation(crop_padding=", a.crop_padding, ", padding='", data::name(a.padding), "', flip='",
                      data::name(a.flip), "', cutout=", a.cutout, ", normalize=", a.normalize ? "True" : "False", ")");
      });
}

// --- The loader ---

/// A loader and the loop that Python runs on it.
struct Loader {
  std::unique_ptr<DataLoader> loader;
  py::object dataset;
  uint64_t loop = 0;
  /// Tells workers in the middle of a batch of Python samples that nobody waits for it any more.
  std::shared_ptr<std::atomic<bool>> cancelled = std::make_shared<std::atomic<bool>>(false);

  ~Loader();
  /// Puts the loader elsewhere, which ends the loop: as with stop().
  template <class Move>
  void move(const Move& to) {
    cancelled->store(true);
    {
      const GilRelease release;
      to(*loader);
    }
    cancelled->store(false);
  }
  /// Ends a loop. Workers may be waiting for the GIL: it is given away while they are joined.
  void stop(uint64_t number) {
    if (number == loop) cancelled->store(true);
    const GilRelease release;
    loader->stop(number);
  }
};

/// Loaders whose workers run Python code: they must have stopped before the interpreter goes.
std::set<Loader*>& python_loaders() {
  static auto* const instance = new std::set<Loader*>;  // under the GIL
  return *instance;
}

Loader::~Loader() {
  python_loaders().erase(this);
  cancelled->store(true);
  const GilRelease release;
  loader.reset();
}

/// Samples of a Python object with __len__ and __getitem__, stacked.
data::BatchFunction python_samples(const py::object& dataset, const std::shared_ptr<std::atomic<bool>>& cancelled) {
  return [held = SharedObject(dataset), cancelled](const data::BatchRequest& request) {
    const GilAcquire gil;
    py::list inputs, labels;
    const uint64_t interrupts = interrupt_count();
    // An empty batch has the shapes and dtypes that samples have.
    const bool empty = request.indices.empty();
    for (int64_t index : empty ? std::vector<int64_t>{0} : request.indices) {
      check(!cancelled->load() && interrupt_count() == interrupts, "DataLoader", "the loop was left");
      const py::object sample = held.get()[py::int_(index)];
      check<DTypeError>((py::isinstance<py::tuple>(sample) || py::isinstance<py::list>(sample)) && py::len(sample) == 2,
                        "DataLoader", "sample ", index, " of the data set is no pair (input, label) but a ",
                        Py_TYPE(sample.ptr())->tp_name);
      inputs.append(py::object(sample[py::int_(0)]));
      labels.append(py::object(sample[py::int_(1)]));
    }
    const Tensor x = tensor_from_data(inputs.ptr(), std::nullopt), y = tensor_from_data(labels.ptr(), std::nullopt);
    if (empty) return data::Batch{slice(x, 0, 0, 0), slice(y, 0, 0, 0), {}};
    return data::Batch{x, y, {}};
  };
}

std::unique_ptr<Loader> make_loader(const py::object& dataset, int64_t batch_size, bool shuffle,
                                    const std::optional<Augmentation>& augmentation, bool drop_last,
                                    std::optional<int> workers, std::optional<int> num_workers, int prefetch,
                                    const py::int_& seed, int rank, int size) {
  check<ValueError>(!workers || !num_workers, "DataLoader", "workers is ", workers.value_or(0), " and num_workers ",
                    num_workers.value_or(0), ": two names of one option. Hint: give one.");
  const data::LoaderOptions options{batch_size, shuffle,
                                    drop_last,  workers ? *workers : num_workers.value_or(1),
                                    prefetch,   seed_from("DataLoader", seed),
                                    rank,       size};
  auto made = std::make_unique<Loader>();
  made->dataset = dataset;
  const bool images = py::isinstance<ImageDataset>(dataset);
  check<ValueError>(images || !augmentation, "DataLoader", "augmentation is for an ImageDataset, this is a ",
                    Py_TYPE(dataset.ptr())->tp_name);
  if (images) {
    made->loader = std::make_unique<DataLoader>(dataset.cast<const ImageDataset&>(), options,
                                                augmentation.value_or(Augmentation()));
  } else if (py::isinstance<TensorDataset>(dataset)) {
    made->loader = std::make_unique<DataLoader>(dataset.cast<const TensorDataset&>(), options);
  } else {
    check<DTypeError>(py::hasattr(dataset, "__len__") && py::hasattr(dataset, "__getitem__"), "DataLoader",
                      "a data set has __len__ and __getitem__, a ", Py_TYPE(dataset.ptr())->tp_name, " has not");
    made->loader = std::make_unique<DataLoader>(static_cast<int64_t>(py::len(dataset)),
                                                python_samples(dataset, made->cancelled), options);
    python_loaders().insert(made.get());
  }
  return made;
}

data::LoaderState loader_state(const py::dict& state) {
  const char* op = "DataLoader.load_state_dict";
  const auto entry = [&](const char* name) {
    check<ValueError>(state.contains(name), op, "the state has no value '", name,
                      "'. Hint: pass what state_dict() gave.");
    const py::object value = state[name];
    check<TypeError>(py::isinstance<py::int_>(value), op, "'", name, "' is an integer, got ", told(value), '.');
    return py::reinterpret_borrow<py::int_>(value);
  };
  const auto count = [&](const char* name) {
    const py::int_ value = entry(name);
    const bool fits = value >= py::int_(0) && value <= py::int_(std::numeric_limits<int64_t>::max());
    check<ValueError>(fits, op, "'", name, "' is ", std::string(py::repr(value)),
                      ". Hint: pass what state_dict() gave.");
    return value.cast<int64_t>();
  };
  return {seed_from(op, entry("seed")), static_cast<uint64_t>(count("epoch")), count("position"), count("count")};
}

/// One epoch.
struct Loop {
  Loop(std::shared_ptr<Loader> loader, uint64_t loop) : owner(std::move(loader)), number(loop) {}
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;
  std::shared_ptr<Loader> owner;
  uint64_t number;
  ~Loop() {
    try {
      owner->stop(number);
    } catch (...) {  // another thread is in the loader: the loop is its business now
    }
  }
};

py::tuple next_batch(const Loop& loop) {
  std::optional<data::Batch> batch;
  {
    const GilRelease release;
    batch = loop.owner->loader->next(loop.number);
  }
  if (!batch) throw py::stop_iteration();
  return py::make_tuple(batch->inputs, batch->labels);
}

constexpr const char* kLoaderDoc = R"(Batches (inputs, labels) of a data set, made ahead by C++ threads. Each `for`
loop is one epoch, in a new order when shuffle is set; the order, and what augmentation does to a sample, depend on
(seed, epoch, sample) alone, so that any number of workers gives the same batches.

dataset: an ImageDataset (batches are float images, augmented and normalised), a TensorDataset, or any object with
__len__ and __getitem__ that gives pairs. workers: threads (default 1; 0: the caller makes its batches itself;
num_workers is the same); prefetch: batches made ahead; drop_last: leave out a last batch that is not full; rank and size: this process's
share (anello.dist.rank() and size()): the ranks' shares are disjoint and together the whole set, batch_size is that of
one rank, and all have as many batches, the last of which may be empty on some.

>>> import anello
>>> train, test = anello.data.synthetic(100, 20)
>>> loader = anello.data.DataLoader(train, batch_size=32, shuffle=True)
>>> len(loader)
4
>>> x, y = next(iter(loader))
>>> x.shape, x.dtype, y.shape
((32, 32, 32, 3), anello.float32, (32,))
)";

void bind_loader(py::module_& m) {
  py::class_<Loop>(m, "_LoaderLoop", "One epoch of a DataLoader.")
      .def("__iter__", [](const py::object& self) { return self; })
      .def("__next__", next_batch)
      .def("__length_hint__", [](const Loop& loop) { return loop.owner->loader->batches(); });
  py::class_<Loader, std::shared_ptr<Loader>>(m, "DataLoader", kLoaderDoc)
      .def(py::init(&make_loader), py::arg("dataset"), py::arg("batch_size") = 1, py::arg("shuffle") = false,
           py::kw_only(), py::arg("augmentation") = py::none(), py::arg("drop_last") = false,
           py::arg("workers") = py::none(), py::arg("num_workers") = py::none(), py::arg("prefetch") = 2,
           py::arg("seed") = 0, py::arg("rank") = 0, py::arg("size") = 1)
      .def("__len__", [](const Loader& self) { return self.loader->batches(); })
      .def("__iter__",
           [](const std::shared_ptr<Loader>& self) {
             self->cancelled->store(true);  // for the workers of a loop before
             {
               const GilRelease release;
               self->loop = self->loader->start();
             }
             self->cancelled->store(false);
             return std::make_unique<Loop>(self, self->loop);
           })
      .def_property_readonly(
          "dataset", [](const Loader& self) { return self.dataset; }, "What the batches are of.")
      .def_property_readonly(
          "batch_size", [](const Loader& self) { return self.loader->options().batch_size; }, "Samples a batch.")
      .def_property_readonly(
          "epoch", [](const Loader& self) { return self.loader->epoch(); },
          "The epoch of the running loop, or of the last one.")
      .def(
          "set_epoch", [](Loader& self, uint64_t epoch) { self.move([epoch](DataLoader& l) { l.set_epoch(epoch); }); },
          py::arg("epoch"), "The next loop begins this epoch, from its start.")
      .def(
          "state_dict",
          [](const Loader& self) {
            const data::LoaderState state = self.loader->state();
            py::dict dict;
            dict["seed"] = state.seed;
            dict["epoch"] = state.epoch;
            dict["position"] = state.position;
            dict["count"] = state.count;
            return dict;
          },
          "Where the loader stands, also in the middle of an epoch, for save_checkpoint().")
      .def(
          "load_state_dict",
          [](Loader& self, const py::dict& state) {
            const data::LoaderState to = loader_state(state);
            self.move([&to](DataLoader& l) { l.set_state(to); });
          },
          py::arg("state_dict"),
          "The next loop goes on from there, bit for bit. Raises ValueError for a state of another data set.");
  py::module_::import("atexit").attr("register")(py::cpp_function([] {
    for (Loader* loader : python_loaders()) loader->stop(loader->loop);
  }));
}

}  // namespace

void bind_data(py::module_& m) {
  bind_image_dataset(m);
  bind_sources(m);
  bind_augmentation(m);
  bind_loader(m);
}

}  // namespace anello::python
