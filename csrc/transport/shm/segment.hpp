// The memory of one rank for one communicator: made by its owner, mapped by its peers.
#pragma once

#include <cstddef>
#include <string>

#include "transport/shm/layout.hpp"

namespace hpcomm::shm {

/// Owns one mapping, and the descriptor until close_descriptor(). Children of fork do not inherit
/// the mapping.
class Segment {
 public:
  Segment() = default;
  ~Segment();
  Segment(Segment&& other) noexcept;
  Segment& operator=(Segment&& other) noexcept;

  /// A new segment without a name in the file system: memfd, or where the kernel has none a POSIX
  /// object that is unlinked at once. Throws Error(transport) that says what to do.
  static Segment create(const Geometry& geometry, int rank, const Nonce& nonce);
  /// A new segment under `name` in /dev/shm, for peers that can reach no descriptor; all its memory
  /// is reserved.
  static Segment create_named(const Geometry& geometry, int rank, const Nonce& nonce,
                              const std::string& name);
  /// Maps a peer's. Takes over `descriptor`. Empty, with the reason in `why_not`, if that is not
  /// the segment looked for.
  static Segment map(int descriptor, const Geometry& geometry, int rank, const Nonce& nonce,
                     std::string& why_not);

  explicit operator bool() const noexcept { return base_ != nullptr; }
  SegmentHeader& header() const noexcept { return *reinterpret_cast<SegmentHeader*>(base_); }
  std::byte* slot(int index) const noexcept {
    return base_ + geometry_.slots_offset() +
           static_cast<std::size_t>(index) * geometry_.slot_bytes;
  }
  RingLines& ring_lines(int sender) const noexcept {
    return *reinterpret_cast<RingLines*>(ring(sender));
  }
  std::byte* ring_data(int sender) const noexcept { return ring(sender) + kPageBytes; }
  const Geometry& geometry() const noexcept { return geometry_; }
  int descriptor() const noexcept { return descriptor_; }
  void close_descriptor() noexcept;

 private:
  static Segment initialise(int descriptor, const Geometry& geometry, int rank, const Nonce& nonce);
  std::byte* ring(int sender) const noexcept {
    return base_ + geometry_.rings_offset() +
           static_cast<std::size_t>(sender) * geometry_.ring_stride();
  }
  bool map_memory(int descriptor) noexcept;

  std::byte* base_ = nullptr;
  Geometry geometry_;
  int descriptor_ = -1;
  std::uint64_t generation_ = 0;
};

Nonce make_nonce();
std::string to_hex(const Nonce& nonce);
/// Checks what the user may have chosen; throws Error(invalid_argument).
void check_geometry(const Geometry& geometry);

}  // namespace hpcomm::shm
