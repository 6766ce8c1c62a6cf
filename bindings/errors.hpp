// Errors of the core as Python objects.
#pragma once

#include <pybind11/pybind11.h>

#include "core/error.hpp"

namespace hpcomm::python {

/// The exception object of hpcomm/errors.py; with the GIL held.
pybind11::object to_python(const Error& error);

enum class Failed { no, perhaps, lost_rank };

/// Remembers that the job has failed: whether this process calls MPI_Finalize depends on it.
void mark_failed(Failed how) noexcept;

/// Raises what a signal handler raised while the core waited (KeyboardInterrupt for Ctrl-C); with
/// the GIL held.
void restore_interrupt();

}  // namespace hpcomm::python
