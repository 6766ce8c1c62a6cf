// One message between two threads, and where a rank finds those sent to it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>

#include "core/buffer.hpp"
#include "transport/transport.hpp"

namespace hpcomm::loopback {

/// Immutable once posted, but for `state`.
struct Message {
  enum class State { offered, taken, done, cancelled };

  int source = -1;
  Tag tag = 0;
  ConstBuffer data;                   // the sender's memory, or `copy`
  std::unique_ptr<std::byte[]> copy;  // present where the send completed at once
  double visible_at_s = 0;
  std::uint64_t chain = 0;
  /// The receiver reads `data` between taken and done; the sender may give up only while offered.
  std::atomic<State> state{State::offered};

  bool claim() noexcept {
    State expected = State::offered;
    return state.compare_exchange_strong(expected, State::taken, std::memory_order_acquire);
  }
  bool is_done() const noexcept { return state.load(std::memory_order_acquire) == State::done; }
};

class Mailbox {
 public:
  void post(std::shared_ptr<Message> message) {
    const std::lock_guard lock(mutex_);
    messages_.push_back(std::move(message));
    posted_.fetch_add(1, std::memory_order_release);
  }
  /// Moves what was posted since the last call to the end of `to`.
  void drain(std::deque<std::shared_ptr<Message>>& to) {
    if (posted_.load(std::memory_order_acquire) == drained_) return;
    const std::lock_guard lock(mutex_);
    drained_ += messages_.size();
    for (auto& message : messages_) to.push_back(std::move(message));
    messages_.clear();
  }

 private:
  std::mutex mutex_;
  std::deque<std::shared_ptr<Message>> messages_;
  std::atomic<std::uint64_t> posted_{0};
  std::uint64_t drained_ = 0;  // touched by the owner alone
};

}  // namespace hpcomm::loopback
