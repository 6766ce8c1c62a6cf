// Control lines and slots on the heap, for ranks that are threads.
#pragma once

#include <cstddef>
#include <memory>

#include "transport/shared_group.hpp"

namespace hpcomm::loopback {

class HeapSharedGroup final : public SharedGroup {
 public:
  /// `slot_bytes` is rounded up to a multiple of 64 and to at least 64 per rank.
  HeapSharedGroup(int size, std::size_t slot_bytes)
      : slot_bytes_(rounded(slot_bytes < 64 * count(size) ? 64 * count(size) : slot_bytes)),
        controls_(std::make_unique<ControlLine[]>(count(size))),
        lines_(std::make_unique_for_overwrite<Line[]>(count(size) * kSlots * slot_bytes_ /
                                                      sizeof(Line))) {}

  ControlLine& control(int rank) noexcept override { return controls_[count(rank)]; }
  std::byte* slot(int rank, int index) noexcept override {
    return reinterpret_cast<std::byte*>(lines_.get()) +
           (count(rank) * kSlots + count(index)) * slot_bytes_;
  }
  std::size_t slot_bytes() const noexcept override { return slot_bytes_; }

 private:
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  static std::size_t count(int n) noexcept { return static_cast<std::size_t>(n); }
  static std::size_t rounded(std::size_t nbytes) noexcept { return (nbytes + 63) / 64 * 64; }

  std::size_t slot_bytes_;
  std::unique_ptr<ControlLine[]> controls_;
  std::unique_ptr<Line[]> lines_;
};

}  // namespace hpcomm::loopback
