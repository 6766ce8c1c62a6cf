#include "core/surroundings.hpp"

#include <sched.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <utility>

#if defined(__x86_64__) || defined(__i386__)
#include <immintrin.h>
#endif

namespace hpcomm {
namespace {

// One pause takes 15 to 50 ns, so spinning ends after some tens of microseconds: longer than a
// message between two running ranks takes, shorter than a scheduler quantum.
constexpr unsigned kSpinPolls = 1000;
constexpr double kYieldFor_s = 300e-6;
constexpr long kFirstSleep_ns = 50'000;
constexpr long kLongestSleep_ns = 1'000'000;

std::atomic<int> spin_bans{0};

struct InterruptHook {
  std::thread::id thread;
  std::function<void()> function;
};
// Replaced, never freed: a thread may be in the middle of the old one.
std::atomic<const InterruptHook*> interrupt_hook{nullptr};

class DefaultSurroundings final : public Surroundings {
 public:
  double now_s() override { return monotonic_s(); }

  void relax(Backoff& backoff) override {
    switch (next_phase(backoff, spinning_allowed())) {
      case WaitPhase::spin:
        spin_pause();
        return;
      case WaitPhase::yield:
        sched_yield();
        return;
      case WaitPhase::sleep: {
        const long slept =
            static_cast<long>(backoff.armed_value);  // here the length of the last sleep
        const long length = slept == 0 ? kFirstSleep_ns : std::min(2 * slept, kLongestSleep_ns);
        backoff.armed_value = static_cast<std::uint32_t>(length);
        const timespec span{0, length};
        nanosleep(&span, nullptr);
        return;
      }
    }
  }

  void check_interrupt() override { run_interrupt_hook(); }
};

}  // namespace

double monotonic_s() noexcept { return 1e-9 * static_cast<double>(monotonic_ns()); }

std::int64_t monotonic_ns() noexcept {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

void spin_pause() noexcept {
#if defined(__x86_64__) || defined(__i386__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

bool spinning_allowed() noexcept { return spin_bans.load(std::memory_order_relaxed) == 0; }

SpinBan::SpinBan() { spin_bans.fetch_add(1, std::memory_order_relaxed); }
SpinBan::~SpinBan() { spin_bans.fetch_sub(1, std::memory_order_relaxed); }

WaitPhase next_phase(Backoff& backoff, bool may_spin) {
  ++backoff.polls;
  if (may_spin && backoff.polls < kSpinPolls) return WaitPhase::spin;
  const double now_s = monotonic_s();
  if (backoff.since_s < 0) backoff.since_s = now_s;
  if (now_s - backoff.since_s < kYieldFor_s) return WaitPhase::yield;
  backoff.polls =
      (backoff.polls + 63U) & ~63U;  // a sleeper looks at its deadline each time it wakes
  return WaitPhase::sleep;
}

void set_interrupt_hook(std::function<void()> hook) {
  interrupt_hook.store(
      hook ? new InterruptHook{std::this_thread::get_id(), std::move(hook)} : nullptr,
      std::memory_order_release);
}

void run_interrupt_hook() {
  const InterruptHook* hook = interrupt_hook.load(std::memory_order_acquire);
  if (hook != nullptr && hook->thread == std::this_thread::get_id()) hook->function();
}

Surroundings& default_surroundings() {
  static DefaultSurroundings instance;
  return instance;
}

}  // namespace hpcomm
