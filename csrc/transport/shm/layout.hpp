// What lies where in the memory that one rank owns and its peers map.
//   header | control line | slots | for each sending peer: head line, tail line, data
#pragma once

#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "core/doorbell.hpp"
#include "transport/shared_group.hpp"

namespace hpcomm::shm {

using Nonce = std::array<std::uint8_t, 16>;

inline constexpr std::uint64_t kMagic = 0x68'70'63'6f'6d'6d'31'0a;
inline constexpr std::uint32_t kVersion = 1;
inline constexpr std::size_t kPageBytes = 4096;
inline constexpr std::size_t kMaxFailureText = 3000;

enum class RankState : std::uint32_t { open, failed, closed };

/// Written by its owner before anybody else maps it, but for what is atomic.
struct SegmentHeader {
  std::uint64_t magic = kMagic;
  std::uint32_t version = kVersion;
  std::int32_t rank = -1;
  std::int32_t size = 0;
  std::int32_t pid = 0;
  std::uint64_t start_time = 0;
  std::uint64_t slot_bytes = 0;
  std::uint64_t ring_bytes = 0;
  std::uint64_t total_bytes = 0;
  Nonce nonce{};

  alignas(128) std::atomic<RankState> state{RankState::open};
  // The first failure this rank knows of; valid once `state` is `failed`.
  std::int32_t failure_code = 0;
  std::int32_t failure_origin = -1;
  std::uint32_t failure_length = 0;
  char failure_text[kMaxFailureText]{};

  alignas(128) Doorbell bell;  // the owner sleeps here
  alignas(128) ControlLine control;
};
static_assert(sizeof(SegmentHeader) <= kPageBytes);

/// Positions count bytes since the beginning and never wrap. Producer and consumer each write one
/// line of their own.
struct RingLines {
  alignas(128) std::atomic<std::uint64_t> head{0};  // written by the sending peer
  alignas(128) std::atomic<std::uint64_t> tail{0};  // written by the owner of the segment
};

/// Sizes that all ranks of a communicator share.
struct Geometry {
  int size = 1;
  std::size_t slot_bytes = 0;  // a multiple of kPageBytes
  std::size_t ring_bytes = 0;  // a power of two, at least kPageBytes

  std::size_t slots_offset() const noexcept { return kPageBytes; }
  std::size_t rings_offset() const noexcept {
    return slots_offset() + static_cast<std::size_t>(SharedGroup::kSlots) * slot_bytes;
  }
  std::size_t ring_stride() const noexcept { return kPageBytes + ring_bytes; }
  std::size_t total_bytes() const noexcept {
    return rings_offset() + static_cast<std::size_t>(size) * ring_stride();
  }
};

}  // namespace hpcomm::shm
