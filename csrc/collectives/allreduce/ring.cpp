// Allreduce in a ring.
//
// The vector is divided among the ranks; a ring reduce-scatter leaves each rank with its reduced
// part, a ring allgather spreads the parts.
//
// Phases: reduce_scatter/ring.cpp, allgather/ring.cpp.
// Source: Patarasuk and Yuan, Bandwidth optimal all-reduce algorithms for clusters of workstations,
//         JPDC 69(2), 2009.
// Steps:  (p-1) per segment of a part, and p-1 more.   Bytes: 2 (n - n/p), the least possible.
// Order:  by position; the same bits on all ranks, since each part is reduced once.
#include "collectives/allgather/exchange.hpp"
#include "collectives/allreduce/algorithms.hpp"
#include "collectives/reduce_scatter/exchange.hpp"

namespace hpcomm {

void ring_allreduce(Endpoint& endpoint, const CollectiveRequest& request, const Signature&) {
  const Parts parts = Parts::even(request.count, endpoint.size());
  const std::size_t mine = parts.offset(endpoint.rank()) * size_bytes(request.dtype);
  ring_reduce_scatter(endpoint, request, parts, request.send.data, request.recv.data + mine);
  ring_allgather(endpoint, request, parts, request.recv.data);
}

}  // namespace hpcomm
