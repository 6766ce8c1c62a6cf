#pragma once

#include "collectives/request.hpp"
#include "transport/endpoint.hpp"

namespace hpcomm {

void dissemination_barrier(Endpoint& endpoint, const CollectiveRequest& request,
                           const Signature& signature);

}  // namespace hpcomm
