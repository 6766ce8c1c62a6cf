// Waiting for Works: sends and receives are advanced by whoever waits; collectives are run by the
// waiting thread if nobody has begun them yet, else awaited.
#include <sched.h>

#include <mutex>
#include <utility>

#include "runtime/communicator.hpp"
#include "runtime/progress.hpp"
#include "runtime/state.hpp"

namespace hpcomm {
namespace {

constexpr double kCheckEvery_s = 0.005;
constexpr double kLongestSleep_s = 1e-3;

}  // namespace

void Communicator::advance(Work& work) {
  State& state = enter();
  if (work.kind_ == Work::Kind::collective || !state.turnstile.try_lock())
    return;  // others are at it
  const std::lock_guard lock(state.turnstile, std::adopt_lock);
  if (!work.done()) state.poll_pending();
}

void Communicator::wait(Work& work, std::optional<double> timeout_s) {
  if (work.kind_ == Work::Kind::collective) {
    wait_collective(work, timeout_s);
  } else {
    wait_message(work, timeout_s);
  }
}

void Communicator::wait_message(Work& work, std::optional<double> timeout_s) {
  State& state = enter();
  const Deadline deadline = state.deadline(timeout_s);
  const std::lock_guard lock(state.turnstile);
  if (work.done()) return;
  try {
    state.attempt([&] {
      const int peers[] = {work.peer_};
      const auto is_done = [&] {
        if (!work.done() && state.poll(work)) state.forget(work);
        return work.done();
      };
      try {
        state.endpoint->wait_until(
            is_done, peers, [](int) { return false; }, deadline, work.what());
      } catch (...) {
        state.endpoint->cancel(work.handle_);
        work.complete(std::current_exception());  // unless it has an earlier error
        state.forget(work);
        throw;
      }
    });
  } catch (const Error&) {
    // It is in the Work now.
  }
}

void Communicator::wait_collective(Work& work, std::optional<double> timeout_s) {
  State& state = enter();
  const Deadline deadline = state.deadline(timeout_s);
  Progress& progress = Progress::instance();
  struct Waiting {
    std::atomic<int>& count;
    explicit Waiting(std::atomic<int>& threads) : count(threads) {
      count.fetch_add(1, std::memory_order_relaxed);
    }
    ~Waiting() { count.fetch_sub(1, std::memory_order_relaxed); }
  } waiting(progress.waiting);

  Backoff backoff;
  double next_check_s = 0;
  while (!work.done()) {
    if (run_queued(work, deadline)) continue;
    if (progress.has_home_work(state)) {
      progress.drive_home(state);
      if (next_phase(backoff, spinning_allowed()) != WaitPhase::spin) sched_yield();
    } else if (next_phase(backoff, spinning_allowed() && progress.has_spare_cpus()) !=
               WaitPhase::sleep) {
      spin_pause();
    } else {
      const std::uint32_t armed = progress.completion.arm();
      if (!work.done()) progress.completion.sleep(armed, kLongestSleep_s);
    }
    const double now_s = monotonic_s();
    if (now_s < next_check_s) continue;
    next_check_s = now_s + kCheckEvery_s;
    try {
      if (Fiber::current() == nullptr) run_interrupt_hook();
    } catch (const Error& error) {
      const std::lock_guard lock(state.turnstile);
      state.fail(error);
      throw;
    }
    // The operation that is under way gives up by itself, and knows best whom it waited for.
    if (deadline.passed(now_s)) state.hurry_at_s.store(now_s, std::memory_order_relaxed);
  }
}

// The oldest collective that nobody has begun, on this thread: saves waking another one.
bool Communicator::run_queued(Work& work, const Deadline& deadline) {
  State& state = *state_;
  if (state.home_thread_only)
    return false;  // fibers let the collectives of other communicators go on
  if (!state.turnstile.try_lock()) return false;
  const std::lock_guard lock(state.turnstile, std::adopt_lock);
  if (work.done() || state.collective_running || state.queue.empty()) return false;
  const std::shared_ptr<Work> next = std::move(state.queue.front());
  state.queue.pop_front();
  state.collective_running = true;
  if (deadline.at_s < next->request_.deadline.at_s) next->request_.deadline = deadline;
  state.run(*next);
  state.collective_running = false;
  return true;
}

}  // namespace hpcomm
