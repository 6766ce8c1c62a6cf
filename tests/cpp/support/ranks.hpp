// Runs ranks as threads of this process, over the loopback transport.
#pragma once

#include <functional>
#include <memory>
#include <stdexcept>
#include <string>

#include "core/surroundings.hpp"
#include "transport/endpoint.hpp"
#include "transport/loopback/world.hpp"

namespace hpcomm::testing {

/// What the body of one rank may use.
struct RankScope {
  int rank;
  int size;
  Endpoint& endpoint;
  loopback::World& world;
  Surroundings& surroundings;

  /// A deadline that a test without a fault never reaches.
  Deadline patient() { return Deadline::after(surroundings, 60); }
  Deadline in(double timeout_s) { return Deadline::after(surroundings, timeout_s); }
};

struct RunOptions {
  loopback::Options world;
  std::string name = "world";
  /// Waits are interrupted by sleeps of a random length up to this.
  double jitter_s = 0;
  /// A run that lasts longer hangs: its waits are ended by an error, and the run fails.
  double limit_s = 120;
};

/// What a rank threw, with the rank in front; of several ranks the one that failed first.
class RankFailure : public std::runtime_error {
 public:
  RankFailure(int rank, const std::string& what)
      : std::runtime_error("rank " + std::to_string(rank) + ": " + what), rank_(rank) {}
  int rank() const noexcept { return rank_; }

 private:
  int rank_;
};

/// Runs `body` on `size` threads and joins them. A rank that throws makes the others fail as well
/// (their waits end), and the first failure is rethrown as RankFailure. Boost.Test's checks are not
/// thread-safe: bodies use require().
void run_ranks(int size, const std::function<void(RankScope&)>& body,
               const RunOptions& options = {});

/// Throws if `condition` is false.
inline void require(bool condition, const std::string& text) {
  if (!condition) throw std::runtime_error(text);
}

/// Runs `action`, which must throw an Error of `code`; returns its text.
std::string error_text(Errc code, const std::function<void()>& action);

}  // namespace hpcomm::testing
