// What Python takes out of mpi4py so that the core can call the user's MPI without a header and
// without linking to it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace hpcomm::mpi {

/// Handles travel as 64-bit numbers: the bits of the `int` (MPICH and its relatives) or of the
/// pointer (Open MPI, MPI-5).
struct Binding {
  std::string library_path;      ///< mpi4py's extension file, already loaded: `mpi4py.MPI.__file__`
  bool pointer_handles = false;  ///< `MPI._sizeof(MPI.Comm) == 8`
  std::uint64_t comm = 0;  ///< a communicator of hpcomm alone (a duplicate), ranks numbered alike
  std::uint64_t byte_type = 0;      ///< `MPI.BYTE`
  std::uint64_t request_null = 0;   ///< `MPI.REQUEST_NULL`
  std::uint64_t errors_return = 0;  ///< `MPI.ERRORS_RETURN`
  int any_source = -1;              ///< `MPI.ANY_SOURCE`
  int max_error_string = 1024;      ///< `MPI.MAX_ERROR_STRING`
  bool thread_multiple = false;     ///< `MPI.Query_thread() == MPI.THREAD_MULTIPLE`
  std::size_t chunk_limit =
      std::size_t{1} << 30;  ///< bytes of one MPI message; lowered by tests; equal on all ranks
  /// Folder in which the launcher's supervisors note that a rank's process has ended, because MPI
  /// itself does not say so: files end.N (badly) and done.N, N the rank in the whole job. Empty
  /// where nobody does.
  std::string session_folder;
  std::vector<int> job_ranks;  ///< by rank of `comm`; empty: they are equal
  std::string description;     ///< vendor and version, for messages
};

}  // namespace hpcomm::mpi
