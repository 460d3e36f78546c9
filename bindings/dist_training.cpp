// Training over several ranks: DataParallel's core, SyncBatchNorm, and collective functions that autograd records.
// Main entry: bind_data_parallel(), bind_collective_functions(), bind_dist_layers().
#include "bindings.h"
#include "dist.h"
#include "nn_module.h"

#include <anello/dist/data_parallel.h>
#include <anello/dist/functions.h>
#include <anello/dist/scaling.h>
#include <anello/dist/sync_batch_norm.h>

namespace anello::python {
namespace {

using dist::DataParallel;
using dist::DataParallelOptions;

/// One forward of the model; Python closes it.
struct PyForward {
  std::unique_ptr<DataParallel::Forward> forward;
};

struct PyNoSync {
  std::unique_ptr<DataParallel::NoSync> guard;
};

std::unique_ptr<DataParallel> make_data_parallel(const std::shared_ptr<nn::Module>& module,
                                                 const std::string& reduction, double bucket_mb, double first_bucket_mb,
                                                 const std::string& compression, const std::string& nonfinite,
                                                 int64_t check_every, const CommunicatorPtr& communicator) {
  constexpr double kMega = 1 << 20;
  DataParallelOptions options;
  options.reduction = choice<dist::GradReduction>(
      "DataParallel", "reduction", reduction, {{"mean", dist::GradReduction::mean}, {"sum", dist::GradReduction::sum}});
  options.buckets.bytes = static_cast<int64_t>(bucket_mb * kMega);
  options.buckets.first_bytes = static_cast<int64_t>(first_bucket_mb * kMega);
  options.buckets.compression = choice<dist::Compression>(
      "DataParallel", "compression", compression,
      {{"none", dist::Compression::none}, {"bf16", dist::Compression::bf16}, {"fp16", dist::Compression::fp16}});
  options.nonfinite = choice<dist::NonFinite>(
      "DataParallel", "treatment of NaN", nonfinite,
      {{"skip", dist::NonFinite::skip}, {"keep", dist::NonFinite::keep}, {"raise", dist::NonFinite::raise}});
  options.check_every = check_every;
  options.communicator = communicator;
  return std::make_unique<DataParallel>(module, options);
}

void bind_report(py::module_& m) {
  py::class_<dist::ReductionReport>(m, "ReductionReport",
                                    "What the last reduction of a DataParallel did; the same on every rank.")
      .def_readonly("step", &dist::ReductionReport::step, "Reductions so far.")
      .def_readonly("samples", &dist::ReductionReport::samples, "Samples of each rank; -1: it has joined.")
      .def_readonly("unused", &dist::ReductionReport::unused, "Names of the parameters that no rank used.")
      .def_readonly("nonfinite", &dist::ReductionReport::nonfinite,
                    "Gradients that were NaN or infinite, as \"'fc.weight' of rank 1\".")
      .def_readonly("skipped", &dist::ReductionReport::skipped, "True when the gradients were made None for that.")
      .def("__repr__", [](const dist::ReductionReport& r) {
        return concat("ReductionReport(step=", r.step, ", unused=", r.unused.size(), ", nonfinite=", r.nonfinite.size(),
                      ", skipped=", r.skipped ? "True" : "False", ")");
      });
}

auto sync_batch_norm_args(int64_t num_features, double eps, std::optional<double> momentum, bool affine,
                          bool track_running_stats, const CommunicatorPtr& communicator) {
  return std::make_tuple(num_features, nn::BatchNormOptions{eps, momentum, affine, track_running_stats}, communicator);
}

}  // namespace

void bind_data_parallel(py::module_& m) {
  bind_report(m);
  py::class_<PyForward>(m, "_Forward")
      .def(
          "output", [](const PyForward& self, const Tensor& y) { return self.forward->output(y); }, py::arg("y"))
      .def("close", [](PyForward& self) { self.forward.reset(); });
  py::class_<PyNoSync>(m, "_NoSync").def("close", [](PyNoSync& self) { self.guard.reset(); });
  py::class_<DataParallel>(m, "_DataParallel")
      .def(py::init([](const std::shared_ptr<nn::Module>& module, const std::string& reduction, double bucket_mb,
                       double first_bucket_mb, const std::string& compression, const std::string& nonfinite,
                       int64_t check_every, const CommunicatorPtr& communicator) {
             const GilRelease release;
             return make_data_parallel(module, reduction, bucket_mb, first_bucket_mb, compression, nonfinite,
                                       check_every, communicator);
           }),
           py::arg("module"), py::arg("reduction"), py::arg("bucket_mb"), py::arg("first_bucket_mb"),
           py::arg("compression"), py::arg("nonfinite"), py::arg("check_every"), py::arg("communicator"))
      .def(
          "forward",
          [](const DataParallel& self, int64_t samples) {
            return std::make_unique<PyForward>(PyForward{std::make_unique<DataParallel::Forward>(self, samples)});
          },
          py::arg("samples"))
      .def("no_sync",
           [](const DataParallel& self) {
             return std::make_unique<PyNoSync>(PyNoSync{std::make_unique<DataParallel::NoSync>(self)});
           })
      .def("set_samples", &DataParallel::set_samples, py::arg("samples"))
      .def(
          "join",
          [](DataParallel& self, const py::object& step) {
            std::function<void()> run;
            if (!step.is_none())
              run = [held = SharedObject(step)] {
                const GilAcquire gil;
                held.get()();
              };
            const GilRelease release;
            self.join(run);
          },
          py::arg("step"))
      .def_property_readonly("report", [](const DataParallel& self) { return self.report(); })
      .def("check_parameters", &DataParallel::check_parameters, NoGil())
      .def("broadcast_buffers", &DataParallel::broadcast_buffers, py::arg("root"), NoGil())
      .def_property_readonly("gradient_bytes", &DataParallel::gradient_bytes)
      .def_property_readonly("bucket_count", &DataParallel::bucket_count)
      .def_property_readonly("communicator", &DataParallel::communicator);
  m.def(
      "_scale_lr",
      [](optim::Optimizer& optimizer, int ranks, int64_t warmup_steps, const std::string& scaling) {
        const auto how = choice<dist::LrScaling>(
            "DataParallel", "scaling", scaling, {{"linear", dist::LrScaling::linear}, {"sqrt", dist::LrScaling::sqrt}});
        const optim::Warmup warmup = dist::scale_lr(optimizer, ranks, warmup_steps, how);
        return std::make_pair(warmup.steps, warmup.start_factor);
      },
      py::arg("optimizer"), py::arg("ranks"), py::arg("warmup_steps"), py::arg("scaling"));
}

void bind_dist_layers(py::module_& m) {
  auto layer = bind_layer<dist::SyncBatchNorm, nn::BatchNorm>(
      m, "SyncBatchNorm",
      R"(Batch normalisation of input [N, ..., num_features] whose statistics in training are those of all ranks'
samples together: forward and backward equal one process with the whole batch. Options as in nn.BatchNorm2d.
SyncBatchNorm.convert(module) makes the layers of a network do so.

>>> import anello
>>> bn = anello.dist.SyncBatchNorm(3)
>>> bn(anello.randn(2, 4, 4, 3)).shape
(2, 4, 4, 3)
)",
      sync_batch_norm_args, py::arg("num_features"), py::arg("eps") = 1e-5, py::arg("momentum") = 0.1,
      py::arg("affine") = true, py::arg("track_running_stats") = true, py::arg("communicator") = CommunicatorPtr());
  layer.def_static(
      "convert",
      [](const py::object& module, const CommunicatorPtr& communicator) {
        dist::SyncBatchNorm::convert(module.cast<nn::Module&>(), communicator);
        return module;
      },
      py::arg("module"), py::arg("communicator") = CommunicatorPtr(),
      R"(Makes every batch normalisation layer in `module` use the statistics of all ranks in training; returns the
module. The layers stay the objects they are.

>>> import anello
>>> from anello import nn
>>> net = anello.dist.SyncBatchNorm.convert(nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)))
>>> net(anello.randn(8, 4)).shape
(8, 3)
)");
}

void bind_collective_functions(py::module_& m) {
  const py::arg_v group = py::arg("communicator") = CommunicatorPtr();
  const py::arg_v name = py::arg("name") = "";
  m.def(
      "all_reduce",
      [](const Tensor& x, const std::string& op, const CommunicatorPtr& c, const std::string& n) {
        return dist::all_reduce(*group_or_world(c), x, reduce_op_from_name(op), n);
      },
      py::arg("x"), py::arg("op") = "sum", group, name, NoGil(),
      R"(The reduction of x over the ranks, as a new tensor. Gradient: the same reduction of the ranks' gradients for
'sum' and 'average'; for 'min' and 'max' it goes to the elements that were chosen; 'product' has none and raises.

>>> import anello
>>> x = anello.ones(2, requires_grad=True)
>>> anello.dist.functional.all_reduce(x, "average").sum().backward()
>>> x.grad.tolist()
[1.0, 1.0]
)");
  m.def(
      "all_gather",
      [](const Tensor& x, const CommunicatorPtr& c, const std::string& n) {
        return dist::all_gather(*group_or_world(c), x, n);
      },
      py::arg("x"), group, name, NoGil(),
      R"(The ranks' tensors, concatenated along dim 0. Gradient: this rank's rows of the sum over ranks.

>>> import anello
>>> x = anello.ones(1, 2, requires_grad=True)
>>> anello.dist.functional.all_gather(x).sum().backward()
>>> x.grad.shape
(1, 2)
)");
  m.def(
      "broadcast",
      [](const Tensor& x, int root, const CommunicatorPtr& c, const std::string& n) {
        return dist::broadcast(*group_or_world(c), x, root, n);
      },
      py::arg("x"), py::arg("root") = 0, group, name, NoGil(),
      R"(Root's tensor. Gradient: the sum of the ranks' gradients at root, zero elsewhere.

>>> import anello
>>> anello.dist.functional.broadcast(anello.ones(2)).tolist()
[1.0, 1.0]
)");
  m.def(
      "reduce_scatter",
      [](const Tensor& x, const std::string& op, const CommunicatorPtr& c, const std::string& n) {
        return dist::reduce_scatter(*group_or_world(c), x, reduce_op_from_name(op), n);
      },
      py::arg("x"), py::arg("op") = "sum", group, name, NoGil(),
      R"(This rank's rows of the sum or average over ranks. Gradient: the ranks' gradients gathered.

>>> import anello
>>> anello.dist.functional.reduce_scatter(anello.ones(4, 2)).shape[1]
2
)");
  m.def(
      "all_to_all",
      [](const Tensor& x, const std::vector<int64_t>& counts, const CommunicatorPtr& c, const std::string& n) {
        return dist::all_to_all(*group_or_world(c), x, counts, n);
      },
      py::arg("x"), py::arg("counts") = std::vector<int64_t>(), group, name, NoGil(),
      R"(Blocks of rows to the ranks in order, counts[r] to rank r (evenly without). Gradient: the rows travel back.

>>> import anello
>>> anello.dist.functional.all_to_all(anello.zeros(anello.dist.size(), 2)).shape[1]
2
)");
}

}  // namespace anello::python
