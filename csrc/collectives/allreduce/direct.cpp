// Allreduce whose result does not depend on the place of an element.
//
// The vector is divided among the ranks; each collects the contributions to its part from all ranks
// at once and adds them in rank order, in wide precision; a ring allgather spreads the parts.
//
// Phases: reduce_scatter/direct.cpp, allgather/ring.cpp.
// Source: Thakur, Rabenseifner and Gropp, Optimization of collective communication operations in
//         MPICH, IJHPCA 19(1), 2005, with a direct exchange in the first half.
// Steps:  (p-1) per segment of a part, independent of each other, and p-1 more.
// Bytes:  2 (n - n/p), the least possible.   Order: by rank.
#include "collectives/allgather/exchange.hpp"
#include "collectives/allreduce/algorithms.hpp"
#include "collectives/reduce_scatter/exchange.hpp"

namespace hpcomm {

void direct_allreduce(Endpoint& endpoint, const CollectiveRequest& request, const Signature&) {
  const Parts parts = Parts::even(request.count, endpoint.size());
  const std::size_t mine = parts.offset(endpoint.rank()) * size_bytes(request.dtype);
  direct_reduce_scatter(endpoint, request, parts, request.send.data, request.recv.data + mine);
  ring_allgather(endpoint, request, parts, request.recv.data);
}

}  // namespace hpcomm
