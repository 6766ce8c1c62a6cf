// How a process leaves MPI. MPI_Finalize waits for the other ranks, so it is left out where this
// rank ends badly or another one is known to be gone, and given up when another one fails later.
#include <dlfcn.h>
#include <pybind11/pybind11.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include "bindings.hpp"
#include "errors.hpp"

namespace py = pybind11;

namespace hpcomm::python {

namespace {

// How long MPI_Finalize may take where some rank may not come.
constexpr auto kPatience = std::chrono::seconds(3);
constexpr auto kPollInterval = std::chrono::milliseconds(50);

std::atomic<Failed> failed{Failed::no};
pid_t owner = 0;           // the process that initialised MPI
int noted_exit_code = -1;  // what Python said, where the interpreter tells no callback
// Files whose appearance says that the job has failed. Never freed: read at the very end.
std::string* failure_files[2] = {nullptr, nullptr};
int (*mpi_finalize)() = nullptr;
int (*mpi_finalized)(int*) = nullptr;

bool job_has_failed() {
  for (const std::string* file : failure_files)
    if (file != nullptr && access(file->c_str(), F_OK) == 0) return true;
  return false;
}

[[noreturn]] void leave_at_once(int status) {
  std::fflush(nullptr);
  _exit(status);
}

/// Ends the process in the middle of an MPI_Finalize that cannot return.
void watch_finalize(int status) {
  std::thread([status] {
    const auto started = std::chrono::steady_clock::now();
    for (;;) {
      std::this_thread::sleep_for(kPollInterval);
      const bool late = std::chrono::steady_clock::now() - started > kPatience;
      if (job_has_failed() || (failed == Failed::perhaps && late)) leave_at_once(status);
    }
  }).detach();
}

bool must_not_finalize(int status) {
  return status != 0 || failed == Failed::lost_rank || job_has_failed();
}

/// Called by exit(), with the status of the process: MPI is ours to finalise.
void finalize(int status, void* /*unused*/) {
  int is_finalized = 0;
  if (getpid() != owner) return;  // a child made by fork
  mpi_finalized(&is_finalized);
  if (is_finalized != 0 || must_not_finalize(status)) return;
  watch_finalize(status);
  mpi_finalize();
}

/// Called at the very end of the interpreter, just before mpi4py finalises MPI: callbacks run in
/// the reverse order of their registration. All that can be done about that is to leave.
void forestall_mpi4py() {
  if (getpid() != owner) leave_at_once(noted_exit_code >= 0 ? noted_exit_code : 0);
  const int status = noted_exit_code >= 0 ? noted_exit_code : (failed == Failed::no ? 0 : 1);
  if (must_not_finalize(noted_exit_code >= 0 ? noted_exit_code : 0)) leave_at_once(status);
  watch_finalize(status);
}

void leave_mpi_at_exit(const std::string& library_path, bool is_ours, const std::string& session) {
  void* library = dlopen(library_path.c_str(), RTLD_NOW | RTLD_NOLOAD);
  HPCOMM_CHECK(library != nullptr, Errc::internal, library_path, " is not loaded");
  mpi_finalize = reinterpret_cast<int (*)()>(dlsym(library, "MPI_Finalize"));
  mpi_finalized = reinterpret_cast<int (*)(int*)>(dlsym(library, "MPI_Finalized"));
  HPCOMM_CHECK(mpi_finalize != nullptr && mpi_finalized != nullptr, Errc::internal, library_path,
               " leads to no MPI_Finalize");
  owner = getpid();
  if (!session.empty()) {
    failure_files[0] = new std::string(session + "/failure");
    failure_files[1] = new std::string(session + "/stop");
  }
  if (is_ours)
    on_exit(finalize, nullptr);
  else
    Py_AtExit(forestall_mpi4py);
}

}  // namespace

void mark_failed(Failed how) noexcept {
  Failed known = failed;
  while (known < how && !failed.compare_exchange_weak(known, how)) {
  }
}

void bind_exit(py::module_& module) {
  module.def(
      "leave_mpi_at_exit", &leave_mpi_at_exit, py::arg("library_path"), py::arg("is_ours"),
      py::arg("session"),
      "At exit, finalise MPI if that is ours to do, and do not wait in vain for that. Once.");
  module.def(
      "mark_lost", [] { mark_failed(Failed::lost_rank); },
      "A rank is gone for certain; MPI_Finalize would hang.");
  module.def(
      "note_exit_code", [](int code) { noted_exit_code = code; }, py::arg("code"),
      "What this process is going to exit with, for where it has to leave early.");
  module.def("has_failed", [] { return failed.load() != Failed::no; });
}

}  // namespace hpcomm::python
