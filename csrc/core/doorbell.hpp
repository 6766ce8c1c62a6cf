// How a waiter that has given up spinning sleeps until somebody who writes its memory wakes it: a
// futex that costs the writer one load while nobody sleeps. Works between processes when it lies in
// shared memory.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>

namespace hpcomm {

/// Sleeping takes two steps: arm(), look once more whether there is something to do, sleep().
/// Between the writer's store and its look at `sleeping` there is no fence, so a wake-up can get
/// lost in a window of nanoseconds; sleeps are therefore short, and a lost one costs no more than
/// that.
struct Doorbell {
  std::atomic<std::uint32_t> value{0};
  std::atomic<std::uint32_t> sleeping{0};

  /// Asks to be woken; gives what to hand to sleep().
  std::uint32_t arm() noexcept;
  /// For writers, after their store. Wakes all who sleep here.
  void ring() noexcept {
    if (sleeping.load(std::memory_order_relaxed) != 0) [[unlikely]]
      wake();
  }
  /// The same with a full fence: no wake-up is ever lost.
  void ring_surely() noexcept {
    if (sleeping.fetch_add(0, std::memory_order_seq_cst) != 0) wake();
  }
  /// Returns when rung since arm(), or after `at_most_s`.
  void sleep(std::uint32_t armed_value, double at_most_s) noexcept;

 private:
  void wake() noexcept;
};

struct ArmedDoorbell {
  Doorbell* bell = nullptr;
  std::uint32_t value = 0;
};

/// Sleeps until one of `bells` rings, or `at_most_s` have passed; where the kernel cannot wait for
/// several, for at most half a millisecond.
void sleep_on_any(std::span<const ArmedDoorbell> bells, double at_most_s) noexcept;

}  // namespace hpcomm
