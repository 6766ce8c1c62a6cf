// Reduce-scatter over shared memory.
//
// Every rank stages a piece of each other rank's part where all can read it; each rank reduces the
// pieces of its own part from all ranks, in the order of the ranks, in wide precision, with one
// rounding.
//
// Phases: for each chunk: copy to the outbox, advance, reduce from all inboxes.
// Source: staged one-shot reduction with double buffering and monotone counters, as in the
//         release-gather collectives of MPICH and the symmetric reductions for inference on CPUs.
// Steps:  ceil(n / chunk).   Bytes read from others: n - n/p.
// Order:  by rank.
#include "collectives/reduce_scatter/shared.hpp"

#include <algorithm>
#include <vector>

#include "collectives/shared_phases.hpp"
#include "reduce/reduce.hpp"

namespace hpcomm {

void shared_reduce_scatter(Endpoint& endpoint, const CollectiveRequest& request,
                           const Signature& signature) {
  SharedPhases phases(endpoint, request, signature);
  const int rank = phases.rank();
  const int size = phases.size();
  const Parts parts = parts_of(request, size);
  const std::size_t width = size_bytes(request.dtype);
  // All parts have equal room in the outbox, whole cache lines where they do not fit into one line.
  const std::size_t room = phases.chunk_bytes() / static_cast<std::size_t>(size) / 64 * 64;
  HPCOMM_CHECK(room > 0, Errc::internal, "staging slots are too small for ", size, " ranks");
  const std::size_t length = std::max<std::size_t>(1, std::min(room / width, parts.largest()));
  const std::size_t staged = static_cast<std::size_t>(size) * length * width;
  std::vector<const std::byte*> inputs(static_cast<std::size_t>(size));
  const std::size_t my_place = static_cast<std::size_t>(rank) * length * width;

  for (std::size_t chunk = 0; chunk < num_windows(length, parts.largest()); ++chunk) {
    std::byte* outbox = phases.outbox(staged);
    for (int peer = 0; peer < size; ++peer) {
      if (peer == rank) continue;
      const Window theirs = window_of(chunk, length, parts.count(peer));
      copy_bytes(outbox + static_cast<std::size_t>(peer) * length * width,
                 request.send.data + (parts.offset(peer) + theirs.begin) * width,
                 theirs.count * width);
    }
    phases.advance();
    const Window mine = window_of(chunk, length, parts.count(rank));
    for (int peer = 0; peer < size; ++peer)
      inputs[static_cast<std::size_t>(peer)] = phases.inbox(peer, staged) + my_place;
    inputs[static_cast<std::size_t>(rank)] =
        request.send.data + (parts.offset(rank) + mine.begin) * width;
    reduce(request.dtype, request.op, request.recv.data + mine.begin * width, inputs, mine.count,
           size);
    phases.count_read(static_cast<std::size_t>(size - 1) * mine.count * width);
  }
}

}  // namespace hpcomm
