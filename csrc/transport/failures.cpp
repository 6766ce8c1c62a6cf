#include "transport/failures.hpp"

#include <sstream>
#include <string>

namespace hpcomm {
namespace {

template <class... Parts>
Error make(Errc code, int rank, const Parts&... parts) {
  std::ostringstream text;
  (text << ... << parts);
  return Error(code, rank, text.str());
}

// A death is told in words that name the rank already.
std::string prefix_of(const Failure& failure) {
  if (failure.origin < 0 || failure.code == Errc::peer_dead) return {};
  return "rank " + std::to_string(failure.origin) + " failed: ";
}

}  // namespace

Error length_mismatch(int own_rank, int peer, Tag tag, std::size_t expected_nbytes,
                      std::size_t message_nbytes) {
  return make(
      Errc::mismatch, peer, "receive of ", expected_nbytes, " bytes from rank ", peer, " (tag ",
      tag, ") on rank ", own_rank, ": the message has ", message_nbytes,
      " bytes; both sides must agree on shape and dtype, and on the order of messages of one tag");
}

Failure failure_of(const Error& error, int own_rank) {
  const bool is_of_peer =
      error.code() == Errc::peer_dead || (error.code() == Errc::peer_aborted && error.rank() >= 0);
  Failure failure{error.code(), is_of_peer ? error.rank() : own_rank, error.what()};
  const std::string prefix = prefix_of(failure);  // the next one adds it again
  if (failure.message.starts_with(prefix)) failure.message.erase(0, prefix.size());
  return failure;
}

Error announced_failure(const Failure& failure) {
  const Errc code = failure.code == Errc::peer_dead ? Errc::peer_dead : Errc::peer_aborted;
  return make(code, failure.origin, describe(failure));
}

std::string describe(const Failure& failure) { return prefix_of(failure) + failure.message; }

Error left_too_early(std::string_view communicator, int peer, int own_rank) {
  return make(Errc::peer_aborted, peer, "rank ", peer, " closed communicator '", communicator,
              "' while rank ", own_rank,
              " still waits for it; all ranks must make the same calls before they close");
}

Error peer_died(std::string_view communicator, int peer, long pid, int own_rank) {
  const std::string process = pid > 0 ? "process " + std::to_string(pid) : "its process";
  return make(Errc::peer_dead, peer, "rank ", peer, " of communicator '", communicator, "' died (",
              process, " has ended) while rank ", own_rank,
              " waited for it; look at the output of rank ", peer);
}

}  // namespace hpcomm
