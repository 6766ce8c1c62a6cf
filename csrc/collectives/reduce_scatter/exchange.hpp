// Reduce-scatter by messages, as functions that allreduce is composed of.
#pragma once

#include <cstddef>

#include "collectives/request.hpp"
#include "transport/endpoint.hpp"

namespace hpcomm {

/// Bytes of a part that travel at a time: the temporary memory of a call stays this small, and what
/// has just been received is still in the second-level cache when it is added.
inline constexpr std::size_t kRingSegmentBytes = 256 * 1024;
/// Temporary memory for the contributions of all other ranks in a direct exchange.
inline constexpr std::size_t kDirectScratchBytes = 1024 * 1024;

/// Bytes of one rank's contribution that a direct exchange handles at a time.
constexpr std::size_t direct_segment_bytes(int size) noexcept {
  const std::size_t others = size > 1 ? static_cast<std::size_t>(size) - 1 : 1;
  const std::size_t lines = kDirectScratchBytes / others / 64;
  return 64 * (lines > 0 ? lines : 1);
}

/// `parts` of the vector `send` are reduced with the request's dtype and op over all ranks; this
/// rank's goes to `recv`, which may be the place of that part in `send`.
void ring_reduce_scatter(Endpoint& endpoint, const CollectiveRequest& request, const Parts& parts,
                         const std::byte* send, std::byte* recv);
void direct_reduce_scatter(Endpoint& endpoint, const CollectiveRequest& request, const Parts& parts,
                           const std::byte* send, std::byte* recv);

/// The reduction of one rank's vector: a copy, but that bool becomes 0 or 1 as with more ranks.
void reduce_alone(const CollectiveRequest& request, const std::byte* send, std::byte* recv,
                  std::size_t count);

/// Segments of the largest part of `nbytes` over `size` ranks.
double ring_segments(int size, std::size_t nbytes);
double direct_segments(int size, std::size_t nbytes);

}  // namespace hpcomm
