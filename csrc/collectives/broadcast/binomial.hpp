#pragma once

#include "collectives/request.hpp"
#include "transport/endpoint.hpp"

namespace hpcomm {

void binomial_broadcast(Endpoint& endpoint, const CollectiveRequest& request,
                        const Signature& signature);

}  // namespace hpcomm
