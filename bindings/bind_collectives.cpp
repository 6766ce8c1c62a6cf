// Collectives: arguments become one CollectiveRequest, which runs on this thread or becomes a Work.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cstddef>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "arrays.hpp"
#include "communicator_class.hpp"

namespace py = pybind11;

namespace hpcomm::python {

namespace {

using Counts = std::vector<std::size_t>;

/// How a call wants to be run, common to all collectives.
struct Manner {
  const std::string& algorithm;
  double timeout_s;
  bool asynchronous;
};

/// Null for a blocking call. `send` and `recv` are kept until an asynchronous operation is
/// complete.
std::shared_ptr<Work> run(Communicator& comm, const CollectiveRequest& request,
                          const Manner& manner, const py::object& send, const py::object& recv) {
  if (!manner.asynchronous) {
    const py::gil_scoped_release nogil;
    comm.collective(request, manner.algorithm, manner.timeout_s);
    return nullptr;
  }
  take_released_owners();
  std::shared_ptr<void> owner = keep_alive(py::make_tuple(send, recv));
  const py::gil_scoped_release nogil;
  std::shared_ptr<Work> work = comm.icollective(request, manner.algorithm, manner.timeout_s);
  work->keep(std::move(owner));
  return work;
}

ReduceOp op_of(int code) {
  HPCOMM_CHECK(code >= 0 && code < kNumReduceOps, Errc::internal, "no reduction has the number ",
               code);
  return static_cast<ReduceOp>(code);
}

void check_length(std::size_t got, std::size_t wanted) {
  HPCOMM_CHECK(got == wanted, Errc::internal, "array has ", got, " elements where the call needs ",
               wanted);
}

/// Elements of all ranks together, of which `counts` (or `each`, where it is empty) says how they
/// are dealt.
std::size_t total(const Communicator& comm, const Counts& counts, std::size_t each) {
  if (counts.empty()) return each * static_cast<std::size_t>(comm.size());
  check_length(counts.size(), static_cast<std::size_t>(comm.size()));
  check_length(each, counts[static_cast<std::size_t>(comm.rank())]);
  return std::accumulate(counts.begin(), counts.end(), std::size_t{0});
}

std::shared_ptr<Work> allreduce(Communicator& self, const py::array& send, py::array recv,
                                int dtype, int op, const std::string& algorithm, double timeout_s,
                                bool asynchronous) {
  CollectiveRequest request;
  request.kind = Collective::allreduce;
  request.send = readable(send);
  request.recv = writable(recv);
  request.dtype = dtype_of(dtype);
  request.op = op_of(op);
  request.count = elements(request.send, request.dtype);
  check_length(elements(request.recv, request.dtype), request.count);
  return run(self, request, {algorithm, timeout_s, asynchronous}, send, recv);
}

std::shared_ptr<Work> allgather(Communicator& self, const py::array& send, py::array recv,
                                int dtype, const Counts& counts, const std::string& algorithm,
                                double timeout_s, bool asynchronous) {
  CollectiveRequest request;
  request.kind = Collective::allgather;
  request.send = readable(send);
  request.recv = writable(recv);
  request.dtype = dtype_of(dtype);
  request.count = elements(request.send, request.dtype);
  request.counts = counts;
  check_length(elements(request.recv, request.dtype), total(self, counts, request.count));
  return run(self, request, {algorithm, timeout_s, asynchronous}, send, recv);
}

std::shared_ptr<Work> reduce_scatter(Communicator& self, const py::array& send, py::array recv,
                                     int dtype, int op, const Counts& counts,
                                     const std::string& algorithm, double timeout_s,
                                     bool asynchronous) {
  CollectiveRequest request;
  request.kind = Collective::reduce_scatter;
  request.send = readable(send);
  request.recv = writable(recv);
  request.dtype = dtype_of(dtype);
  request.op = op_of(op);
  request.count = elements(request.recv, request.dtype);
  request.counts = counts;
  check_length(elements(request.send, request.dtype), total(self, counts, request.count));
  return run(self, request, {algorithm, timeout_s, asynchronous}, send, recv);
}

/// In place. The root's array may be read-only: nothing writes to it.
std::shared_ptr<Work> broadcast(Communicator& self, py::array array, int dtype, int root,
                                const std::string& algorithm, double timeout_s, bool asynchronous) {
  CollectiveRequest request;
  request.kind = Collective::broadcast;
  request.send = readable(array);
  request.recv = self.rank() == root
                     ? Buffer{const_cast<std::byte*>(request.send.data), request.send.nbytes}
                     // NOLINT: see above
                     : writable(array);
  request.dtype = dtype_of(dtype);
  request.count = elements(request.send, request.dtype);
  request.root = root;
  return run(self, request, {algorithm, timeout_s, asynchronous}, array, py::none());
}

std::shared_ptr<Work> barrier(Communicator& self, double timeout_s, bool asynchronous) {
  CollectiveRequest request;
  request.kind = Collective::barrier;
  return run(self, request, {std::string(), timeout_s, asynchronous}, py::none(), py::none());
}

}  // namespace

void bind_collectives(CommunicatorClass& type) {
  type.def("allreduce", &allreduce, py::arg("send").noconvert(), py::arg("recv").noconvert(),
           py::arg("dtype"), py::arg("op"), py::arg("algorithm"), py::arg("timeout_s"),
           py::arg("asynchronous"));
  type.def("allgather", &allgather, py::arg("send").noconvert(), py::arg("recv").noconvert(),
           py::arg("dtype"), py::arg("counts"), py::arg("algorithm"), py::arg("timeout_s"),
           py::arg("asynchronous"));
  type.def("reduce_scatter", &reduce_scatter, py::arg("send").noconvert(),
           py::arg("recv").noconvert(), py::arg("dtype"), py::arg("op"), py::arg("counts"),
           py::arg("algorithm"), py::arg("timeout_s"), py::arg("asynchronous"));
  type.def("broadcast", &broadcast, py::arg("array").noconvert(), py::arg("dtype"), py::arg("root"),
           py::arg("algorithm"), py::arg("timeout_s"), py::arg("asynchronous"));
  type.def("barrier", &barrier, py::arg("timeout_s"), py::arg("asynchronous"));
}

}  // namespace hpcomm::python
