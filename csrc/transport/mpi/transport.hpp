// Messages over the user's MPI, for ranks that share no memory.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "transport/mpi/binding.hpp"
#include "transport/transport.hpp"

namespace hpcomm::mpi {

/// Reaches all ranks but oneself. Below MPI_THREAD_MULTIPLE it may be used by the calling thread
/// alone. `epoch` is a number that the ranks of this communicator share and others do not: it tells
/// late control messages of a communicator that is gone from those of one that got the same MPI
/// context.
///
/// A message shorter than the chunk limit is one MPI message. A longer one is a notice of its
/// length (tag kLength), a piece of exactly the limit, which nothing else has, and the rest in
/// pieces of at most that. Receives are posted once a probe has shown the length, so that a
/// disagreement is an error that names both.
std::unique_ptr<Transport> make_transport(const Binding& binding, std::uint64_t epoch, int rank,
                                          int size, const std::string& name);

}  // namespace hpcomm::mpi
