// Messages from one rank to another.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <memory>

#include "arrays.hpp"
#include "communicator_class.hpp"

namespace py = pybind11;

namespace hpcomm::python {

void bind_point_to_point(CommunicatorClass& type) {
  type.def(
      "send",
      [](Communicator& self, const py::array& array, int peer, Tag tag, double timeout_s) {
        const ConstBuffer buffer = readable(array);
        const py::gil_scoped_release nogil;
        self.send(buffer, peer, tag, timeout_s);
      },
      py::arg("array").noconvert(), py::arg("peer"), py::arg("tag"), py::arg("timeout_s"));
  type.def(
      "recv",
      [](Communicator& self, py::array array, int peer, Tag tag, double timeout_s) {
        const Buffer buffer = writable(array);
        const py::gil_scoped_release nogil;
        self.recv(buffer, peer, tag, timeout_s);
      },
      py::arg("array").noconvert(), py::arg("peer"), py::arg("tag"), py::arg("timeout_s"));
  type.def(
      "isend",
      [](Communicator& self, const py::array& array, int peer, Tag tag) {
        take_released_owners();
        const ConstBuffer buffer = readable(array);
        std::shared_ptr<void> owner = keep_alive(array);
        const py::gil_scoped_release nogil;
        std::shared_ptr<Work> work = self.isend(buffer, peer, tag);
        work->keep(std::move(owner));
        return work;
      },
      py::arg("array").noconvert(), py::arg("peer"), py::arg("tag"));
  type.def(
      "irecv",
      [](Communicator& self, py::array array, int peer, Tag tag) {
        take_released_owners();
        const Buffer buffer = writable(array);
        std::shared_ptr<void> owner = keep_alive(array);
        const py::gil_scoped_release nogil;
        std::shared_ptr<Work> work = self.irecv(buffer, peer, tag);
        work->keep(std::move(owner));
        return work;
      },
      py::arg("array").noconvert(), py::arg("peer"), py::arg("tag"));
  type.def(
      "probe",
      [](Communicator& self, int peer, Tag tag, double timeout_s) {
        const py::gil_scoped_release nogil;
        return self.probe(peer, tag, timeout_s).nbytes;
      },
      py::arg("peer"), py::arg("tag"), py::arg("timeout_s"));
}

}  // namespace hpcomm::python
