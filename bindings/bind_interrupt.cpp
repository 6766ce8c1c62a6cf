// Ctrl-C, and every other Python signal handler, during a wait of the core.
#include <pybind11/pybind11.h>

#include <memory>

#include "bindings.hpp"
#include "core/error.hpp"
#include "core/surroundings.hpp"
#include "errors.hpp"

namespace py = pybind11;

namespace hpcomm::python {

namespace {

// What the last handler raised, until the call that it ended gives it back to Python. Guarded by
// the GIL; a pointer that is never freed, because static destructors run after the interpreter is
// gone.
py::error_already_set* raised = nullptr;

/// Slow path of waits on the main thread, without the GIL.
void run_signal_handlers() {
  if (Py_IsInitialized() == 0) return;
  py::gil_scoped_acquire gil;
  if (PyErr_CheckSignals() == 0) return;
  delete raised;
  raised = new py::error_already_set();
  throw Error(Errc::interrupted, -1, "interrupted by a signal handler");
}

}  // namespace

void restore_interrupt() {
  if (raised == nullptr) {
    PyErr_SetNone(PyExc_KeyboardInterrupt);
    return;
  }
  raised->restore();
  delete raised;
  raised = nullptr;
}

void bind_interrupt(py::module_& module) {
  module.def(
      "watch_interrupts", [] { set_interrupt_hook(run_signal_handlers); },
      "Let waits of the calling thread, which must be the main thread, run Python's signal "
      "handlers.");
}

}  // namespace hpcomm::python
