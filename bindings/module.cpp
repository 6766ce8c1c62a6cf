// The extension module hpcomm._core: a list of what it binds.
#include "bindings.hpp"

PYBIND11_MODULE(_core, module) {
  module.doc() = "Compiled core of hpcomm; use the package hpcomm instead.";
  hpcomm::python::bind_errors(module);
  hpcomm::python::bind_interrupt(module);
  hpcomm::python::bind_exit(module);
  hpcomm::python::bind_work(module);
  hpcomm::python::bind_mpi(module);
  hpcomm::python::bind_communicator(module);
  hpcomm::python::bind_info(module);
}
