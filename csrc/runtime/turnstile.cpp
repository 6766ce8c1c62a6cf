#include "runtime/turnstile.hpp"

#include <sched.h>

namespace hpcomm {

void Turnstile::lock() {
  if (try_lock()) return;
  waiting_.fetch_add(1, std::memory_order_relaxed);
  mutex_.lock();
  entered_.fetch_add(1, std::memory_order_relaxed);
  waiting_.fetch_sub(1, std::memory_order_relaxed);
}

void Turnstile::hand_over() {
  // The mutex is not fair: without the wait below its holder would take it again before the other
  // has woken up.
  constexpr int kPatience = 200;
  const unsigned before = entered_.load(std::memory_order_relaxed);
  mutex_.unlock();
  for (int i = 0; i < kPatience && entered_.load(std::memory_order_relaxed) == before; ++i)
    sched_yield();
  mutex_.lock();
}

}  // namespace hpcomm
