// What a test sees of the fake MPI besides the functions of MPI.
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" {

/// Begins a new world of `size` ranks (threads of one process). Messages of more than `eager_bytes`
/// leave their sender's buffer when they are received; a probe overlooks what is there with
/// probability `blindness` percent.
void fake_mpi_begin(int size, std::size_t eager_bytes, int blindness);
/// The bits of the communicator handle of `rank`.
std::uint64_t fake_mpi_comm(int rank);
/// The next call of MPI_Isend by `rank` fails.
void fake_mpi_fail_next_send(int rank);
/// Messages and receives that are left over.
int fake_mpi_leftovers();
}
