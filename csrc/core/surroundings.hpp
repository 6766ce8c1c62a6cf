// What the core needs from the outside world, injected so that a simulator or a test can supply it:
// the clock, what to do between two polls, and whether the user pressed Ctrl-C.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <limits>

namespace hpcomm {

/// State of one wait; `Surroundings::relax` decides from it between spinning, yielding and
/// sleeping.
struct Backoff {
  unsigned polls = 0;
  double since_s = -1;  // when the wait left its spinning phase
  bool armed = false;   // peers were asked to ring; the next relax may sleep
  std::uint32_t armed_value = 0;
};

class Surroundings {
 public:
  virtual ~Surroundings() = default;
  /// Monotone seconds.
  virtual double now_s() = 0;
  /// Called between two polls of an unfinished wait; advances `backoff.polls`. Must not block for
  /// longer than about a millisecond. Also the place where other endpoints of this process make
  /// progress, so that two waits cannot starve each other, and where asynchronous operations change
  /// places: an endpoint may be used by others until it returns.
  virtual void relax(Backoff& backoff) = 0;
  /// Slow path, at most every few milliseconds: throws Error(interrupted) if the calling thread has
  /// to stop.
  virtual void check_interrupt() = 0;
};

/// The process's own: steady clock, bounded spin, then yield, then short sleep; no spinning while a
/// SpinBan exists.
Surroundings& default_surroundings();

/// Whoever knows that ranks exceed CPUs holds one.
class SpinBan {
 public:
  SpinBan();
  ~SpinBan();
  SpinBan(const SpinBan&) = delete;
  SpinBan& operator=(const SpinBan&) = delete;
};

/// Phases of a wait, for surroundings that build on the default ones.
enum class WaitPhase { spin, yield, sleep };
/// Advances `backoff` and says what to do now. `may_spin`: false goes straight to yielding.
WaitPhase next_phase(Backoff& backoff, bool may_spin);
bool spinning_allowed() noexcept;
void spin_pause() noexcept;
/// Monotone seconds and nanoseconds of the same clock (CLOCK_MONOTONIC).
double monotonic_s() noexcept;
std::int64_t monotonic_ns() noexcept;

/// `hook` runs in the slow path of waits on the thread that calls this function, and on no other;
/// it throws Error(interrupted) to end the wait. An empty function removes it.
void set_interrupt_hook(std::function<void()> hook);
void run_interrupt_hook();

/// An absolute point in time of `Surroundings::now_s`.
struct Deadline {
  double at_s = std::numeric_limits<double>::infinity();
  double timeout_s =
      std::numeric_limits<double>::infinity();  // as the user gave it, for the message
  /// May bring the deadline forward while the wait runs.
  const std::atomic<double>* hurry_at_s = nullptr;

  static Deadline after(Surroundings& surroundings, double timeout_s) {
    return {surroundings.now_s() + timeout_s, timeout_s, nullptr};
  }
  bool passed(double now_s) const noexcept {
    return now_s > at_s ||
           (hurry_at_s != nullptr && now_s > hurry_at_s->load(std::memory_order_relaxed));
  }
};

}  // namespace hpcomm
