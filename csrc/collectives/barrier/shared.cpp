// Barrier over shared memory: one phase, which waits for all ranks by itself.
//
// Source: central barrier with one counter per rank, each written by its owner alone.
// Steps:  1.   Bytes: none.
#include "collectives/barrier/shared.hpp"

#include "collectives/shared_phases.hpp"

namespace hpcomm {

void shared_barrier(Endpoint& endpoint, const CollectiveRequest& request,
                    const Signature& signature) {
  SharedPhases(endpoint, request, signature).advance();
}

}  // namespace hpcomm
