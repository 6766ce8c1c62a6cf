// Tells a process from its forked children.
#pragma once

#include <cstdint>

namespace hpcomm {

/// A number that is greater in a child made by fork than in its parent. Objects that remember the
/// number of their birth know whether they still live in the process that owns their threads and
/// shared memory.
std::uint64_t process_generation() noexcept;

}  // namespace hpcomm
