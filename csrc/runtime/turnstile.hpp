// Lets one thread at a time use a communicator, and lets it change during waits: whoever waits for
// a peer steps aside whenever somebody else asks, so a blocked receive does not keep another thread
// from sending.
#pragma once

#include <atomic>
#include <mutex>

namespace hpcomm {

class Turnstile {
 public:
  void lock();
  bool try_lock() {
    if (!mutex_.try_lock()) return false;
    entered_.fetch_add(1, std::memory_order_relaxed);
    return true;
  }
  void unlock() { mutex_.unlock(); }
  /// For fibers, which must not block their thread: `step_back` is called until the turnstile is
  /// free.
  template <class StepBack>
  void lock_stepwise(StepBack&& step_back) {
    if (try_lock()) return;
    waiting_.fetch_add(1, std::memory_order_relaxed);
    do step_back();
    while (!try_lock());
    waiting_.fetch_sub(1, std::memory_order_relaxed);
  }
  /// By the holder: lets those who wait pass first.
  void offer() {
    if (waiting_.load(std::memory_order_relaxed) > 0) [[unlikely]]
      hand_over();
  }

 private:
  void hand_over();

  std::mutex mutex_;
  std::atomic<int> waiting_{0};
  std::atomic<unsigned> entered_{0};
};

/// Unlocks for the length of a scope.
class SteppedAside {
 public:
  explicit SteppedAside(Turnstile& turnstile) : turnstile_(turnstile) { turnstile_.unlock(); }
  ~SteppedAside() { turnstile_.lock(); }
  SteppedAside(const SteppedAside&) = delete;
  SteppedAside& operator=(const SteppedAside&) = delete;

 private:
  Turnstile& turnstile_;
};

}  // namespace hpcomm
