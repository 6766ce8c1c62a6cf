// hpcomm::Error becomes the class of the same meaning in hpcomm/errors.py, with its `rank`.
#include <pybind11/pybind11.h>

#include <exception>

#include "bindings.hpp"
#include "core/error.hpp"
#include "errors.hpp"

namespace py = pybind11;

namespace hpcomm::python {

namespace {

const char* class_name(Errc code) {
  switch (code) {
    case Errc::invalid_argument:
      return "InvalidArgumentError";
    case Errc::mismatch:
      return "MismatchError";
    case Errc::unsupported:
      return "UnsupportedError";
    case Errc::timeout:
      return "CommTimeoutError";
    case Errc::peer_dead:
      return "PeerDiedError";
    case Errc::peer_aborted:
      return "PeerAbortedError";
    case Errc::transport:
      return "TransportError";
    case Errc::broken:
      return "CommunicatorBrokenError";
    case Errc::interrupted:
    case Errc::internal:
      return "InternalError";
  }
  return "InternalError";
}

}  // namespace

py::object to_python(const Error& error) {
  const py::object type = py::module_::import("hpcomm.errors").attr(class_name(error.code()));
  return type(error.what(), py::arg("rank") = error.rank());
}

void bind_errors(py::module_& /*module*/) {
  // NOLINTNEXTLINE(performance-unnecessary-value-param): the signature is pybind11's.
  py::register_local_exception_translator([](std::exception_ptr pointer) {
    try {
      if (pointer) std::rethrow_exception(pointer);
    } catch (const Error& error) {
      if (error.code() == Errc::peer_dead) mark_failed(Failed::lost_rank);
      if (error.breaks_communicator()) mark_failed(Failed::perhaps);
      if (error.code() == Errc::interrupted) {
        restore_interrupt();
        return;
      }
      const py::object exception = to_python(error);
      PyErr_SetObject(py::type::of(exception).ptr(), exception.ptr());
    }
  });
}

}  // namespace hpcomm::python
