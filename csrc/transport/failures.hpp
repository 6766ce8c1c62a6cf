// The errors that every transport reports in the same words.
#pragma once

#include <string_view>

#include "core/error.hpp"
#include "transport/transport.hpp"

namespace hpcomm {

/// A message of another length than the receive that it matches.
Error length_mismatch(int own_rank, int peer, Tag tag, std::size_t expected_nbytes,
                      std::size_t message_nbytes);
/// `origin` failed and said why.
Error announced_failure(int origin, std::string_view message);
/// `peer` closed the communicator while this rank waits for it.
Error left_too_early(std::string_view communicator, int peer, int own_rank);
/// The process of `peer` has ended; `pid` 0: unknown.
Error peer_died(std::string_view communicator, int peer, long pid, int own_rank);

}  // namespace hpcomm
