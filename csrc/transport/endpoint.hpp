// What algorithms and point-to-point calls hold: one communicator's view of all its peers. Picks
// the transport per peer, waits with a deadline, counts messages and bytes. Not thread-safe:
// runtime/communicator.hpp serialises calls.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/surroundings.hpp"
#include "transport/shared_group.hpp"
#include "transport/transport.hpp"

namespace hpcomm {

struct Counters {
  std::uint64_t messages_sent = 0;
  std::uint64_t bytes_sent = 0;
  std::uint64_t messages_received = 0;
  std::uint64_t bytes_received = 0;
  std::uint64_t bytes_read_shared = 0;  // by shared-memory algorithms, out of other ranks' memory
};

class Endpoint {
 public:
  /// `transports` in order of preference; each peer gets the first that reaches it. `shared` may be
  /// null.
  Endpoint(int rank, int size, std::string name, std::vector<std::unique_ptr<Transport>> transports,
           std::shared_ptr<SharedGroup> shared, Surroundings& surroundings);

  int rank() const noexcept { return rank_; }
  int size() const noexcept { return size_; }
  /// As the user named the communicator; for messages.
  const std::string& name() const noexcept { return name_; }
  Surroundings& surroundings() noexcept { return *surroundings_; }

  struct Handle {  // a ticket with the transport it belongs to
    Transport* transport = nullptr;
    Ticket ticket = 0;
    int peer = -1;
    bool is_send = false;
    explicit operator bool() const noexcept { return transport != nullptr; }
  };

  Handle isend(ConstBuffer src, int peer, Tag tag);
  Handle irecv(Buffer dst, int peer, Tag tag);
  /// True once complete; `handle` is then empty. Empty handles are complete.
  bool test(Handle& handle);
  /// `what` names the operation in the message of a timeout ("allreduce of 4096 bytes").
  void wait(Handle& handle, const Deadline& deadline, std::string_view what);
  void wait_all(std::span<Handle> handles, const Deadline& deadline, std::string_view what);
  void cancel(Handle& handle) noexcept;
  void progress();

  /// Waits until `ready()`; between polls it relaxes, makes progress, and in the slow path checks
  /// Ctrl-C, the deadline and that `peers` live. All waits of the library go through here. On
  /// timeout the message names the missing ranks: those of `peers` for which `answered(peer)` is
  /// false.
  template <class Ready, class Answered>
  void wait_until(Ready&& ready, std::span<const int> peers, Answered&& answered,
                  const Deadline& deadline, std::string_view what);

  /// Null where the communicator spans nodes (or shared memory could not be mapped).
  SharedGroup* shared() noexcept { return shared_.get(); }
  /// Number of this communicator's collectives so far; equal on all ranks. Shared-memory algorithms
  /// advance it per phase.
  std::uint64_t& sequence() noexcept { return sequence_; }
  const Counters& counters() const noexcept { return counters_; }
  void count_shared_read(std::size_t nbytes) noexcept { counters_.bytes_read_shared += nbytes; }
  std::span<const std::unique_ptr<Transport>> transports() const noexcept { return transports_; }
  Transport& transport_to(int peer);
  std::optional<std::size_t> iprobe(int peer, Tag tag);
  void announce_failure(const Failure& failure) noexcept;
  /// Throws if one of `peers` is gone, or any peer announced a failure.
  void check_peers(std::span<const int> peers);
  /// Slow path of a wait for `peers`: check_peers(), or the user wants to stop.
  void check_slow(std::span<const int> peers);
  void close() noexcept;

 private:
  [[noreturn]] void throw_timeout(std::span<const int> missing, const Deadline& deadline,
                                  std::string_view what);

  int rank_;
  int size_;
  std::string name_;
  std::vector<std::unique_ptr<Transport>> transports_;
  std::vector<Transport*> by_peer_;
  std::shared_ptr<SharedGroup> shared_;
  Surroundings* surroundings_;
  std::uint64_t sequence_ = 0;
  Counters counters_;
};

template <class Ready, class Answered>
void Endpoint::wait_until(Ready&& ready, std::span<const int> peers, Answered&& answered,
                          const Deadline& deadline, std::string_view what) {
  constexpr double kCheckEvery_s = 0.005;
  Backoff backoff;
  double next_check_s = 0;
  while (!ready()) {
    surroundings_->relax(backoff);
    if ((backoff.polls & 63U) != 0) continue;
    const double now_s = surroundings_->now_s();
    if (now_s < next_check_s) continue;
    next_check_s = now_s + kCheckEvery_s;
    try {
      check_slow(peers);
    } catch (const Error& error) {
      // What a peer sent before it left counts.
      if (error.code() != Errc::interrupted && ready()) return;
      throw;
    }
    if (deadline.passed(now_s) && !ready()) {
      std::vector<int> missing;
      for (int peer : peers)
        if (!answered(peer)) missing.push_back(peer);
      throw_timeout(missing, deadline, what);
    }
  }
}

}  // namespace hpcomm
