// Reduce-scatter in a ring.
//
// Every rank owns one part of the vector. A part starts at the rank behind its owner and travels
// once around the ring; each rank adds its own contribution and passes the partial result on, and
// the owner adds the last. In each step every rank sends one part and receives another, so all
// links work all the time.
//
// Phases: for each segment of the parts, p-1 steps of send, receive, add.
// Source: Patarasuk and Yuan, Bandwidth optimal all-reduce algorithms for clusters of workstations,
//         JPDC 69(2), 2009.
// Steps:  (p-1) per segment.   Bytes: n - n/p, the least possible.
// Order:  part j is added in the order j+1, j+2, …, j, so it depends on the position of an element;
//         float16 and bfloat16 are rounded in every step. avg divides in the owner's last step.
#include <algorithm>

#include "collectives/flight.hpp"
#include "collectives/patterns/ring.hpp"
#include "collectives/reduce_scatter/exchange.hpp"
#include "collectives/scratch.hpp"
#include "reduce/reduce.hpp"

namespace hpcomm {

void ring_reduce_scatter(Endpoint& endpoint, const CollectiveRequest& request, const Parts& parts,
                         const std::byte* send, std::byte* recv) {
  const int rank = endpoint.rank();
  const int size = endpoint.size();
  const std::size_t width = size_bytes(request.dtype);
  if (size == 1) return reduce_alone(request, send, recv, parts.count(0));

  const std::size_t length = std::min(kRingSegmentBytes / width, parts.largest());
  Scratch scratch(2 * length * width);
  Flight flight(endpoint, request);
  const std::size_t num_segments = length == 0 ? 0 : num_windows(length, parts.largest());
  for (std::size_t segment = 0; segment < num_segments; ++segment) {
    // What the last step left in the one half is sent while the other half is received into.
    const std::byte* outgoing = nullptr;
    for (int step = 0; step < ring::num_steps(size); ++step) {
      const int out = ring::reduce_send(rank, step, size);
      const int in = ring::reduce_recv(rank, step, size);
      const Window out_window = window_of(segment, length, parts.count(out));
      const Window in_window = window_of(segment, length, parts.count(in));
      std::byte* incoming = scratch.data() + static_cast<std::size_t>(step % 2) * length * width;
      if (step == 0) outgoing = send + (parts.offset(out) + out_window.begin) * width;
      flight.recv(incoming, in_window.count * width, ring::predecessor(rank, size));
      flight.send(outgoing, out_window.count * width, ring::successor(rank, size));
      flight.wait();

      const bool is_last = step == ring::num_steps(size) - 1;
      const std::byte* inputs[] = {incoming, send + (parts.offset(in) + in_window.begin) * width};
      reduce(request.dtype, is_last ? request.op : partial_of(request.op),
             is_last ? recv + in_window.begin * width : incoming, inputs, in_window.count, size);
      outgoing = incoming;
    }
  }
}

void reduce_alone(const CollectiveRequest& request, const std::byte* send, std::byte* recv,
                  std::size_t count) {
  const std::byte* inputs[] = {send};
  reduce(request.dtype, request.op, recv, inputs, count);
}

double ring_segments(int size, std::size_t nbytes) {
  const std::size_t ranks = static_cast<std::size_t>(size);
  return static_cast<double>(num_windows(kRingSegmentBytes, (nbytes + ranks - 1) / ranks));
}

}  // namespace hpcomm
