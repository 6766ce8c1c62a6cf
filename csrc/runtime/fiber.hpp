// A function with a stack of its own that can stop in the middle and go on later, on the same
// thread. Asynchronous collectives run on fibers, so that several of them wait side by side on one
// thread.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include "core/surroundings.hpp"

namespace hpcomm {

class Fiber {
 public:
  /// `body` must not throw, and must not yield inside a catch block.
  explicit Fiber(std::function<void()> body);
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  /// Runs until the body yields or ends; true once it has ended. Always on the same thread. `slept`
  /// is what yield() returns.
  bool resume(bool slept = false);
  /// The wait in which the body yielded last; valid until resumed.
  const Backoff* backoff() const noexcept { return backoff_; }

  /// The one that runs on this thread, null outside.
  static Fiber* current() noexcept;
  /// Back to whoever resumed the current fiber. `backoff`: of the wait that yields, may be null.
  /// True if the thread has slept in the meantime.
  static bool yield(const Backoff* backoff);

 private:
  struct Context;
  static void start(unsigned low, unsigned high);
  void switch_in();
  void switch_out(bool for_good);

  std::function<void()> body_;
  std::unique_ptr<Context> context_;
  const Backoff* backoff_ = nullptr;
  bool slept_ = false;
  bool ended_ = false;
};

}  // namespace hpcomm
