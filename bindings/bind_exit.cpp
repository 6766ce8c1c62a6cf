// How a process leaves MPI: after the loss of a rank without MPI_Finalize, which would wait for
// it for ever.
#include <dlfcn.h>
#include <pybind11/pybind11.h>
#include <sys/time.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <string>

#include "bindings.hpp"
#include "errors.hpp"

namespace py = pybind11;

namespace hpcomm::python {

namespace {

// How long MPI_Finalize may take where some rank may not come.
constexpr int kPatienceSeconds = 3;

std::atomic<Failed> failed{Failed::no};
pid_t owner = 0;     // the process that initialised MPI
int exit_code = -1;  // as far as Python said; the interpreter tells no callback
bool finalize_is_ours = false;
int (*mpi_finalize)() = nullptr;
int (*mpi_finalized)(int*) = nullptr;

/// Ends the process in the middle of an MPI_Finalize that does not return.
void give_up_after_a_while() {
  std::fflush(nullptr);
  std::signal(SIGALRM, [](int) { _exit(1); });
  itimerval patience{};
  patience.it_value.tv_sec = kPatienceSeconds;
  setitimer(ITIMER_REAL, &patience, nullptr);
}

/// Runs at the very end of the interpreter. Callbacks run in the reverse order of their
/// registration, so where mpi4py finalises MPI (it was imported before), this one comes first and
/// can still leave. A child of fork must not touch its parent's MPI.
void leave() {
  const bool is_child = getpid() != owner;
  if (is_child || failed == Failed::lost_rank) {
    if (finalize_is_ours) return;  // nobody else will finalise
    std::fflush(nullptr);
    _exit(exit_code >= 0 ? exit_code : (is_child ? 0 : 1));
  }
  if (failed == Failed::perhaps) give_up_after_a_while();
  if (!finalize_is_ours || mpi_finalize == nullptr) return;
  int is_finalized = 0;
  mpi_finalized(&is_finalized);
  if (is_finalized == 0) mpi_finalize();
}

void leave_mpi_at_exit(const std::string& library_path, bool is_ours) {
  static bool is_registered = false;
  finalize_is_ours = is_ours;
  owner = getpid();
  if (is_registered) return;
  is_registered = true;
  void* library = dlopen(library_path.c_str(), RTLD_NOW | RTLD_NOLOAD);
  HPCOMM_CHECK(library != nullptr, Errc::internal, library_path, " is not loaded");
  mpi_finalize = reinterpret_cast<int (*)()>(dlsym(library, "MPI_Finalize"));
  mpi_finalized = reinterpret_cast<int (*)(int*)>(dlsym(library, "MPI_Finalized"));
  HPCOMM_CHECK(mpi_finalize != nullptr && mpi_finalized != nullptr, Errc::internal, library_path,
               " leads to no MPI_Finalize");
  Py_AtExit(leave);
}

}  // namespace

void mark_failed(Failed how) noexcept {
  Failed known = failed;
  while (known < how && !failed.compare_exchange_weak(known, how)) {
  }
}

void bind_exit(py::module_& module) {
  module.def("leave_mpi_at_exit", &leave_mpi_at_exit, py::arg("library_path"), py::arg("is_ours"),
             "At exit, finalise MPI if that is ours to do, and never after a failure.");
  module.def(
      "mark_lost", [] { mark_failed(Failed::lost_rank); },
      "A rank is gone for certain; MPI_Finalize would hang.");
  module.def(
      "note_exit_code", [](int code) { exit_code = code; }, py::arg("code"),
      "What this process is going to exit with, for where it has to leave early.");
  module.def("has_failed", [] { return failed.load() != Failed::no; });
}

}  // namespace hpcomm::python
