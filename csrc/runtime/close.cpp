// The end of communicators: in order, by failure, at the exit of the process, in a forked child.
#include <algorithm>
#include <mutex>
#include <utility>

#include "core/process_generation.hpp"
#include "runtime/communicator.hpp"
#include "runtime/progress.hpp"
#include "runtime/state.hpp"

namespace hpcomm {
namespace {

constexpr double kStopsWithin_s =
    2.0;  // a wait in another thread sees `stopped` within some milliseconds

bool has_pending_sends(const std::vector<std::shared_ptr<Work>>& pending) {
  return std::any_of(pending.begin(), pending.end(),
                     [](const auto& work) { return work->kind() == Work::Kind::send; });
}

}  // namespace

Communicator::~Communicator() {
  if (state_->generation == process_generation()) {
    static_cast<void>(close(0));
  } else {
    // A forked child: threads and mappings are the parent's, so the object is left as it is.
    [[maybe_unused]] const State* leaked = state_.release();
  }
}

bool Communicator::close(double grace_s) noexcept {
  State& state = *state_;
  if (state.generation != process_generation() || state.closing.exchange(true)) return false;
  const bool drives = !state.home_thread_only || state.on_home_thread();
  const std::shared_ptr<Communicator> self =
      weak_from_this().lock();  // null in the destructor: then nothing is pending
  const double begun_s = monotonic_s();
  const auto wait_while = [&](auto&& condition, double at_most_s) {
    Backoff backoff;
    while (condition() && monotonic_s() < begun_s + at_most_s) {
      const SteppedAside aside(state.turnstile);
      Progress::instance().drive_home(state);
      default_surroundings().relax(backoff);
    }
  };

  const std::lock_guard lock(state.turnstile);
  if (drives && self != nullptr) {
    wait_while(
        [&] {
          if (state.broken.load(std::memory_order_relaxed)) return false;
          state.poll_pending();
          return has_pending_sends(state.pending) || !state.queue.empty() ||
                 state.collective_running;
        },
        grace_s);
  }
  state.stopped.store(true, std::memory_order_release);
  state.complete_all(state.stop_error());
  if (state.endpoint) state.endpoint->close();
  wait_while([&] { return state.collective_running || state.inside > 0 || state.listed.load(); },
             grace_s + kStopsWithin_s);
  // What is still in use is freed with the last owner.
  if (!state.collective_running && state.inside == 0 && !state.listed.load()) {
    state.bell = nullptr;
    state.endpoint.reset();
  }
  state.spin_ban.reset();
  state.closed.store(true, std::memory_order_release);
  return true;
}

void Communicator::abort(std::string_view message, Cause cause) noexcept {
  State& state = *state_;
  if (state.generation != process_generation()) return;
  try {
    const std::lock_guard lock(state.turnstile);
    if (state.closing.load(std::memory_order_relaxed) ||
        state.broken.load(std::memory_order_relaxed))
      return;
    if (cause == Cause::lost_rank)
      state.fail(state.death(message));
    else
      state.fail(Error(Errc::internal, state.options.rank, std::string(message)));
  } catch (...) {
    // No memory for the message; the deadline of the peers remains.
  }
}

void Communicator::abort_all(std::string_view message, Cause cause) noexcept {
  try {
    for (const auto& communicator : Progress::instance().communicators())
      communicator->abort(message, cause);
  } catch (...) {
    // As in abort().
  }
}

void Communicator::shutdown_all() noexcept {
  constexpr double kGraceAtExit_s = 0.2;
  try {
    Progress& progress = Progress::instance();
    for (const auto& communicator : progress.communicators()) communicator->close(kGraceAtExit_s);
    progress.stop();
  } catch (...) {
    // The process ends anyway.
  }
}

}  // namespace hpcomm
