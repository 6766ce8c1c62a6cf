// Reduce-scatter by direct exchange.
//
// Every rank sends each part of its vector straight to the part's owner. The owner collects the
// contributions of all ranks and reduces them at once, in the order of the ranks, in wide
// precision, with one rounding. So the result does not depend on where an element lies, on how many
// are sent together, or on timing.
//
// Phases: for each segment of the parts: all receives posted, all sends, one reduction.
// Source: the first half of a pairwise exchange; see Thakur, Rabenseifner and Gropp, Optimization
// of
//         collective communication operations in MPICH, IJHPCA 19(1), 2005.
// Steps:  (p-1) per segment, independent of each other.   Bytes: n - n/p, the least possible.
// Order:  by rank.
#include <algorithm>
#include <vector>

#include "collectives/flight.hpp"
#include "collectives/patterns/ring.hpp"
#include "collectives/reduce_scatter/exchange.hpp"
#include "collectives/scratch.hpp"
#include "reduce/reduce.hpp"

namespace hpcomm {

void direct_reduce_scatter(Endpoint& endpoint, const CollectiveRequest& request, const Parts& parts,
                           const std::byte* send, std::byte* recv) {
  const int rank = endpoint.rank();
  const int size = endpoint.size();
  const std::size_t width = size_bytes(request.dtype);
  if (size == 1) return reduce_alone(request, send, recv, parts.count(0));

  const std::size_t length = std::min(direct_segment_bytes(size) / width, parts.largest());
  const std::size_t my_count = parts.count(rank);
  Scratch scratch(static_cast<std::size_t>(size - 1) * std::min(length, my_count) * width);
  std::vector<const std::byte*> inputs(static_cast<std::size_t>(size));
  Flight flight(endpoint, request);
  const std::size_t num_segments = length == 0 ? 0 : num_windows(length, parts.largest());
  for (std::size_t segment = 0; segment < num_segments; ++segment) {
    const Window mine = window_of(segment, length, my_count);
    std::byte* place = scratch.data();
    for (int back = 1; back < size; ++back) {  // the nearest first, so that not all ask rank 0
      const int peer = ring::part_behind(rank, back, size);
      inputs[static_cast<std::size_t>(peer)] = place;
      flight.recv(place, mine.count * width, peer);
      place += mine.count * width;
    }
    for (int ahead = 1; ahead < size; ++ahead) {
      const int peer = (rank + ahead) % size;
      const Window theirs = window_of(segment, length, parts.count(peer));
      flight.send(send + (parts.offset(peer) + theirs.begin) * width, theirs.count * width, peer);
    }
    flight.wait();
    inputs[static_cast<std::size_t>(rank)] = send + (parts.offset(rank) + mine.begin) * width;
    reduce(request.dtype, request.op, recv + mine.begin * width, inputs, mine.count, size);
  }
}

double direct_segments(int size, std::size_t nbytes) {
  const std::size_t ranks = static_cast<std::size_t>(size);
  return static_cast<double>(num_windows(direct_segment_bytes(size), (nbytes + ranks - 1) / ranks));
}

}  // namespace hpcomm
