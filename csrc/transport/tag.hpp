// Tags are few and bounded: one constant per purpose, never a counter, because messages of one
// (peer, tag) arrive in posting order anyway and MPI guarantees no more than 32767.
#pragma once

#include "transport/transport.hpp"

namespace hpcomm::tag {

inline constexpr Tag kUserLimit = 16384;            // user tags are [0, kUserLimit)
inline constexpr Tag kCollective = kUserLimit + 1;  // data of collectives
inline constexpr Tag kSignature = kUserLimit + 2;   // agreement on what is called
inline constexpr Tag kObject = kUserLimit + 3;      // pickled objects
inline constexpr Tag kControl = kUserLimit + 4;     // failure announcements between nodes
inline constexpr Tag kBootstrap = kUserLimit + 5;   // exchanges that create a child communicator
inline constexpr Tag kLength =
    kUserLimit + 6;  // lengths of messages that MPI carries in several pieces

}  // namespace hpcomm::tag
