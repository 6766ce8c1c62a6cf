// One table per collective, defined in <collective>/table.cpp.
#pragma once

#include <span>

#include "collectives/algorithm.hpp"

namespace hpcomm {

std::span<const Algorithm> barrier_algorithms();
std::span<const Algorithm> broadcast_algorithms();
std::span<const Algorithm> allreduce_algorithms();
std::span<const Algorithm> allgather_algorithms();
std::span<const Algorithm> reduce_scatter_algorithms();

inline bool supports_any(const Situation&) { return true; }
inline bool supports_shared(const Situation& situation) { return situation.shared; }

}  // namespace hpcomm
