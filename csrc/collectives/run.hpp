// The door of every collective: choose, agree, run.
#pragma once

#include <string_view>

#include "collectives/request.hpp"
#include "collectives/selection.hpp"
#include "transport/endpoint.hpp"

namespace hpcomm {

/// Runs `request` on the calling thread until it is complete on this rank. All ranks must call with
/// equal kind, dtype, op, count and root; a disagreement throws the same Error(mismatch) on every
/// rank before any buffer is touched and leaves the endpoint usable. Where one rank's own arguments
/// are wrong, that rank throws what it found (invalid_argument, unsupported) and the others throw
/// Error(mismatch) about it. `algorithm` names a row of the table; empty lets `selection` choose.
void run_collective(Endpoint& endpoint, const Selection& selection,
                    const CollectiveRequest& request, std::string_view algorithm = {});

}  // namespace hpcomm
