#include "support/ranks.hpp"

#include <sched.h>
#include <time.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <optional>
#include <random>
#include <thread>
#include <vector>

namespace hpcomm::testing {
namespace {

void sleep_s(double seconds) {
  const timespec span{0, static_cast<long>(1e9 * seconds)};
  nanosleep(&span, nullptr);
}

class ThreadSurroundings final : public Surroundings {
 public:
  ThreadSurroundings(const std::atomic<bool>& stop, double jitter_s, int rank, bool may_spin)
      : stop_(stop),
        jitter_s_(jitter_s),
        may_spin_(may_spin),
        random_(static_cast<unsigned>(rank) + 1) {}

  double now_s() override { return monotonic_s(); }

  void relax(Backoff& backoff) override {
    if (jitter_s_ > 0 && random_() % 8 == 0)
      sleep_s(std::uniform_real_distribution<double>(0, jitter_s_)(random_));
    switch (next_phase(backoff, may_spin_)) {
      case WaitPhase::spin:
        spin_pause();
        return;
      case WaitPhase::yield:
        sched_yield();
        return;
      case WaitPhase::sleep:
        sleep_s(50e-6);
        return;
    }
  }

  void check_interrupt() override {
    if (stop_.load(std::memory_order_relaxed))
      throw Error(Errc::interrupted, -1, "the run hangs: a wait was ended by the watchdog");
  }

 private:
  const std::atomic<bool>& stop_;
  const double jitter_s_;
  const bool may_spin_;
  std::mt19937_64 random_;
};

/// Keeps the first failure and knows when all ranks are done.
class Run {
 public:
  explicit Run(int size) : running_(size) {}

  void fail(int rank, const std::string& what) {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_.emplace(rank, what);
  }
  void finish() {
    const std::lock_guard lock(mutex_);
    if (--running_ == 0) done_.notify_all();
  }
  bool wait(double limit_s) {
    std::unique_lock lock(mutex_);
    return done_.wait_for(lock, std::chrono::duration<double>(limit_s),
                          [this] { return running_ == 0; });
  }
  const std::optional<RankFailure>& failure() const { return failure_; }

 private:
  std::mutex mutex_;
  std::condition_variable done_;
  int running_;
  std::optional<RankFailure> failure_;
};

}  // namespace

void run_ranks(int size, const std::function<void(RankScope&)>& body, const RunOptions& options) {
  const std::shared_ptr<loopback::World> world = loopback::World::create(size, options.world);
  const bool may_spin = size <= static_cast<int>(std::thread::hardware_concurrency());
  std::optional<SpinBan> ban;
  if (!may_spin) ban.emplace();
  std::atomic<bool> stop{false};
  Run run(size);

  const auto rank_main = [&](int rank) {
    ThreadSurroundings surroundings(stop, options.jitter_s, rank, may_spin);
    {
      Endpoint endpoint = world->endpoint(rank, options.name, surroundings);
      RankScope scope{rank, size, endpoint, *world, surroundings};
      try {
        body(scope);
      } catch (const std::exception& error) {
        run.fail(rank, error.what());
        endpoint.announce_failure({Errc::internal, rank, error.what()});
      }
      endpoint.close();
    }
    run.finish();
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) threads.emplace_back(rank_main, rank);

  const bool in_time = run.wait(options.limit_s);
  if (!in_time) {
    stop = true;
    if (!run.wait(10)) {
      std::fputs("run_ranks: ranks hang outside of any wait of the library\n", stderr);
      std::abort();
    }
  }
  for (std::thread& thread : threads) thread.join();
  if (run.failure()) throw RankFailure(*run.failure());
  if (!in_time) throw std::runtime_error("the run took longer than its limit");
}

std::string error_text(Errc code, const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    require(error.code() == code, std::string("another kind of error: ") + error.what());
    return error.what();
  }
  throw std::runtime_error("no error was thrown");
}

}  // namespace hpcomm::testing
