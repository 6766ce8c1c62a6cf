// Groups of ranks: how they come, what they know about themselves, how they end.
#include "runtime/communicator.hpp"

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "arrays.hpp"
#include "communicator_class.hpp"
#include "errors.hpp"
#include "transport/tag.hpp"

namespace py = pybind11;

namespace hpcomm::python {

namespace {

/// A Python function bytes -> list of bytes, callable without the GIL.
Exchange exchange_of(py::function function) {
  std::shared_ptr<void> owner = keep_alive(std::move(function));
  return [owner](const std::string& mine) {
    const py::gil_scoped_acquire gil;
    const py::object result = (*static_cast<py::object*>(owner.get()))(py::bytes(mine));
    std::vector<std::string> all;
    for (const py::handle item : result) all.push_back(item.cast<std::string>());
    return all;
  };
}

Communicator::Cause cause_of(bool lost_rank) {
  return lost_rank ? Communicator::Cause::lost_rank : Communicator::Cause::own_failure;
}

// Sizes of 0 mean the core's defaults.
std::shared_ptr<Communicator> create(std::string name, int rank, int size, double timeout_s,
                                     int ranks_per_node, int fake_node, std::size_t slot_bytes,
                                     std::size_t ring_bytes, std::string selection_override,
                                     std::shared_ptr<mpi::Binding> mpi, py::function exchange) {
  CommunicatorOptions options;
  options.name = std::move(name);
  options.rank = rank;
  options.size = size;
  options.timeout_s = timeout_s;
  options.ranks_per_node = ranks_per_node;
  options.fake_node = fake_node;
  if (slot_bytes != 0) options.slot_bytes = slot_bytes;
  if (ring_bytes != 0) options.ring_bytes = ring_bytes;
  options.selection_override = std::move(selection_override);
  options.mpi = std::move(mpi);
  const Exchange call = exchange_of(std::move(exchange));
  const py::gil_scoped_release nogil;
  return Communicator::create(std::move(options), call);
}

py::dict counters(Communicator& self) {
  Counters values;
  {
    const py::gil_scoped_release nogil;
    values = self.counters();
  }
  py::dict result;
  result["messages_sent"] = values.messages_sent;
  result["bytes_sent"] = values.bytes_sent;
  result["messages_received"] = values.messages_received;
  result["bytes_received"] = values.bytes_received;
  return result;
}

}  // namespace

void bind_communicator(py::module_& module) {
  module.attr("TAG_OBJECT") = tag::kObject;
  module.attr("TAG_BOOTSTRAP") = tag::kBootstrap;
  CommunicatorClass type(module, "Communicator", py::release_gil_before_calling_cpp_dtor(),
                         "A group of ranks; see hpcomm.Communicator.");
  type.def_static("create", &create, py::kw_only(), py::arg("name"), py::arg("rank"),
                  py::arg("size"), py::arg("timeout_s"), py::arg("ranks_per_node"),
                  py::arg("fake_node"), py::arg("slot_bytes"), py::arg("ring_bytes"),
                  py::arg("selection_override"), py::arg("mpi"), py::arg("exchange"));
  type.def_property_readonly("rank", &Communicator::rank);
  type.def_property_readonly("size", &Communicator::size);
  type.def_property_readonly("name", &Communicator::name);
  type.def_property_readonly("nodes",
                             [](const Communicator& self) { return self.layout().node_of; });
  type.def_property_readonly("is_broken", &Communicator::is_broken);
  type.def_property_readonly("is_closed", &Communicator::is_closed);
  type.def_property_readonly("broken_reason", &Communicator::broken_reason);
  type.def_property_readonly("counters", &counters);
  type.def_property_readonly("pending", &Communicator::pending);
  type.def_property_readonly("has_background_progress", &Communicator::has_background_progress);
  type.def("transport_name", &Communicator::transport_name, py::arg("peer"));
  type.def("selection_map", &Communicator::selection_map);
  type.def(
      "abort",
      [](Communicator& self, const std::string& message, bool lost_rank) {
        mark_failed(Failed::perhaps);
        const py::gil_scoped_release nogil;
        self.abort(message, cause_of(lost_rank));
      },
      py::arg("message"), py::arg("lost_rank") = false);
  type.def(
      "close",
      [](Communicator& self, double grace_s) {
        bool closed = false;
        {
          const py::gil_scoped_release nogil;
          closed = self.close(grace_s);
        }
        take_released_owners();
        return closed;
      },
      py::arg("grace_s") = 1.0);
  bind_point_to_point(type);
  bind_collectives(type);
  module.def(
      "abort_all",
      [](const std::string& message, bool lost_rank) {
        mark_failed(Failed::perhaps);
        const py::gil_scoped_release nogil;
        Communicator::abort_all(message, cause_of(lost_rank));
      },
      py::arg("message"), py::arg("lost_rank") = false);
  module.def("shutdown_all", [] {
    {
      const py::gil_scoped_release nogil;
      Communicator::shutdown_all();
    }
    take_released_owners();
  });
}

}  // namespace hpcomm::python
