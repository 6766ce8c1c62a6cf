// Memory that all ranks of one communicator see, for algorithms that read and write it directly
// instead of sending. Present only where the whole communicator shares it: processes of one node
// (shm) or threads of one process (loopback).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "core/dtype.hpp"

namespace hpcomm {

enum class Collective : std::uint8_t { barrier, broadcast, allreduce, allgather, reduce_scatter };

constexpr const char* name_of(Collective kind) noexcept {
  constexpr const char* names[] = {"barrier", "broadcast", "allreduce", "allgather",
                                   "reduce_scatter"};
  return names[static_cast<int>(kind)];
}

/// What a rank is about to do; all ranks of a collective must have equal ones. `algorithm` is the
/// index in the table of the kind, so that ranks whose overrides differ do not wait for each
/// other's messages.
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

/// What a rank shows its peers in one phase of a collective, all in one cache line so that a waiter
/// fetches it at once. `signature` and `payload` are plain memory: written before the release store
/// of `sequence`, read after an acquire load of it.
struct alignas(64) Publication {
  static constexpr std::size_t kPayloadBytes = 40;
  std::atomic<std::uint64_t> sequence{0};  // the latest phase shown here
  Signature signature{};
  alignas(8) std::byte payload[kPayloadBytes]{};
};
static_assert(sizeof(Publication) == 64);

/// One per rank, written by its owner alone. Phases are numbered by a monotone counter of the
/// communicator (`Endpoint::sequence`), equal on all ranks, so they cannot alias between calls.
/// Phase s is shown in publication s % 2: every phase waits for all ranks, so whoever shows s + 2
/// has seen all ranks show s + 1, hence be done with reading s. 128 bytes keep the adjacent-line
/// prefetcher of other ranks away.
struct alignas(128) ControlLine {
  Publication publications[2];
  Publication& of(std::uint64_t phase) noexcept { return publications[phase % 2]; }
};
static_assert(sizeof(ControlLine) == 128);

class SharedGroup {
 public:
  virtual ~SharedGroup() = default;
  virtual ControlLine& control(int rank) noexcept = 0;
  /// Staging memory written by `rank` alone, 64-byte aligned, equal size on all ranks: kSlots slots
  /// of `slot_bytes()` >= 64 * ranks each. What is staged for phase s lies in slot s % kSlots and
  /// is read in phases s and s + 1 (an owner may replace what it staged by a result in between). It
  /// is overwritten for phase s + 3 at the earliest, by a rank that has seen all ranks show s + 2,
  /// hence be done with reading in s + 1.
  static constexpr int kSlots = 3;
  virtual std::byte* slot(int rank, int index) noexcept = 0;
  virtual std::size_t slot_bytes() const noexcept = 0;
  /// Wakes peers that sleep: call it after each store to one's own `sequence`. One load per peer
  /// while nobody sleeps.
  virtual void wake() noexcept {}
};

}  // namespace hpcomm
