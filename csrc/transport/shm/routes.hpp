// Three ways to get hold of a peer's segment. Each gives a descriptor for Segment::map, or -1 and
// the reason.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "transport/shm/layout.hpp"

namespace hpcomm::shm {

/// /proc/PID/fd/N of the owner: needs no help from it, but the right to look into its process.
int open_by_proc(pid_t pid, int descriptor, std::string& why_not);

/// The owner hands its descriptor out over an abstract socket (no name in the file system). In
/// steps that never wait for a peer, so that one that cannot connect holds up nobody; the callers
/// put a barrier between them.
class DescriptorSocket {
 public:
  explicit DescriptorSocket(const Nonce& own);
  ~DescriptorSocket();
  DescriptorSocket(const DescriptorSocket&) = delete;
  DescriptorSocket& operator=(const DescriptorSocket&) = delete;

  /// Step 1, by owners.
  void listen(int backlog) noexcept;
  /// Step 2, by those who look for the segment of `owner`. The index is for receive().
  std::size_t connect(const Nonce& owner, std::string& why_not) noexcept;
  /// Step 3, by owners: sends `descriptor` to all who connected and belong to the same user.
  void serve(int descriptor) noexcept;
  /// Step 4. `pid` becomes the owner's as seen from here.
  int receive(std::size_t connection, pid_t& pid, std::string& why_not) noexcept;

 private:
  Nonce own_;
  int listener_ = -1;
  std::vector<int> connections_;
};

/// Of a segment that create_named() made.
int open_by_name(const Nonce& owner, std::string& why_not);
std::string shm_name(const Nonce& owner);

}  // namespace hpcomm::shm
