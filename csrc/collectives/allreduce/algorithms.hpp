// The allreduce algorithms, for table.cpp.
#pragma once

#include "collectives/request.hpp"
#include "transport/endpoint.hpp"

namespace hpcomm {

void ring_allreduce(Endpoint& endpoint, const CollectiveRequest& request, const Signature&);
void direct_allreduce(Endpoint& endpoint, const CollectiveRequest& request, const Signature&);
void doubling_allreduce(Endpoint& endpoint, const CollectiveRequest& request, const Signature&);
void shared_allreduce(Endpoint& endpoint, const CollectiveRequest& request,
                      const Signature& signature);

/// From this size on, three and more ranks reduce slices and share the results, instead of each
/// reducing everything.
inline constexpr std::size_t kSharedTwoShotBytes = 16 * 1024;

}  // namespace hpcomm
