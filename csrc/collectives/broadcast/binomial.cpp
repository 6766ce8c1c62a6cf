// Broadcast in a binomial tree.
//
// Whoever has the data passes it on, so the number of ranks that have it doubles in each round.
//
// Phases: receive from the parent; send to all children, those with the largest subtrees first.
// Source: Thakur, Rabenseifner and Gropp, Optimization of collective communication operations in
//         MPICH, IJHPCA 19(1), 2005.
// Steps:  ceil(log2 p).   Bytes: n ceil(log2 p), by the root.
#include "collectives/broadcast/binomial.hpp"

#include "collectives/flight.hpp"
#include "collectives/patterns/binomial_tree.hpp"

namespace hpcomm {

void binomial_broadcast(Endpoint& endpoint, const CollectiveRequest& request, const Signature&) {
  const BinomialNode node = binomial_node(endpoint.rank(), request.root, endpoint.size());
  const std::size_t nbytes = request.count * size_bytes(request.dtype);
  const std::byte* data = node.parent < 0 ? request.send.data : request.recv.data;
  Flight flight(endpoint, request);
  if (node.parent >= 0) {
    flight.recv(request.recv.data, nbytes, node.parent);
    flight.wait();
  }
  for (const int child : node.children) flight.send(data, nbytes, child);
  if (node.parent < 0 && request.recv.data != nullptr) copy_bytes(request.recv.data, data, nbytes);
  flight.wait();
}

}  // namespace hpcomm
