// What ranks share that are threads of one process: mailboxes, heap memory for shared-memory
// algorithms, and the news of who left or failed. For tests, simulations and experiments.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "transport/endpoint.hpp"
#include "transport/loopback/mailbox.hpp"

namespace hpcomm::loopback {

struct Options {
  /// 0: all ranks share memory. k: ranks [0, k), [k, 2k), … pretend to be nodes of their own; they
  /// share no memory, and messages between them take another medium than those within.
  int ranks_per_node = 0;
  /// False: no SharedGroup although all ranks are on one node.
  bool shared_memory = true;
  std::size_t slot_bytes = 64 * 1024;
  /// Longer messages are not copied by the sender: their sends complete when a receive takes them.
  std::size_t eager_bytes = 1024;
  /// Each message becomes visible after a random time up to this; messages of different peers or
  /// tags overtake each other.
  double max_delay_s = 0;
  std::uint64_t seed = 0;
};

/// Outlives the endpoints made from it by shared ownership. Thread-safe.
class World : public std::enable_shared_from_this<World> {
 public:
  static std::shared_ptr<World> create(int size, Options options = {});

  int size() const noexcept { return size_; }
  const Options& options() const noexcept { return options_; }
  /// `rank`'s view of all its peers; to be used by one thread at a time.
  Endpoint endpoint(int rank, std::string name, Surroundings& surroundings);
  std::vector<std::unique_ptr<Transport>> transports(int rank);
  /// Null where the ranks do not share memory.
  std::shared_ptr<SharedGroup> shared() const noexcept { return shared_; }

  /// The longest chain of messages that led to what `rank` did last: each send lengthens the chain
  /// of its rank by one (a rank sends one message at a time), each completed receive joins the
  /// chain of the sender.
  std::uint64_t chain(int rank) const noexcept;

  // For the transports:
  Mailbox& mailbox(int medium, int rank) noexcept;
  bool same_node(int a, int b) const noexcept;
  std::atomic<std::uint64_t>& chain_clock(int rank) noexcept;
  /// The thread of `rank` ended or its endpoint was closed: peers that still wait for it are told.
  void leave(int rank) noexcept;
  bool has_left(int rank) const noexcept;
  /// The first failure counts.
  void announce(const Failure& failure) noexcept;
  std::optional<Failure> failure() const;

 private:
  World(int size, Options options);

  struct alignas(64) PerRank {
    std::atomic<std::uint64_t> chain{0};
    std::atomic<bool> left{false};
    Mailbox mailboxes[2];
  };

  const int size_;
  const Options options_;
  std::unique_ptr<PerRank[]> ranks_;
  std::shared_ptr<SharedGroup> shared_;
  std::atomic<bool> failed_{false};
  mutable std::mutex failure_mutex_;
  std::optional<Failure> failure_;
};

}  // namespace hpcomm::loopback
