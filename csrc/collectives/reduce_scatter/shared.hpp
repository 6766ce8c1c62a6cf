#pragma once

#include "collectives/request.hpp"
#include "transport/endpoint.hpp"

namespace hpcomm {

void shared_reduce_scatter(Endpoint& endpoint, const CollectiveRequest& request,
                           const Signature& signature);

}  // namespace hpcomm
