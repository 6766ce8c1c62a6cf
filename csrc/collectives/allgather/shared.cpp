// Allgather over shared memory.
//
// Every rank stages a chunk of its part where all can read it, and copies the chunks of all others.
//
// Phases: for each chunk: copy to the outbox, advance, copy from all inboxes.
// Source: staging with double buffering and monotone counters, as in the release-gather collectives
//         of MPICH.
// Steps:  ceil(n/p / chunk).   Bytes read from others: n - n/p.
#include "collectives/allgather/shared.hpp"

#include <algorithm>

#include "collectives/shared_phases.hpp"

namespace hpcomm {

void shared_allgather(Endpoint& endpoint, const CollectiveRequest& request,
                      const Signature& signature) {
  SharedPhases phases(endpoint, request, signature);
  const int rank = phases.rank();
  const Parts parts = parts_of(request, phases.size());
  const std::size_t width = size_bytes(request.dtype);
  const std::size_t length = phases.chunk_bytes() / width;
  for (std::size_t chunk = 0; chunk < num_windows(length, parts.largest()); ++chunk) {
    const Window mine = window_of(chunk, length, parts.count(rank));
    const std::byte* own = request.send.data + mine.begin * width;
    copy_bytes(phases.outbox(mine.count * width), own, mine.count * width);
    phases.advance();
    for (int peer = 0; peer < phases.size(); ++peer) {
      const Window theirs = window_of(chunk, length, parts.count(peer));
      const std::size_t nbytes = theirs.count * width;
      std::byte* to = request.recv.data + (parts.offset(peer) + theirs.begin) * width;
      copy_bytes(to, peer == rank ? own : phases.inbox(peer, nbytes), nbytes);
      if (peer != rank) phases.count_read(nbytes);
    }
  }
}

}  // namespace hpcomm
