#include "core/doorbell.hpp"

#include <errno.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <climits>

#ifndef SYS_futex_waitv
#define SYS_futex_waitv 449
#endif

namespace hpcomm {
namespace {

// The kernel's struct futex_waitv, whose header is missing in older distributions.
struct WaitVectorEntry {
  std::uint64_t expected;
  std::uint64_t address;
  std::uint32_t flags;
  std::uint32_t reserved;
};
constexpr std::uint32_t kSize32 = 2;  // FUTEX_32
constexpr std::size_t kLongestVector = 128;

timespec to_timespec(double seconds) noexcept {
  const auto whole = static_cast<time_t>(seconds);
  return {whole, static_cast<long>(1e9 * (seconds - static_cast<double>(whole)))};
}

}  // namespace

std::uint32_t Doorbell::arm() noexcept {
  const std::uint32_t now = value.load(std::memory_order_relaxed);
  sleeping.store(1, std::memory_order_seq_cst);
  return now;
}

void Doorbell::wake() noexcept {
  sleeping.store(0, std::memory_order_relaxed);
  value.fetch_add(1, std::memory_order_release);
  syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&value), FUTEX_WAKE, INT_MAX, nullptr,
          nullptr, 0);
}

void Doorbell::sleep(std::uint32_t armed_value, double at_most_s) noexcept {
  const timespec span = to_timespec(at_most_s);
  syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&value), FUTEX_WAIT, armed_value, &span,
          nullptr, 0);
}

void sleep_on_any(std::span<const ArmedDoorbell> bells, double at_most_s) noexcept {
  if (bells.size() == 1) return bells[0].bell->sleep(bells[0].value, at_most_s);
  static std::atomic<bool> supported{true};
  if (!bells.empty() && bells.size() <= kLongestVector &&
      supported.load(std::memory_order_relaxed)) {
    WaitVectorEntry entries[kLongestVector];
    for (std::size_t i = 0; i < bells.size(); ++i)
      entries[i] = {bells[i].value, reinterpret_cast<std::uint64_t>(&bells[i].bell->value), kSize32,
                    0};
    timespec until{};
    clock_gettime(CLOCK_MONOTONIC, &until);
    const timespec span = to_timespec(at_most_s);
    until.tv_sec += span.tv_sec;
    until.tv_nsec += span.tv_nsec;
    if (until.tv_nsec >= 1'000'000'000) {
      ++until.tv_sec;
      until.tv_nsec -= 1'000'000'000;
    }
    const long rc = syscall(SYS_futex_waitv, entries, static_cast<unsigned>(bells.size()), 0U,
                            &until, CLOCK_MONOTONIC);
    if (rc >= 0 || (errno != ENOSYS && errno != EPERM)) return;
    supported.store(false, std::memory_order_relaxed);
  }
  const timespec nap = to_timespec(std::min(at_most_s, 0.0005));
  nanosleep(&nap, nullptr);
}

}  // namespace hpcomm
