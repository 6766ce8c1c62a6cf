// One function per theme; module.cpp calls them in this order.
#pragma once

#include <pybind11/pybind11.h>

namespace hpcomm::python {

void bind_errors(pybind11::module_& module);
void bind_interrupt(pybind11::module_& module);
void bind_exit(pybind11::module_& module);
void bind_work(pybind11::module_& module);
void bind_mpi(pybind11::module_& module);
void bind_communicator(pybind11::module_& module);
void bind_info(pybind11::module_& module);

// Methods of the class that bind_communicator defines, by theme.
class CommunicatorClass;
void bind_point_to_point(CommunicatorClass& type);
void bind_collectives(CommunicatorClass& type);

}  // namespace hpcomm::python
