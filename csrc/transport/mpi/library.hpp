// The user's MPI, found at run time inside the process: no header, no symbol to link. `Handle` is
// `int` for MPICH and its relatives, `void*` for Open MPI and the standard ABI.
#pragma once

#include <array>
#include <cstddef>
#include <string>

#include "transport/mpi/binding.hpp"

namespace hpcomm::mpi {

/// Large enough for any MPI's status; only MPI reads it.
struct alignas(16) Status {
  std::array<std::byte, 128> bytes{};
};

template <class Handle>
struct Library {
  int (*isend)(const void* data, int count, Handle type, int to, int tag, Handle comm,
               Handle* request) = nullptr;
  int (*irecv)(void* data, int count, Handle type, int from, int tag, Handle comm,
               Handle* request) = nullptr;
  int (*test)(Handle* request, int* flag, Status* status) = nullptr;
  int (*cancel)(Handle* request) = nullptr;
  int (*request_free)(Handle* request) = nullptr;
  int (*iprobe)(int from, int tag, Handle comm, int* flag, Status* status) = nullptr;
  int (*get_count)(const Status* status, Handle type, int* count) = nullptr;
  int (*error_string)(int code, char* text, int* length) = nullptr;
  int (*set_errhandler)(Handle comm, Handle handler) = nullptr;
  int (*finalized)(int* flag) = nullptr;

  /// Throws Error(transport) that names what is missing.
  static Library load(const std::string& extension_path);
};

extern template struct Library<int>;
extern template struct Library<void*>;

}  // namespace hpcomm::mpi
