#include "transport/mpi/library.hpp"

#include <dlfcn.h>

#include "core/error.hpp"

namespace hpcomm::mpi {
namespace {

template <class Function>
void resolve(void* library, const char* name, const std::string& path, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  HPCOMM_CHECK(function != nullptr, Errc::transport, name, " is not in the MPI that ", path,
               " uses; install a complete MPI (for example: pip install mpich)");
}

}  // namespace

template <class Handle>
Library<Handle> Library<Handle>::load(const std::string& extension_path) {
  // Python has loaded it already; its dependencies, the user's MPI among them, are searched along
  // with it. The reference is kept for good: MPI is never unloaded.
  void* library = dlopen(extension_path.c_str(), RTLD_LAZY | RTLD_NOLOAD);
  HPCOMM_CHECK(library != nullptr, Errc::transport, "mpi4py's extension ", extension_path,
               " is not loaded; import mpi4py.MPI before a communicator is made");
  Library functions;
  resolve(library, "MPI_Isend", extension_path, functions.isend);
  resolve(library, "MPI_Irecv", extension_path, functions.irecv);
  resolve(library, "MPI_Test", extension_path, functions.test);
  resolve(library, "MPI_Cancel", extension_path, functions.cancel);
  resolve(library, "MPI_Request_free", extension_path, functions.request_free);
  resolve(library, "MPI_Iprobe", extension_path, functions.iprobe);
  resolve(library, "MPI_Get_count", extension_path, functions.get_count);
  resolve(library, "MPI_Error_string", extension_path, functions.error_string);
  resolve(library, "MPI_Comm_set_errhandler", extension_path, functions.set_errhandler);
  resolve(library, "MPI_Finalized", extension_path, functions.finalized);
  return functions;
}

template struct Library<int>;
template struct Library<void*>;

}  // namespace hpcomm::mpi
