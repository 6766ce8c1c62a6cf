// A group of ranks that talk to each other: what the bindings hold. Joins transports, collectives
// and the progress thread.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/request.hpp"
#include "collectives/selection.hpp"
#include "runtime/topology.hpp"
#include "runtime/work.hpp"
#include "transport/endpoint.hpp"
#include "transport/mpi/binding.hpp"

namespace hpcomm {

/// Allgather of one byte string per rank among the ranks of the new group, in rank order. Used only
/// while a communicator is created; all ranks call it equally often.
using Exchange = std::function<std::vector<std::string>(const std::string&)>;

struct CommunicatorOptions {
  std::string name = "world";
  int rank = 0;
  int size = 1;
  /// Deadline of every operation that names none.
  double timeout_s = 300.0;
  /// 0: real nodes; k: ranks [0,k), [k,2k), … pretend to be on nodes of their own.
  int ranks_per_node = 0;
  /// For children: this rank's pretended node, whatever its rank here; -1: real.
  int fake_node = -1;
  /// Of one staging slot in shared memory; a multiple of 4096.
  std::size_t slot_bytes = 64 * 1024;
  /// Of the ring per sending peer; a power of two. Its memory is used only once messages flow.
  std::size_t ring_bytes = 1024 * 1024;
  /// Never spin, even if the CPUs seem to suffice.
  bool oversubscribed = false;
  /// Text of HPCOMM_TUNE.
  std::string selection_override;
  /// Ways to map a peer's memory, in order of preference.
  std::string shm_routes = "proc,socket,named";
  /// Null: one node only.
  std::shared_ptr<mpi::Binding> mpi;
};

struct Probe {
  std::size_t nbytes = 0;
};

/// Thread-safe; lives in a shared_ptr. Blocking calls run on the caller's thread unless
/// asynchronous collectives of this communicator are pending, behind which they then queue. Errors
/// that break the communicator (error.hpp) are announced to the peers once, and every later call
/// throws Error(broken) that quotes the first one. In a child made by fork every call throws
/// Error(broken). `timeout_s`: none means the communicator's default.
class Communicator : public std::enable_shared_from_this<Communicator> {
 public:
  struct State;  // for csrc/runtime alone

  /// Collective. Maps shared memory and agrees on the nodes. Throws the same Error on every rank.
  static std::shared_ptr<Communicator> create(CommunicatorOptions options,
                                              const Exchange& exchange);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const noexcept;
  int size() const noexcept;
  const std::string& name() const noexcept;
  double default_timeout_s() const noexcept;
  const NodeLayout& layout() const noexcept;
  /// Transport used for `peer`: "shm" or "mpi".
  std::string transport_name(int peer);

  /// `tag` in [0, tag::kUserLimit) or tag::kObject.
  std::shared_ptr<Work> isend(ConstBuffer src, int peer, Tag tag);
  std::shared_ptr<Work> irecv(Buffer dst, int peer, Tag tag);
  void send(ConstBuffer src, int peer, Tag tag, std::optional<double> timeout_s = std::nullopt);
  void recv(Buffer dst, int peer, Tag tag, std::optional<double> timeout_s = std::nullopt);
  /// Blocks until a message of (peer, tag) is here and says how long it is; the next receive of
  /// (peer, tag) gets it.
  Probe probe(int peer, Tag tag, std::optional<double> timeout_s = std::nullopt);

  /// `request.deadline` is ignored: `timeout_s` counts. `request.counts` is copied.
  std::shared_ptr<Work> icollective(const CollectiveRequest& request, std::string algorithm = {},
                                    std::optional<double> timeout_s = std::nullopt);
  void collective(const CollectiveRequest& request, std::string_view algorithm = {},
                  std::optional<double> timeout_s = std::nullopt);

  /// Local and idempotent. Pending sends and collectives get `grace_s` seconds to complete, then
  /// everything pending is given up with Error(broken). Peers that still wait for this rank get an
  /// error that says so. True if this call closed it.
  bool close(double grace_s = 1.0) noexcept;
  bool is_closed() const noexcept;
  bool is_broken() const noexcept;
  /// Text of the first error, empty while the communicator is usable.
  std::string broken_reason() const;
  enum class Cause {
    own_failure,  // of this rank
    lost_rank,    // another communicator lost a rank, which need not be one of this communicator
  };
  /// Breaks this communicator on every rank: the peers' calls throw Error(peer_aborted) with
  /// `message`, or Error(peer_dead) where a rank was lost.
  void abort(std::string_view message, Cause cause = Cause::own_failure) noexcept;
  /// The same for every communicator of this process that is open.
  static void abort_all(std::string_view message, Cause cause = Cause::own_failure) noexcept;
  /// Closes every open communicator and joins the progress thread; for the interpreter's exit.
  /// Idempotent.
  static void shutdown_all() noexcept;

  /// The selection table for people.
  std::string selection_map() const;
  Counters counters();
  /// Whether asynchronous collectives advance on the progress thread (else only in calls of the
  /// main thread).
  bool has_background_progress() const noexcept;
  /// How many asynchronous operations are not complete, for debugging and tests.
  std::size_t pending() const;

 private:
  friend class Work;
  friend class Progress;
  friend class Scheduler;
  explicit Communicator(std::unique_ptr<State> state);
  State& enter() const;
  // What Work stands on:
  void advance(Work& work);
  void wait(Work& work, std::optional<double> timeout_s);
  void wait_message(Work& work, std::optional<double> timeout_s);
  void wait_collective(Work& work, std::optional<double> timeout_s);
  bool run_queued(Work& work, const Deadline& deadline);
  std::shared_ptr<Work> post(Work::Kind kind, Buffer buffer, int peer, Tag tag);

  std::unique_ptr<State> state_;
};

}  // namespace hpcomm
