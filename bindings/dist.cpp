// Groups of ranks as Python objects.
// Main entry: bind_communicator().
#include "dist.h"

#include "bindings.h"

namespace anello::python {

using dist::CollectiveOptions;
using dist::Communicator;
using dist::ReduceOp;

ReduceOp reduce_op_from_name(const std::string& name) {
  return choice<ReduceOp>("anello.dist", "reduction", name,
                          {{"sum", ReduceOp::sum},
                           {"average", ReduceOp::average},
                           {"min", ReduceOp::min},
                           {"max", ReduceOp::max},
                           {"product", ReduceOp::product}});
}

CommunicatorPtr group_or_world(const CommunicatorPtr& communicator) {
  return communicator != nullptr ? communicator : dist::world();
}

namespace {

/// An operation under way and the tensor it gives. The tensor lives until the operation has ended, also when Python has
/// let both go.
struct PyWork {
  dist::Work work;
  std::shared_ptr<Tensor> output;
};

CollectiveOptions options(const std::string& name, double prescale = 1, double postscale = 1) {
  CollectiveOptions made;
  made.name = name;
  made.prescale = prescale;
  made.postscale = postscale;
  return made;
}

/// Starts an operation that gives a new tensor.
template <class F>
PyWork start(const F& f) {
  PyWork made{{}, std::make_shared<Tensor>()};
  made.work = f(*made.output);
  made.work.then([output = made.output] {});
  return made;
}

void bind_work(py::module_& m) {
  py::class_<PyWork>(m, "Work", R"(An operation under way. Letting it go does not end the operation.

>>> import anello
>>> work = anello.dist.world().all_reduce_async(anello.ones(2))
>>> work.wait()
>>> work.test()
True
)")
      .def(
          "test", [](const PyWork& self) { return self.work.test(); }, NoGil(),
          "True when it is done or has failed; never blocks.")
      .def(
          "wait",
          [](const PyWork& self) -> std::optional<Tensor> {
            self.work.wait();
            return self.output != nullptr ? std::optional(*self.output) : std::nullopt;
          },
          NoGil(),
          "Blocks until it is done and returns the new tensor, if the operation gives one. Raises DistError when it "
          "failed. Ctrl-C ends the wait.")
      .def(
          "then",
          [](const PyWork& self, const py::function& function) {
            const SharedObject held(function);
            const GilRelease release;
            self.work.then([held] {
              const GilAcquire gil;
              try {
                held.get()();
              } catch (py::error_already_set& e) {
                e.discard_as_unraisable("anello.dist.Work.then");
              }
            });
          },
          py::arg("function"),
          "Calls function() when it is done, on the communication thread: keep it short. At once when it is done "
          "already.");
}

using Group = py::class_<Communicator, CommunicatorPtr>;

void bind_facts(Group& group) {
  group.def("rank", &Communicator::rank, "This process's number in the group, from 0.")
      .def("size", &Communicator::size, "Number of ranks.")
      .def("local_rank", &Communicator::local_rank, "This rank's number among those on its machine.")
      .def("local_size", &Communicator::local_size, "Number of ranks on this machine.")
      .def("host", &Communicator::host, "This machine's number, from 0.")
      .def("hosts", &Communicator::hosts, "Number of machines.")
      .def("transport_name", &Communicator::transport_name, "What carries the messages: 'local', 'mpi (...)'.")
      .def_property("stall_timeout", &Communicator::stall_timeout, &Communicator::set_stall_timeout,
                    "Seconds without progress after which a waiting rank asks the others and raises DistError; 0: "
                    "never. Default 60, or ANELLO_STALL_TIMEOUT.")
      .def("abort", &Communicator::abort, py::arg("reason"), NoGil(),
           "Makes every rank's current and later calls raise DistError with this reason. Not collective; never blocks.")
      .def("barrier", &Communicator::barrier, NoGil(), "Returns when every rank has called it.")
      .def("split", &Communicator::split, py::arg("color"), py::arg("key") = 0, NoGil(),
           R"(A group of the ranks that gave the same color, ordered by (key, rank); None for a negative color.
Collective.

>>> import anello
>>> anello.dist.world().split(color=anello.dist.rank() % 2).size() >= 1
True
)")
      .def("allocate_shared", &Communicator::allocate_shared, py::arg("numel"), py::arg("dtype") = float32, NoGil(),
           R"(A 1-d tensor in memory that the ranks of a host can read in place, so that all_reduce of it (or of a
contiguous view) copies nothing. Collective.

>>> import anello
>>> anello.dist.world().allocate_shared(1000).shape
(1000,)
)")
      .def("__repr__", [](const Communicator& self) {
        return concat("Communicator(rank ", self.rank(), " of ", self.size(), ", ", self.transport_name(), ")");
      });
}

void bind_in_place(Group& group) {
  group
      .def(
          "all_reduce",
          [](Communicator& self, const Tensor& tensor, const std::string& op, const std::string& name, double prescale,
             double postscale) {
            self.all_reduce(tensor, reduce_op_from_name(op), options(name, prescale, postscale));
          },
          py::arg("tensor"), py::arg("op") = "sum", py::kw_only(), py::arg("name") = "", py::arg("prescale") = 1.0,
          py::arg("postscale") = 1.0, NoGil(),
          R"(Reduces a tensor over the ranks, in place: every rank gets the same bits. op: 'sum', 'average', 'min',
'max' or 'product'. 16-bit floats are added in float32 and rounded once. name matches operations that the ranks start
in different orders, and stands in every error. prescale multiplies each rank's values, postscale the result.

>>> import anello
>>> x = anello.ones(3)
>>> anello.dist.world().all_reduce(x, "average")
>>> x.tolist()
[1.0, 1.0, 1.0]
)")
      .def(
          "all_reduce_async",
          [](Communicator& self, const Tensor& tensor, const std::string& op, const std::string& name, double prescale,
             double postscale) {
            return PyWork{self.all_reduce_async(tensor, reduce_op_from_name(op), options(name, prescale, postscale)),
                          nullptr};
          },
          py::arg("tensor"), py::arg("op") = "sum", py::kw_only(), py::arg("name") = "", py::arg("prescale") = 1.0,
          py::arg("postscale") = 1.0, NoGil(), "all_reduce() that returns a Work at once.")
      .def(
          "broadcast",
          [](Communicator& self, const Tensor& tensor, int root, const std::string& name) {
            self.broadcast(tensor, root, options(name));
          },
          py::arg("tensor"), py::arg("root") = 0, py::kw_only(), py::arg("name") = "", NoGil(),
          R"(Root's values arrive in every rank's tensor, in place.

>>> import anello
>>> x = anello.arange(3)
>>> anello.dist.world().broadcast(x, root=0)
>>> x.tolist()
[0, 1, 2]
)")
      .def(
          "broadcast_async",
          [](Communicator& self, const Tensor& tensor, int root, const std::string& name) {
            return PyWork{self.broadcast_async(tensor, root, options(name)), nullptr};
          },
          py::arg("tensor"), py::arg("root") = 0, py::kw_only(), py::arg("name") = "", NoGil(),
          "broadcast() that returns a Work at once.")
      .def("send", &Communicator::send, py::arg("tensor"), py::arg("to"), py::arg("tag") = 0, NoGil(),
           "Sends a tensor to a rank that calls recv() with the same shape, dtype and tag.")
      .def("recv", &Communicator::recv, py::arg("into"), py::arg("from_"), py::arg("tag") = 0, NoGil(),
           "Receives what rank from_ sends, in place.")
      .def(
          "send_async",
          [](Communicator& self, const Tensor& tensor, int to, int tag) {
            return PyWork{self.send_async(tensor, to, tag), nullptr};
          },
          py::arg("tensor"), py::arg("to"), py::arg("tag") = 0, NoGil(), "send() that returns a Work at once.")
      .def(
          "recv_async",
          [](Communicator& self, const Tensor& into, int from, int tag) {
            return PyWork{self.recv_async(into, from, tag), nullptr};
          },
          py::arg("into"), py::arg("from_"), py::arg("tag") = 0, NoGil(), "recv() that returns a Work at once.");
}

void bind_new_tensors(Group& group) {
  group
      .def(
          "reduce_scatter",
          [](Communicator& self, const Tensor& tensor, const std::string& op, const std::string& name) {
            return self.reduce_scatter(tensor, reduce_op_from_name(op), options(name));
          },
          py::arg("tensor"), py::arg("op") = "sum", py::kw_only(), py::arg("name") = "", NoGil(),
          R"(This rank's rows of the reduction: an even share of dim 0, the first ranks one row more.

>>> import anello
>>> anello.dist.world().reduce_scatter(anello.ones(4, 2)).shape[1]
2
)")
      .def(
          "reduce_scatter_async",
          [](Communicator& self, const Tensor& tensor, const std::string& op, const std::string& name) {
            return start([&](Tensor& output) {
              return self.reduce_scatter_async(output, tensor, reduce_op_from_name(op), options(name));
            });
          },
          py::arg("tensor"), py::arg("op") = "sum", py::kw_only(), py::arg("name") = "", NoGil(),
          "reduce_scatter() that returns a Work at once; its wait() gives the tensor.")
      .def(
          "all_gather",
          [](Communicator& self, const Tensor& tensor, const std::string& name) {
            return self.all_gather(tensor, options(name));
          },
          py::arg("tensor"), py::kw_only(), py::arg("name") = "", NoGil(),
          R"(The tensors of all ranks, concatenated along dim 0, whose size may differ between ranks.

>>> import anello
>>> anello.dist.world().all_gather(anello.ones(1, 2)).shape == (anello.dist.size(), 2)
True
)")
      .def(
          "all_gather_async",
          [](Communicator& self, const Tensor& tensor, const std::string& name) {
            return start([&](Tensor& output) { return self.all_gather_async(output, tensor, options(name)); });
          },
          py::arg("tensor"), py::kw_only(), py::arg("name") = "", NoGil(),
          "all_gather() that returns a Work at once; its wait() gives the tensor.")
      .def(
          "all_to_all",
          [](Communicator& self, const Tensor& tensor, const std::vector<int64_t>& counts, const std::string& name) {
            return self.all_to_all(tensor, counts, options(name));
          },
          py::arg("tensor"), py::arg("counts") = std::vector<int64_t>(), py::kw_only(), py::arg("name") = "", NoGil(),
          R"(Blocks of rows go to the ranks in order, counts[r] rows to rank r (evenly without counts); what the ranks
sent here comes back, in their order.

>>> import anello
>>> anello.dist.world().all_to_all(anello.zeros(anello.dist.size(), 2)).shape[1]
2
)")
      .def(
          "all_to_all_async",
          [](Communicator& self, const Tensor& tensor, const std::vector<int64_t>& counts, const std::string& name) {
            return start([&](Tensor& output) { return self.all_to_all_async(output, tensor, counts, options(name)); });
          },
          py::arg("tensor"), py::arg("counts") = std::vector<int64_t>(), py::kw_only(), py::arg("name") = "", NoGil(),
          "all_to_all() that returns a Work at once; its wait() gives the tensor.")
      .def(
          "gather",
          [](Communicator& self, const Tensor& tensor, int root, const std::string& name) {
            return self.gather(tensor, root, options(name));
          },
          py::arg("tensor"), py::arg("root") = 0, py::kw_only(), py::arg("name") = "", NoGil(),
          R"(On root a list of the tensors of all ranks (shapes may differ), elsewhere an empty list.

>>> import anello
>>> len(anello.dist.world().gather(anello.ones(2))) in (0, anello.dist.size())
True
)")
      .def(
          "scatter",
          [](Communicator& self, const std::vector<Tensor>& tensors, int root, const std::string& name) {
            return self.scatter(tensors, root, options(name));
          },
          py::arg("tensors"), py::arg("root") = 0, py::kw_only(), py::arg("name") = "", NoGil(),
          R"(Root's tensors[r] arrives at rank r; elsewhere the list is empty.

>>> import anello
>>> comm = anello.dist.world()
>>> comm.scatter([anello.ones(2)] * comm.size() if comm.rank() == 0 else []).tolist()
[1.0, 1.0]
)")
      .def(
          "_broadcast_bytes",
          [](Communicator& self, const std::string& bytes, int root) {
            std::string got;
            {
              const GilRelease release;
              got = self.broadcast_bytes(bytes, root);
            }
            return py::bytes(got);
          },
          py::arg("bytes"), py::arg("root") = 0)
      .def(
          "_all_gather_bytes",
          [](Communicator& self, const std::string& bytes) {
            std::vector<std::string> got;
            {
              const GilRelease release;
              got = self.all_gather_bytes(bytes);
            }
            py::list list;
            for (const std::string& one : got) list.append(py::bytes(one));
            return list;
          },
          py::arg("bytes"));
}

/// A fact of the group of all ranks that a process alone knows without starting anything.
template <class F>
auto fact(const F& of, int alone) {
  return [of, alone] {
    const GilRelease release;
    return dist::launched() ? ((*dist::world()).*of)() : alone;
  };
}

void bind_world(py::module_& m) {
  m.def("world", &dist::world, NoGil(), R"(The group of all ranks of this job, made at the first call (collective): from
MPI when mpirun, srun or `anello run` started this process, else of one rank, in which everything works too. Raises
DistError when it was started as one of several ranks without a usable MPI.

>>> import anello
>>> anello.dist.world().size() >= 1
True
)");
  m.def("launched", &dist::launched, R"(Whether this process was started as one of several ranks; starts nothing.

>>> import anello
>>> anello.dist.launched() in (True, False)
True
)");
  m.def("shutdown", &dist::shutdown, NoGil(), R"(Ends the group of all ranks (collective): waits for what is under way.
world() starts it anew.

>>> import anello
>>> anello.dist.shutdown()
)");
  m.def("rank", fact(&Communicator::rank, 0), R"(This process's number among all ranks; 0 for one process.

>>> import anello
>>> 0 <= anello.dist.rank() < anello.dist.size()
True
)");
  m.def("size", fact(&Communicator::size, 1), R"(Number of ranks; 1 for one process.

>>> import anello
>>> anello.dist.size() >= 1
True
)");
  m.def("local_rank", fact(&Communicator::local_rank, 0), R"(This process's number among the ranks of its machine.

>>> import anello
>>> anello.dist.local_rank() <= anello.dist.rank()
True
)");
  m.def("local_size", fact(&Communicator::local_size, 1), R"(Number of ranks on this machine.

>>> import anello
>>> anello.dist.local_size() <= anello.dist.size()
True
)");
}

}  // namespace

void bind_communicator(py::module_& m) {
  bind_work(m);
  Group group(m, "Communicator", R"(A group of ranks. Every rank of the group makes the same calls; a call that differs
in shape, dtype, reduction, root or kind raises DistError on every rank, naming both sides, and so does a rank that does
not come within stall_timeout seconds. After an error the group is broken. Results are the same bits on all ranks.
Tensors are changed in place where a method says so; what autograd records is in anello.dist.functional.

>>> import anello
>>> comm = anello.dist.world()
>>> x = anello.ones(2)
>>> comm.all_reduce(x)
>>> (x == comm.size()).all().item()
True
)");
  bind_facts(group);
  bind_in_place(group);
  bind_new_tensors(group);
  bind_world(m);
}

}  // namespace anello::python
