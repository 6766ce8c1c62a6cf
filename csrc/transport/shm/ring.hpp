// A ring of bytes between one producer and one consumer in different processes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "transport/shm/layout.hpp"

namespace hpcomm::shm {

/// Before every message; messages begin at multiples of its size, so it never wraps around the end
/// of the ring.
struct MessageHeader {
  std::uint64_t nbytes = 0;
  std::uint32_t tag = 0;
  std::uint32_t magic = 0;
};
static_assert(sizeof(MessageHeader) == 16);
inline constexpr std::uint32_t kMessageMagic = 0x6d736731;

constexpr std::size_t padded(std::size_t nbytes) noexcept {
  return (nbytes + sizeof(MessageHeader) - 1) & ~(sizeof(MessageHeader) - 1);
}

/// The sending end. put() fills, publish() shows it to the consumer.
class RingProducer {
 public:
  RingProducer() = default;
  RingProducer(RingLines& lines, std::byte* data, std::size_t capacity)
      : lines_(&lines),
        data_(data),
        capacity_(capacity),
        head_(lines.head.load(std::memory_order_relaxed)) {}

  /// Free bytes; looks at the consumer's line only if fewer than `wanted` were free when it last
  /// did.
  std::size_t free_bytes(std::size_t wanted) noexcept {
    if (capacity_ - (head_ - seen_tail_) < wanted)
      seen_tail_ = lines_->tail.load(std::memory_order_acquire);
    return capacity_ - static_cast<std::size_t>(head_ - seen_tail_);
  }
  /// At most free_bytes().
  void put(const void* source, std::size_t nbytes) noexcept {
    const std::size_t at = static_cast<std::size_t>(head_) & (capacity_ - 1);
    const std::size_t first = std::min(nbytes, capacity_ - at);
    if (first > 0) std::memcpy(data_ + at, source, first);
    if (nbytes > first)
      std::memcpy(data_, static_cast<const std::byte*>(source) + first, nbytes - first);
    head_ += nbytes;
  }
  void skip(std::size_t nbytes) noexcept { head_ += nbytes; }
  void publish() noexcept { lines_->head.store(head_, std::memory_order_release); }
  std::size_t capacity() const noexcept { return capacity_; }

 private:
  RingLines* lines_ = nullptr;
  std::byte* data_ = nullptr;
  std::size_t capacity_ = 0;
  std::uint64_t head_ = 0;
  std::uint64_t seen_tail_ = 0;
};

/// The receiving end. take() empties, release() gives the space back to the producer.
class RingConsumer {
 public:
  RingConsumer() = default;
  RingConsumer(RingLines& lines, const std::byte* data, std::size_t capacity)
      : lines_(&lines),
        data_(data),
        capacity_(capacity),
        tail_(lines.tail.load(std::memory_order_relaxed)) {}

  std::size_t available() noexcept {
    return static_cast<std::size_t>(lines_->head.load(std::memory_order_acquire) - tail_);
  }
  /// At most available(). A null `target` drops the bytes.
  void take(void* target, std::size_t nbytes) noexcept {
    if (target != nullptr && nbytes > 0) {
      const std::size_t at = static_cast<std::size_t>(tail_) & (capacity_ - 1);
      const std::size_t first = std::min(nbytes, capacity_ - at);
      std::memcpy(target, data_ + at, first);
      if (nbytes > first)
        std::memcpy(static_cast<std::byte*>(target) + first, data_, nbytes - first);
    }
    tail_ += nbytes;
  }
  void release() noexcept { lines_->tail.store(tail_, std::memory_order_release); }
  std::size_t capacity() const noexcept { return capacity_; }

 private:
  RingLines* lines_ = nullptr;
  const std::byte* data_ = nullptr;
  std::size_t capacity_ = 0;
  std::uint64_t tail_ = 0;
};

}  // namespace hpcomm::shm
