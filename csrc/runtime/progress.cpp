#include "runtime/progress.hpp"

#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "core/process_generation.hpp"

namespace hpcomm {
namespace {

constexpr double kIdleSleep_s = 10.0;
constexpr unsigned kBusySpins = 50;  // while the user's threads compute and no CPU is to spare
constexpr unsigned kSpins = 1000;
constexpr unsigned kYields = 300;

struct Instance {
  std::uint64_t generation;
  Progress progress;
};
std::atomic<Instance*> current{nullptr};

}  // namespace

Progress& Progress::instance() {
  const std::uint64_t generation = process_generation();
  Instance* known = current.load(std::memory_order_acquire);
  while (known == nullptr || known->generation != generation) {
    auto* fresh = new Instance{generation, {}};
    if (current.compare_exchange_strong(known, fresh, std::memory_order_acq_rel)) {
      // Never freed: its thread may outlive static objects. A forked child has a copy of the
      // parent's and leaves it alone.
      std::atexit([] {
        Instance* last = current.load(std::memory_order_acquire);
        if (last->generation == process_generation()) last->progress.stop();
      });
      return fresh->progress;
    }
    delete fresh;
  }
  return known->progress;
}

void Progress::enlist(const std::shared_ptr<Communicator>& communicator) {
  const std::lock_guard lock(mutex_);
  std::erase_if(communicators_, [](const auto& weak) { return weak.expired(); });
  communicators_.push_back(communicator);
}

std::vector<std::shared_ptr<Communicator>> Progress::communicators() {
  const std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<Communicator>> alive;
  for (const auto& weak : communicators_)
    if (auto communicator = weak.lock()) alive.push_back(std::move(communicator));
  return alive;
}

void Progress::note_cpus(int ranks, int cpus) noexcept {
  if (cpus < 2 * ranks) spare_cpus_.store(false, std::memory_order_relaxed);
}

void Progress::submit(const std::shared_ptr<Communicator>& communicator, bool at_once) {
  if (communicator->state_->home_thread_only) {
    home_.add(communicator);
    return;
  }
  const bool is_new = background_.add(communicator);
  if (is_new) start_thread();
  if (is_new || at_once) submission_.ring_surely();
}

void Progress::drive_home(const Communicator::State& state) {
  if (has_home_work(state)) home_.step(true);
}

void Progress::start_thread() {
  const std::lock_guard lock(mutex_);
  if (thread_.joinable()) return;
  stopping_.store(false, std::memory_order_relaxed);
  // Signals are for the user's threads.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { run(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_setname_np(thread_.native_handle(), "hpcomm-progress");
}

void Progress::stop() noexcept {
  std::thread ended;
  {
    const std::lock_guard lock(mutex_);
    if (!thread_.joinable() || thread_.get_id() == std::this_thread::get_id()) return;
    stopping_.store(true, std::memory_order_relaxed);
    ended = std::move(thread_);
  }
  submission_.ring_surely();
  ended.join();
}

void Progress::run() noexcept {
  std::vector<ArmedDoorbell> armed;
  double longest_s = kIdleSleep_s;
  bool slept = false;
  while (!stopping_.load(std::memory_order_relaxed)) {
    const unsigned still = background_.step(slept);
    slept = false;
    const bool idle = !background_.has_work();
    const bool may_spin =
        spinning_allowed() && (has_spare_cpus() || waiting.load(std::memory_order_relaxed) > 0);
    if (!idle && still < (may_spin ? kSpins : kBusySpins)) {
      armed.clear();
      spin_pause();
    } else if (!idle && may_spin && still < kSpins + kYields) {
      armed.clear();
      sched_yield();
    } else if (armed.empty()) {
      // One more step between asking to be woken and sleeping: what came in between rings no bell.
      armed.push_back({&submission_, submission_.arm()});
      longest_s = idle ? kIdleSleep_s : background_.arm(armed);
    } else {
      sleep_on_any(armed, longest_s);
      armed.clear();
      slept = true;
    }
  }
}

// ----------------------------------------------------------------------------------------------
// Scheduler

bool Scheduler::add(std::shared_ptr<Communicator> communicator) {
  const bool is_new = !communicator->state_->listed.exchange(true, std::memory_order_acq_rel);
  if (is_new) {
    const std::lock_guard lock(mutex_);
    incoming_.push_back(std::move(communicator));
    work_.fetch_add(1, std::memory_order_release);
  }
  return is_new;
}

void Scheduler::take_incoming() {
  const std::lock_guard lock(mutex_);
  for (auto& communicator : std::exchange(incoming_, {}))
    entries_.push_back({std::move(communicator), nullptr});
}

unsigned Scheduler::step(bool slept) {
  take_incoming();
  ++still_;
  unsigned still = still_;
  std::vector<std::shared_ptr<Communicator>>
      finished;  // their last owner may be here: let go of them outside the loop
  for (std::size_t i = 0; i < entries_.size();) {
    if (advance(entries_[i], slept, still)) {
      ++i;
      continue;
    }
    finished.push_back(std::move(entries_[i].communicator));
    entries_.erase(entries_.begin() + static_cast<std::ptrdiff_t>(i));
    work_.fetch_sub(1, std::memory_order_release);
  }
  return std::min(still, still_);
}

// False once nothing is pending there.
bool Scheduler::advance(Entry& entry, bool slept, unsigned& still) {
  Communicator::State& state = *entry.communicator->state_;
  // A thread that waits on this communicator holds the turnstile and polls by itself.
  if (state.turnstile.try_lock()) {
    if (state.poll_pending()) still_ = 0;
    if (!entry.fiber && !state.collective_running && !state.queue.empty()) begin_collective(entry);
    const bool is_done = !entry.fiber && state.pending.empty() && state.queue.empty();
    if (is_done) state.listed.store(false, std::memory_order_release);
    state.turnstile.unlock();
    if (is_done) return false;
  }
  if (!entry.fiber) return true;
  if (entry.fiber->resume(slept)) {
    entry.fiber.reset();
    still_ = 0;
  } else {
    still = std::min(still, entry.fiber->backoff() != nullptr ? entry.fiber->backoff()->polls : 0U);
  }
  return true;
}

void Scheduler::begin_collective(Entry& entry) {
  Communicator::State& state = *entry.communicator->state_;
  const std::shared_ptr<Work> work = std::move(state.queue.front());
  state.queue.pop_front();
  try {
    entry.fiber = std::make_unique<Fiber>([&state, work] {
      state.turnstile.lock_stepwise([] { Fiber::yield(nullptr); });
      state.run(*work);
      state.collective_running = false;
      state.turnstile.unlock();
    });
    state.collective_running = true;
  } catch (...) {
    work->complete(std::current_exception());
  }
}

double Scheduler::arm(std::vector<ArmedDoorbell>& bells) {
  constexpr double kSleepOnBells_s = 4e-3;
  constexpr double kSleepBetweenPolls_s = 2e-4;
  double longest_s = kSleepOnBells_s;
  for (const Entry& entry : entries_) {
    const Communicator::State& state = *entry.communicator->state_;
    // While a call waits there, it polls all that is pending, and peers are spared a system call
    // per message.
    if (state.bell != nullptr && state.inside.load(std::memory_order_relaxed) == 0)
      bells.push_back({state.bell, state.bell->arm()});
    if (state.bell == nullptr || state.polls_mpi) longest_s = kSleepBetweenPolls_s;
  }
  return longest_s;
}

}  // namespace hpcomm
