// What hpcomm/bootstrap/mpi.py takes out of mpi4py.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <memory>
#include <string>

#include "bindings.hpp"
#include "transport/mpi/binding.hpp"

namespace py = pybind11;

namespace hpcomm::python {

void bind_mpi(py::module_& module) {
  py::class_<mpi::Binding, std::shared_ptr<mpi::Binding>>(
      module, "MpiBinding", "Handles and constants of the MPI that mpi4py has loaded.")
      .def(py::init<>())
      .def_readwrite("library_path", &mpi::Binding::library_path)
      .def_readwrite("pointer_handles", &mpi::Binding::pointer_handles)
      .def_readwrite("comm", &mpi::Binding::comm)
      .def_readwrite("byte_type", &mpi::Binding::byte_type)
      .def_readwrite("request_null", &mpi::Binding::request_null)
      .def_readwrite("errors_return", &mpi::Binding::errors_return)
      .def_readwrite("any_source", &mpi::Binding::any_source)
      .def_readwrite("max_error_string", &mpi::Binding::max_error_string)
      .def_readwrite("thread_multiple", &mpi::Binding::thread_multiple)
      .def_readwrite("chunk_limit", &mpi::Binding::chunk_limit)
      .def_readwrite("session_folder", &mpi::Binding::session_folder)
      .def_readwrite("job_ranks", &mpi::Binding::job_ranks)
      .def_readwrite("description", &mpi::Binding::description);
}

}  // namespace hpcomm::python
