// Allgather by messages, as a function that allreduce is composed of.
#pragma once

#include <cstddef>

#include "collectives/request.hpp"
#include "transport/endpoint.hpp"

namespace hpcomm {

/// Every rank's part lies in its place in `data`; afterwards all parts do.
void ring_allgather(Endpoint& endpoint, const CollectiveRequest& request, const Parts& parts,
                    std::byte* data);

}  // namespace hpcomm
