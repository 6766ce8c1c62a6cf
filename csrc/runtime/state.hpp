// The inside of a Communicator. For csrc/runtime alone.
#pragma once

#include <atomic>
#include <deque>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "core/doorbell.hpp"
#include "runtime/communicator.hpp"
#include "runtime/turnstile.hpp"

namespace hpcomm {

/// What a communicator's waits do between two polls: let other threads and fibers in, then spin,
/// yield or sleep.
class CommunicatorSurroundings final : public Surroundings {
 public:
  explicit CommunicatorSurroundings(Communicator::State& state) : state_(state) {}
  double now_s() override { return monotonic_s(); }
  void relax(Backoff& backoff) override;
  void check_interrupt() override;

 private:
  void sleep(Backoff& backoff);
  Communicator::State& state_;
};

/// All but the constants and the atomics is guarded by `turnstile`.
struct Communicator::State {
  State(CommunicatorOptions opts, NodeLayout nodes);

  // --- constants after creation
  const CommunicatorOptions options;
  const NodeLayout layout;
  const Selection selection;
  const std::uint64_t generation;  // of the process that made it
  const std::thread::id home;      // the thread that made it
  bool home_thread_only = false;   // MPI below MPI_THREAD_MULTIPLE is among the transports
  bool polls_mpi = false;          // a sleeping wait would miss messages over MPI
  Doorbell* bell = nullptr;        // rung by peers that share memory
  std::unique_ptr<SpinBan> spin_ban;
  std::vector<std::string> transport_names;  // by peer

  // --- any thread
  std::atomic<bool> closing{false};  // no new operations
  std::atomic<bool> closed{false};
  std::atomic<bool> stopped{false};  // waits in progress end with stop_error()
  std::atomic<bool> broken{false};
  std::atomic<bool> listed{false};  // a scheduler looks after its pending operations
  std::atomic<double> hurry_at_s{
      std::numeric_limits<double>::infinity()};  // a deadline for the collective that runs

  // --- under the turnstile
  Turnstile turnstile;
  CommunicatorSurroundings surroundings{*this};
  std::unique_ptr<Endpoint> endpoint;          // null once closed and unused
  Failure failure;                             // the first one, if broken
  std::vector<std::shared_ptr<Work>> pending;  // isend and irecv that are not complete
  std::deque<std::shared_ptr<Work>> queue;     // collectives that have not begun
  bool collective_running = false;
  std::atomic<int> inside{
      0};  // calls that use the endpoint, even while they step aside; changed under it
  double next_check_s = 0;
  unsigned polls = 0;

  bool on_home_thread() const noexcept { return std::this_thread::get_id() == home; }
  /// Throws Error(broken) unless operations may begin.
  void check_usable() const;
  Error stop_error() const;
  /// Throws Error(invalid_argument) unless (peer, tag) may be used.
  void check_address(int peer, Tag tag) const;
  double seconds(std::optional<double> timeout_s) const;
  Deadline deadline(std::optional<double> timeout_s);
  /// Takes note of an error; if it breaks the communicator: tells the peers and completes all that
  /// is pending.
  void fail(const Error& error) noexcept;
  void complete_all(const Error& error) noexcept;
  /// The death of a rank of this communicator, if there is one; else one of no rank of it, with
  /// `message`, in which another communicator told it.
  Error death(std::string_view message);
  /// Makes progress on pending sends and receives; true if one was completed.
  bool poll_pending();
  bool poll(Work& work);
  void check_peers_of_pending();
  /// Runs one collective on this thread or fiber; errors end up in `work`.
  void run(Work& work) noexcept;
  /// The same; errors are thrown.
  void run(CollectiveRequest request, std::string_view algorithm);
  void forget(const Work& work) noexcept;
  /// Calls `operation`, which uses the endpoint; its errors are noted (fail) and thrown on.
  template <class Operation>
  void attempt(Operation&& operation);
};

template <class Operation>
void Communicator::State::attempt(Operation&& operation) {
  struct Inside {
    std::atomic<int>& count;
    explicit Inside(std::atomic<int>& inside_count) : count(inside_count) { ++count; }
    ~Inside() { --count; }
  } inside_now(inside);
  try {
    operation();
  } catch (const Error& error) {
    fail(error);
    throw;
  } catch (const std::exception& error) {
    fail(Error(Errc::internal, options.rank, error.what()));
    throw;
  }
}

}  // namespace hpcomm
