// One asynchronous operation: started, perhaps complete, perhaps failed.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "collectives/request.hpp"
#include "transport/endpoint.hpp"

namespace hpcomm {

class Communicator;

/// Made by Communicator::isend, irecv and icollective. Thread-safe. The memory of its buffers must
/// stay valid until done() even if the Work itself is dropped: hand whatever keeps it alive to
/// keep().
class Work {
 public:
  enum class Kind { send, receive, collective };

  Work(std::shared_ptr<Communicator> owner, Kind kind, int peer, Tag tag, std::size_t nbytes);
  Work(std::shared_ptr<Communicator> owner, const CollectiveRequest& request,
       std::string algorithm);
  ~Work();
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;

  /// True once the operation is complete, well or badly; no error is thrown here. Makes progress,
  /// never blocks for long.
  bool test();
  /// True once complete; makes no progress.
  bool done() const noexcept { return done_.load(std::memory_order_acquire); }
  /// Returns when complete; throws the operation's error, every time it is asked. After `timeout_s`
  /// (none: the communicator's default) the operation is given up: Error(timeout), and the
  /// communicator is broken.
  void wait(std::optional<double> timeout_s = std::nullopt);
  /// The error of a completed operation, null where it went well or is not complete.
  std::exception_ptr error() const;
  /// "allreduce of 4096 bytes", "receive of 8 bytes from rank 1 (tag 0)".
  std::string what() const;
  Kind kind() const noexcept { return kind_; }
  /// CLOCK_MONOTONIC when the call was made and when the operation was complete (0 while it is
  /// not).
  std::int64_t submitted_ns() const noexcept { return submitted_ns_; }
  std::int64_t completed_ns() const noexcept {
    return completed_ns_.load(std::memory_order_acquire);
  }

  /// Keeps `owner` (say, a Python object) alive until the operation is complete. The last reference
  /// is never dropped on a thread of the core: it is left for take_released_owners().
  void keep(std::shared_ptr<void> owner);

 private:
  friend class Communicator;
  friend class Progress;
  friend class Scheduler;
  void complete(std::exception_ptr error) noexcept;
  void throw_error() const;

  const std::shared_ptr<Communicator> owner_;
  const Kind kind_;
  const int peer_ = -1;  // send, receive
  const Tag tag_ = 0;
  const std::size_t nbytes_ = 0;
  const std::int64_t submitted_ns_;
  std::atomic<std::int64_t> completed_ns_{0};
  std::atomic<bool> done_{false};
  mutable std::mutex mutex_;  // guards error_ and owners_
  std::exception_ptr error_;
  std::vector<std::shared_ptr<void>> owners_;
  // Guarded by the owner's turnstile:
  Endpoint::Handle handle_;          // send, receive
  CollectiveRequest request_;        // collective
  std::vector<std::size_t> counts_;  // what request_.counts refers to
  std::string algorithm_;
};

/// "receive of 8 bytes from rank 1 (tag 0)"
std::string describe_message(bool is_send, std::size_t nbytes, int peer, Tag tag);

/// What completed Works kept alive; the bindings call it with the GIL held and let the result go.
std::vector<std::shared_ptr<void>> take_released_owners();

}  // namespace hpcomm
