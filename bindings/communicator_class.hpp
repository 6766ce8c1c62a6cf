// The Python class of runtime/communicator.hpp, to which several files add methods.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>

#include "bindings.hpp"
#include "runtime/communicator.hpp"

namespace hpcomm::python {

class CommunicatorClass : public pybind11::class_<Communicator, std::shared_ptr<Communicator>> {
 public:
  using pybind11::class_<Communicator, std::shared_ptr<Communicator>>::class_;
};

}  // namespace hpcomm::python
