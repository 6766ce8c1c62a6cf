// The errors that every transport reports in the same words.
#pragma once

#include <string>
#include <string_view>

#include "core/error.hpp"
#include "transport/transport.hpp"

namespace hpcomm {

/// A message of another length than the receive that it matches.
Error length_mismatch(int own_rank, int peer, Tag tag, std::size_t expected_nbytes,
                      std::size_t message_nbytes);
/// What a rank tells its peers about an error that broke its communicator: the first failure, also
/// where that was told by a peer.
Failure failure_of(const Error& error, int own_rank);
/// The inverse: what a rank throws that was told. A death is a death for all survivors; any other
/// failure is one of `failure.origin` and nobody else's.
Error announced_failure(const Failure& failure);
/// One sentence that names the rank.
std::string describe(const Failure& failure);
/// `peer` closed the communicator while this rank waits for it.
Error left_too_early(std::string_view communicator, int peer, int own_rank);
/// The process of `peer` has ended; `pid` 0: unknown.
Error peer_died(std::string_view communicator, int peer, long pid, int own_rank);

}  // namespace hpcomm
