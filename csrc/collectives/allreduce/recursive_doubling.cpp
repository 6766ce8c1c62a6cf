// Allreduce by recursive doubling.
//
// In round k every rank exchanges its whole partial result with the one whose number differs in
// bit k, and both reduce the two. Where the number of ranks is no power of two, the surplus ranks
// first fold their data into a neighbour and get the result from it in the end.
//
// Phases: fold; floor(log2 p) exchanges; unfold.
// Source: Thakur, Rabenseifner and Gropp, Optimization of collective communication operations in
//         MPICH, IJHPCA 19(1), 2005.
// Steps:  floor(log2 p), and 2 more where ranks fold.
// Bytes:  n floor(log2 p), and n more for a rank that unfolds.
// Order:  by tree: lower ranks are always the left operand, so both partners get the same bits;
//         float16 and bfloat16 are rounded in every step. avg divides in the last exchange.
#include <utility>

#include "collectives/allreduce/algorithms.hpp"
#include "collectives/flight.hpp"
#include "collectives/patterns/recursive_doubling.hpp"
#include "collectives/reduce_scatter/exchange.hpp"
#include "collectives/scratch.hpp"
#include "reduce/reduce.hpp"

namespace hpcomm {

void doubling_allreduce(Endpoint& endpoint, const CollectiveRequest& request, const Signature&) {
  const int rank = endpoint.rank();
  const int size = endpoint.size();
  const std::size_t nbytes = request.count * size_bytes(request.dtype);
  if (size == 1) return reduce_alone(request, request.send.data, request.recv.data, request.count);

  const DoublingPlan plan = doubling_plan(rank, size);
  Flight flight(endpoint, request);
  if (plan.folds_into >= 0) {
    flight.send(request.send.data, nbytes, plan.folds_into);
    flight.wait();  // before the receive: both may be the same memory
    flight.recv(request.recv.data, nbytes, plan.folds_into);
    flight.wait();
    return;
  }

  Scratch scratch(nbytes);
  const std::byte* current = request.send.data;  // later recv: send is never written
  const auto combine = [&](int peer, ReduceOp op) {
    const std::byte* inputs[] = {current, scratch.data()};
    if (peer < rank) std::swap(inputs[0], inputs[1]);
    reduce(request.dtype, op, request.recv.data, inputs, request.count, size);
    current = request.recv.data;
  };
  if (plan.folded >= 0) {
    flight.recv(scratch.data(), nbytes, plan.folded);
    flight.wait();
    combine(plan.folded, partial_of(request.op));
  }
  for (const int partner : plan.partners) {
    flight.recv(scratch.data(), nbytes, partner);
    flight.send(current, nbytes, partner);
    flight.wait();
    combine(partner, partner == plan.partners.back() ? request.op : partial_of(request.op));
  }
  if (plan.folded >= 0) {
    flight.send(request.recv.data, nbytes, plan.folded);
    flight.wait();
  }
}

}  // namespace hpcomm
