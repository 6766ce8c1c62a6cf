// Memory that all ranks of one communicator see, for algorithms that read and write it directly instead of sending.
// Present only where the whole communicator shares it: processes of one node (shm) or threads of one process (loopback).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "core/dtype.hpp"

namespace hpcomm {

enum class Collective : std::uint8_t { barrier, broadcast, allreduce, allgather, reduce_scatter };

constexpr const char* name_of(Collective kind) noexcept {
  constexpr const char* names[] = {"barrier", "broadcast", "allreduce", "allgather", "reduce_scatter"};
  return names[static_cast<int>(kind)];
}

/// What a rank is about to do; all ranks of a collective must have equal ones. `algorithm` is the index in the table of
/// the kind, so that ranks whose overrides differ do not wait for each other's messages.
struct Signature {
  Collective kind = Collective::barrier;
  DType dtype = DType::u8;
  ReduceOp op = ReduceOp::sum;
  std::uint8_t algorithm = 0;
  std::int32_t root = -1;
  std::uint64_t count = 0;  // elements; for vector variants a hash of all counts

  friend bool operator==(const Signature&, const Signature&) = default;
};
static_assert(sizeof(Signature) == 16);

/// What a rank shows its peers in one phase of a collective, all in one cache line so that a waiter fetches it at once.
/// `signature` and `payload` are plain memory: written before the release store of `sequence`, read after an acquire load
/// of it.
struct alignas(64) Publication {
  static constexpr std::size_t kPayloadBytes = 40;
  std::atomic<std::uint64_t> sequence{0};  // the latest phase shown here
  Signature signature{};
  alignas(8) std::byte payload[kPayloadBytes]{};
};
static_assert(sizeof(Publication) == 64);

/// One per rank, written by its owner alone. `sequence` is a monotone counter of this communicator's collectives and their
/// phases, so it cannot alias between calls; it is stored last, with release order. Counter, signature and payload are one
/// cache line; the second keeps the adjacent-line prefetcher away.
struct alignas(128) ControlLine {
  static constexpr std::size_t kInlineBytes = 40;
  std::atomic<std::uint64_t> sequence{0};
  Signature signature{};
  std::byte payload[kInlineBytes]{};
};
static_assert(sizeof(ControlLine) == 128);

class SharedGroup {
 public:
  virtual ~SharedGroup() = default;
  virtual ControlLine& control(int rank) noexcept = 0;
  /// Staging memory owned by `rank`, 64-byte aligned, equal size on all ranks: `slots()` slots of `slot_bytes()`.
  virtual std::byte* slot(int rank, int index) noexcept = 0;
  virtual int slots() const noexcept = 0;
  virtual std::size_t slot_bytes() const noexcept = 0;
  /// Wakes peers that sleep: call it after each store to one's own `sequence`. One load per peer while nobody sleeps.
  virtual void wake() noexcept {}
};

}  // namespace hpcomm
