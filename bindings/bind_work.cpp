// Handles of asynchronous operations.
#include <pybind11/pybind11.h>

#include <memory>

#include "bindings.hpp"
#include "errors.hpp"
#include "runtime/work.hpp"

namespace py = pybind11;

namespace hpcomm::python {

namespace {

py::object exception_of(const Work& work) {
  const std::exception_ptr pointer = work.error();
  if (!pointer) return py::none();
  try {
    std::rethrow_exception(pointer);
  } catch (const Error& error) {
    if (error.code() == Errc::interrupted) {
      return py::reinterpret_borrow<py::object>(PyExc_KeyboardInterrupt)();
    }
    return to_python(error);
  } catch (const std::exception& error) {
    return to_python(Error(Errc::internal, -1, error.what()));
  }
}

}  // namespace

void bind_work(py::module_& module) {
  py::class_<Work, std::shared_ptr<Work>>(module, "Work", py::release_gil_before_calling_cpp_dtor(),
                                          "A pending operation; see hpcomm.Work.")
      .def("test",
           [](Work& self) {
             bool done = self.done();
             if (!done) {
               const py::gil_scoped_release nogil;
               done = self.test();
             }
             take_released_owners();
             return done;
           })
      .def(
          "wait",
          [](Work& self, double timeout_s) {
            {
              const py::gil_scoped_release nogil;
              self.wait(timeout_s);
            }
            take_released_owners();
          },
          py::arg("timeout_s"))
      .def("exception", &exception_of)
      .def_property_readonly("what", &Work::what)
      .def_property_readonly("submitted_ns", &Work::submitted_ns)
      .def_property_readonly("completed_ns", &Work::completed_ns);
}

}  // namespace hpcomm::python
