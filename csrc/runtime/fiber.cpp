#include "runtime/fiber.hpp"

#include <errno.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <cstdint>
#include <cstring>
#include <utility>

#include "core/error.hpp"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#define HPCOMM_ASAN_FIBERS 1
#endif
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#define HPCOMM_TSAN_FIBERS 1
#endif

namespace hpcomm {
namespace {

constexpr std::size_t kStackBytes = 256 * 1024;
constexpr std::size_t kGuardBytes = 4096;

thread_local Fiber* running = nullptr;

// A stack with a page below it that nobody may touch.
class Stack {
 public:
  Stack()
      : base_(mmap(nullptr, kGuardBytes + kStackBytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
    HPCOMM_CHECK(base_ != MAP_FAILED, Errc::transport,
                 "no memory for the stack of an asynchronous operation: ", std::strerror(errno));
    mprotect(base_, kGuardBytes, PROT_NONE);
  }
  ~Stack() { munmap(base_, kGuardBytes + kStackBytes); }
  Stack(const Stack&) = delete;
  Stack& operator=(const Stack&) = delete;
  void* bottom() const noexcept { return static_cast<std::byte*>(base_) + kGuardBytes; }

 private:
  void* base_;
};

}  // namespace

struct Fiber::Context {
  Stack stack;
  ucontext_t own{};
  ucontext_t caller{};
  // What the sanitizers need to know about a change of stacks.
  [[maybe_unused]] void* fake_stack = nullptr;
  [[maybe_unused]] void* caller_fake_stack = nullptr;
  [[maybe_unused]] const void* caller_bottom = nullptr;
  [[maybe_unused]] std::size_t caller_size = 0;
  [[maybe_unused]] void* tsan_own = nullptr;
  [[maybe_unused]] void* tsan_caller = nullptr;
};

Fiber::Fiber(std::function<void()> body)
    : body_(std::move(body)), context_(std::make_unique<Context>()) {
  getcontext(&context_->own);
  context_->own.uc_stack.ss_sp = context_->stack.bottom();
  context_->own.uc_stack.ss_size = kStackBytes;
  context_->own.uc_link = nullptr;
  // makecontext passes ints only.
  const auto self = reinterpret_cast<std::uintptr_t>(this);
  makecontext(&context_->own, reinterpret_cast<void (*)()>(&Fiber::start), 2,
              static_cast<unsigned>(self), static_cast<unsigned>(std::uint64_t{self} >> 32U));
#ifdef HPCOMM_TSAN_FIBERS
  context_->tsan_own = __tsan_create_fiber(0);
#endif
}

Fiber::~Fiber() {
#ifdef HPCOMM_TSAN_FIBERS
  __tsan_destroy_fiber(context_->tsan_own);
#endif
}

Fiber* Fiber::current() noexcept { return running; }

bool Fiber::resume(bool slept) {
  slept_ = slept;
  Fiber* const outer = std::exchange(running, this);
  switch_in();
  running = outer;
  return ended_;
}

bool Fiber::yield(const Backoff* backoff) {
  Fiber* const self = running;
  self->backoff_ = backoff;
  self->switch_out(false);
  return self->slept_;
}

void Fiber::switch_in() {
#ifdef HPCOMM_ASAN_FIBERS
  __sanitizer_start_switch_fiber(&context_->caller_fake_stack, context_->stack.bottom(),
                                 kStackBytes);
#endif
#ifdef HPCOMM_TSAN_FIBERS
  context_->tsan_caller = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(context_->tsan_own, 0);
#endif
  swapcontext(&context_->caller, &context_->own);
#ifdef HPCOMM_ASAN_FIBERS
  __sanitizer_finish_switch_fiber(context_->caller_fake_stack, nullptr, nullptr);
#endif
}

void Fiber::switch_out([[maybe_unused]] bool for_good) {
#ifdef HPCOMM_ASAN_FIBERS
  __sanitizer_start_switch_fiber(for_good ? nullptr : &context_->fake_stack,
                                 context_->caller_bottom, context_->caller_size);
#endif
#ifdef HPCOMM_TSAN_FIBERS
  __tsan_switch_to_fiber(context_->tsan_caller, 0);
#endif
  swapcontext(&context_->own, &context_->caller);
#ifdef HPCOMM_ASAN_FIBERS
  __sanitizer_finish_switch_fiber(context_->fake_stack, &context_->caller_bottom,
                                  &context_->caller_size);
#endif
}

void Fiber::start(unsigned low, unsigned high) {
  auto* self =
      reinterpret_cast<Fiber*>(static_cast<std::uintptr_t>(std::uint64_t{high} << 32U | low));
#ifdef HPCOMM_ASAN_FIBERS
  __sanitizer_finish_switch_fiber(nullptr, &self->context_->caller_bottom,
                                  &self->context_->caller_size);
#endif
  self->body_();
  self->ended_ = true;
  self->switch_out(true);
}

}  // namespace hpcomm
