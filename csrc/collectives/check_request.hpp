// What one rank alone can find wrong with a request.
#pragma once

#include <string>

#include "collectives/request.hpp"

namespace hpcomm {

/// Throws Error(invalid_argument) or Error(unsupported). `name` is the communicator's.
void check_request(const CollectiveRequest& request, int rank, int size, const std::string& name);

}  // namespace hpcomm
