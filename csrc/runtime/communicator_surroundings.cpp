#include <sched.h>

#include <utility>

#include "runtime/progress.hpp"
#include "runtime/state.hpp"

namespace hpcomm {
namespace {

constexpr double kLongestSleep_s = 1e-3;
constexpr double kSleepBetweenPolls_s = 1e-4;  // where messages over MPI ring no bell

}  // namespace

void CommunicatorSurroundings::relax(Backoff& backoff) {
  Turnstile& turnstile = state_.turnstile;
  if (Fiber::current() != nullptr) {
    ++backoff.polls;
    turnstile.unlock();
    bool slept = Fiber::yield(&backoff);
    turnstile.lock_stepwise([&] { slept = Fiber::yield(&backoff) || slept; });
    if (slept) backoff.polls = (backoff.polls + 63U) & ~63U;  // look at deadline and peers
  } else {
    Progress& progress = Progress::instance();
    if (progress.has_home_work(state_)) {
      const SteppedAside aside(turnstile);
      progress.drive_home(state_);
    }
    turnstile.offer();
    if ((backoff.polls & 15U) == 0 && !state_.pending.empty()) state_.poll_pending();
    switch (next_phase(backoff, spinning_allowed())) {
      case WaitPhase::spin:
        spin_pause();
        break;
      case WaitPhase::yield:
        sched_yield();
        break;
      case WaitPhase::sleep:
        sleep(backoff);
        break;
    }
  }
  if (state_.stopped.load(std::memory_order_relaxed)) [[unlikely]]
    throw state_.stop_error();
}

void CommunicatorSurroundings::sleep(Backoff& backoff) {
  if (state_.bell != nullptr && !backoff.armed) {
    // The wait polls once more before it sleeps.
    backoff.armed_value = state_.bell->arm();
    backoff.armed = true;
    return;
  }
  backoff.armed = false;
  const bool must_poll = state_.polls_mpi || Progress::instance().has_home_work(state_);
  const SteppedAside aside(state_.turnstile);
  if (state_.bell != nullptr) {
    state_.bell->sleep(backoff.armed_value, must_poll ? kSleepBetweenPolls_s : kLongestSleep_s);
  } else {
    sleep_on_any({}, kSleepBetweenPolls_s);
  }
}

void CommunicatorSurroundings::check_interrupt() {
  // Signal handlers run code of the user's: on the thread's own stack, and free to use this
  // communicator.
  if (Fiber::current() != nullptr) return;
  {
    const SteppedAside aside(state_.turnstile);
    run_interrupt_hook();
  }
  if (state_.stopped.load(std::memory_order_relaxed)) throw state_.stop_error();
}

}  // namespace hpcomm
