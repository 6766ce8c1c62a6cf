// The narrow waist: all that an algorithm may ask of a medium. Waiting with a deadline is written
// once, on top, in endpoint.hpp. Implementations: loopback (ranks are threads), shm (ranks are
// processes of one node), mpi.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/buffer.hpp"
#include "core/error.hpp"

namespace hpcomm {

/// Matching is by (peer, tag) in posting order, like MPI's. User tags and the library's own never
/// meet: see tag.hpp.
using Tag = std::uint32_t;

/// Names one pending operation of one transport; 0 is "none".
using Ticket = std::uint64_t;

/// The first failure of a group as far as a rank knows it. `origin` is where it began, which need
/// not be who tells it: for `peer_dead` the rank that died, -1 if that is none of this
/// communicator.
struct Failure {
  Errc code = Errc::internal;
  int origin = -1;
  std::string message;
};

/// One per communicator and medium. Not thread-safe: the owning Endpoint serialises calls.
class Transport {
 public:
  virtual ~Transport() = default;
  virtual std::string_view name() const noexcept = 0;
  /// True where `peer` (a rank of the communicator, oneself included) can be reached over this
  /// medium.
  virtual bool reaches(int peer) const noexcept = 0;
  /// Never blocks. `src` must stay valid and unchanged until the ticket tests true.
  virtual Ticket isend(ConstBuffer src, int peer, Tag tag) = 0;
  /// Never blocks. A message of another length than `dst` is an Error(mismatch) at test().
  virtual Ticket irecv(Buffer dst, int peer, Tag tag) = 0;
  /// Makes progress on everything pending; true once `ticket` is complete, which frees it. Throws
  /// Error.
  virtual bool test(Ticket ticket) = 0;
  /// Gives up on a pending operation, after which its buffer is no longer touched.
  virtual void cancel(Ticket ticket) noexcept = 0;
  /// Makes progress on everything pending without asking for one ticket.
  virtual void progress() = 0;
  /// Bytes of the oldest message of (peer, tag) that no receive has been posted for; none if there
  /// is none yet. Never blocks.
  virtual std::optional<std::size_t> iprobe(int peer, Tag tag) = 0;
  /// Slow path of a wait: throws Error(peer_dead | peer_aborted) if `peer` cannot answer any more.
  virtual void check_peer(int peer) = 0;
  /// Slow path too: throws announced_failure() if any reachable peer announced one, waited for or
  /// not.
  virtual void check_announcements() = 0;
  /// Tells every reachable peer that the group failed, so that their waits end. Best effort; the
  /// first call counts.
  virtual void announce_failure(const Failure& failure) noexcept = 0;
  /// Says goodbye: peers that still wait for this rank get an error. No other call follows.
  virtual void close() noexcept {}
};

}  // namespace hpcomm
