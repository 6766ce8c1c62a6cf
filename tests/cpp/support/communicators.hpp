// Runs ranks as threads that make real communicators: shared-memory segments, progress thread and
// all.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/communicator.hpp"

namespace hpcomm::testing {

/// An allgather among `size` threads. Each thread calls the exchange of its own rank.
class ThreadBoard {
 public:
  explicit ThreadBoard(int size);
  ~ThreadBoard();
  Exchange exchange(int rank);
  /// Ends all waits with an error: a rank has failed.
  void give_up();

 private:
  struct Inside;
  std::shared_ptr<Inside> inside_;
};

/// Runs `body` on `size` threads, each with a communicator of all of them. A rank that throws
/// aborts its communicator, so that the others end too; the first failure is rethrown as
/// std::runtime_error with the rank in front. Boost.Test's checks are not thread-safe: bodies use
/// require().
void run_communicators(int size, const std::function<void(Communicator&)>& body,
                       const CommunicatorOptions& options = {});

inline ConstBuffer bytes_of(const std::vector<std::byte>& data) {
  return {data.data(), data.size()};
}
inline Buffer bytes_of(std::vector<std::byte>& data) { return {data.data(), data.size()}; }
/// `nbytes` that depend on `seed`.
std::vector<std::byte> pattern(std::size_t nbytes, unsigned seed);

/// An allreduce (sum) in place of 32-bit floats.
CollectiveRequest sum_of(std::vector<float>& values);

}  // namespace hpcomm::testing
