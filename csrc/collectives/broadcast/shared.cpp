// Broadcast over shared memory.
//
// The root stages one chunk after another; all others copy it. While they copy, the root stages the
// next: it may go on as soon as they are done with the chunk before.
//
// Phases: for each chunk: the root copies to its outbox, all advance, the others copy.
// Source: staging with double buffering and monotone counters, as in the release-gather collectives
//         of MPICH.
// Steps:  ceil(n / chunk).   Bytes read from others: n.
#include "collectives/broadcast/shared.hpp"

#include "collectives/shared_phases.hpp"

namespace hpcomm {

void shared_broadcast(Endpoint& endpoint, const CollectiveRequest& request,
                      const Signature& signature) {
  SharedPhases phases(endpoint, request, signature);
  const bool is_root = phases.rank() == request.root;
  const std::size_t total = request.count * size_bytes(request.dtype);
  const std::size_t length = phases.chunk_bytes();
  for (std::size_t chunk = 0; chunk < num_windows(length, total); ++chunk) {
    const Window window = window_of(chunk, length, total);
    if (is_root)
      copy_bytes(phases.outbox(window.count), request.send.data + window.begin, window.count);
    phases.advance();
    if (!is_root) {
      copy_bytes(request.recv.data + window.begin, phases.inbox(request.root, window.count),
                 window.count);
      phases.count_read(window.count);
    }
  }
  if (is_root && request.recv.data != nullptr)
    copy_bytes(request.recv.data, request.send.data, total);
}

}  // namespace hpcomm
