// Who advances asynchronous operations: one thread per process, or, for communicators that use an
// MPI which only the main thread may call, every hpcomm call of that thread.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "core/doorbell.hpp"
#include "runtime/fiber.hpp"
#include "runtime/state.hpp"

namespace hpcomm {

/// The communicators with pending operations that one thread looks after. Each has at most one
/// collective under way, on a fiber; those of different communicators wait side by side, whatever
/// the order in which the ranks submitted them.
class Scheduler {
 public:
  /// Any thread. `communicator` has work; false if it was known already.
  bool add(std::shared_ptr<Communicator> communicator);
  bool has_work() const noexcept { return work_.load(std::memory_order_acquire) > 0; }

  // By the thread that drives it:
  /// Advances everything a little. `slept`: the thread has slept since the last step. Gives the
  /// number of steps for which the operation that moved last has not moved.
  unsigned step(bool slept);
  /// Asks peers to wake this thread when something arrives; adds to `bells`. Gives how long it may
  /// sleep, in seconds.
  double arm(std::vector<ArmedDoorbell>& bells);

 private:
  struct Entry {
    std::shared_ptr<Communicator> communicator;
    std::unique_ptr<Fiber> fiber;
  };
  void take_incoming();
  bool advance(Entry& entry, bool slept, unsigned& still);
  static void begin_collective(Entry& entry);

  std::atomic<int> work_{0};
  std::mutex mutex_;
  std::vector<std::shared_ptr<Communicator>> incoming_;
  std::vector<Entry> entries_;
  unsigned still_ = 0;
};

/// One per process; a child made by fork gets its own.
class Progress {
 public:
  static Progress& instance();

  void enlist(const std::shared_ptr<Communicator>& communicator);
  /// `communicator` has a new operation that is not complete. `at_once`: nobody else will begin it;
  /// messages may wait until a peer moves.
  void submit(const std::shared_ptr<Communicator>& communicator, bool at_once);
  /// If this thread looks after communicators itself and is not inside one of their operations:
  /// advances them.
  void drive_home(const Communicator::State& state);
  bool has_home_work(const Communicator::State& state) const noexcept {
    return state.home_thread_only && home_.has_work() && state.on_home_thread() &&
           Fiber::current() == nullptr;
  }
  /// Whether threads of the core may spin while others of this process compute.
  void note_cpus(int ranks, int cpus) noexcept;
  bool has_spare_cpus() const noexcept { return spare_cpus_.load(std::memory_order_relaxed); }

  std::vector<std::shared_ptr<Communicator>> communicators();
  /// Ends the thread; the next submission starts it again.
  void stop() noexcept;

  /// Rung whenever a collective is complete.
  Doorbell completion;
  std::atomic<int> waiting{0};  // threads that wait for a collective of the progress thread

 private:
  void run() noexcept;
  void start_thread();

  Scheduler background_;
  Scheduler home_;
  Doorbell submission_;
  std::atomic<bool> stopping_{false};
  std::atomic<bool> spare_cpus_{true};
  std::mutex mutex_;  // guards what follows
  std::thread thread_;
  std::vector<std::weak_ptr<Communicator>> communicators_;
};

}  // namespace hpcomm
