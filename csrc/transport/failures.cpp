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

}  // namespace

Error length_mismatch(int own_rank, int peer, Tag tag, std::size_t expected_nbytes,
                      std::size_t message_nbytes) {
  return make(
      Errc::mismatch, peer, "receive of ", expected_nbytes, " bytes from rank ", peer, " (tag ",
      tag, ") on rank ", own_rank, ": the message has ", message_nbytes,
      " bytes; both sides must agree on shape and dtype, and on the order of messages of one tag");
}

Error announced_failure(int origin, std::string_view message) {
  return make(Errc::peer_aborted, origin, "rank ", origin, " failed: ", message);
}

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
