// Allgather in a ring.
//
// Every rank passes on to its successor what it received last, beginning with its own part, until
// each part has been everywhere. Parts are received where they belong, so nothing is copied.
//
// Phases: p-1 steps of send and receive.
// Source: Patarasuk and Yuan, Bandwidth optimal all-reduce algorithms for clusters of workstations,
//         JPDC 69(2), 2009.
// Steps:  p-1.   Bytes: n - n/p, the least possible.
#include "collectives/patterns/ring.hpp"
#include "collectives/allgather/exchange.hpp"
#include "collectives/flight.hpp"

namespace hpcomm {

void ring_allgather(Endpoint& endpoint, const CollectiveRequest& request, const Parts& parts,
                    std::byte* data) {
  const int rank = endpoint.rank();
  const int size = endpoint.size();
  const std::size_t width = size_bytes(request.dtype);
  Flight flight(endpoint, request);
  for (int step = 0; step < ring::num_steps(size); ++step) {
    const int out = ring::gather_send(rank, step, size);
    const int in = ring::gather_recv(rank, step, size);
    flight.recv(data + parts.offset(in) * width, parts.count(in) * width,
                ring::predecessor(rank, size));
    flight.send(data + parts.offset(out) * width, parts.count(out) * width,
                ring::successor(rank, size));
    flight.wait();
  }
}

}  // namespace hpcomm
