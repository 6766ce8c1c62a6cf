// How algorithms use the memory that all ranks of a communicator share: in phases. A rank puts data
// where others can read it, shows the number of the phase, and waits until all ranks have shown it.
// The first phase of a call compares signatures. Why nothing is overwritten that somebody still
// reads is explained at ControlLine and SharedGroup in transport/shared_group.hpp.
#pragma once

#include <cstddef>
#include <cstdint>

#include "collectives/request.hpp"
#include "transport/endpoint.hpp"

namespace hpcomm {

class SharedPhases {
 public:
  /// Bytes that are staged at a time where a vector is long: those of two ranks and the buffers
  /// they come from stay in the second-level cache.
  static constexpr std::size_t kChunkBytes = 32 * 1024;

  /// All must outlive it; the endpoint has shared memory.
  SharedPhases(Endpoint& endpoint, const CollectiveRequest& request, const Signature& signature);

  int rank() const noexcept { return rank_; }
  int size() const noexcept { return size_; }
  /// Of one rank's staging in one phase.
  std::size_t chunk_bytes() const noexcept { return chunk_bytes_; }

  /// Where to put `nbytes` <= chunk_bytes() for the coming phase. Few bytes travel in the control
  /// line itself.
  std::byte* outbox(std::size_t nbytes) noexcept;
  /// Shows this rank's phase and waits for that of all others. Throws Error(mismatch) in the first
  /// phase if the signatures differ.
  void advance();
  /// What `peer` put into its outbox(nbytes) for the phase just reached.
  const std::byte* inbox(int peer, std::size_t nbytes) noexcept;
  /// Slots by themselves, for what is not to travel in the control line: that of this rank for the
  /// coming phase, and that of any rank of the phase just reached. In its own slot a rank may write
  /// until the next phase where no other rank reads; the others may read that in the next phase.
  std::byte* next_slot() noexcept;
  std::byte* slot(int peer) noexcept;
  /// For the counters: `nbytes` were read out of other ranks' memory.
  void count_read(std::size_t nbytes) noexcept { endpoint_.count_shared_read(nbytes); }

 private:
  bool all_shown() noexcept;
  void wait_slowly();
  void compare_signatures();
  std::byte* place(int owner, std::uint64_t phase, std::size_t nbytes) noexcept;

  Endpoint& endpoint_;
  SharedGroup& group_;
  const CollectiveRequest& request_;
  const Signature signature_;
  const int rank_;
  const int size_;
  const std::size_t chunk_bytes_;
  std::uint64_t phase_;
  int num_shown_ = 0;  // ranks [0, num_shown_) are known to have shown the phase
  bool is_open_ = false;
};

}  // namespace hpcomm
