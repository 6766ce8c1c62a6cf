// Barrier by dissemination.
//
// In round k every rank sends a message without content to the rank 2^k ahead and waits for that of
// the rank 2^k behind; whoever got through the last round has heard, at second hand, from
// everybody.
//
// Phases: ceil(log2 p) rounds of send and receive.
// Source: Hensgen, Finkel and Manber, Two algorithms for barrier synchronization, IJPP 17(1), 1988.
// Steps:  ceil(log2 p).   Bytes: none.
#include "collectives/barrier/dissemination.hpp"

#include "collectives/flight.hpp"
#include "collectives/patterns/dissemination.hpp"

namespace hpcomm {

void dissemination_barrier(Endpoint& endpoint, const CollectiveRequest& request, const Signature&) {
  const int rank = endpoint.rank();
  const int size = endpoint.size();
  Flight flight(endpoint, request);
  for (int round = 0; round < dissemination::num_rounds(size); ++round) {
    flight.recv_token(dissemination::from(rank, round, size));
    flight.send_token(dissemination::to(rank, round, size));
    flight.wait();
  }
}

}  // namespace hpcomm
