// The one error type of the core. Every failure a user can cause or meet is an `Error` with a code
// that the bindings turn into the class of the same meaning in hpcomm/errors.py.
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>

namespace hpcomm {

enum class Errc {
  invalid_argument,  // this call alone is wrong
  mismatch,  // the ranks do not agree on what they do; raised on every rank, the group stays usable
  unsupported,
  timeout,       // a peer did not answer before the deadline; the communicator is broken afterwards
  peer_dead,     // a peer's process is gone; broken afterwards
  peer_aborted,  // a peer reported a failure of its own; broken afterwards
  transport,     // the medium failed; broken afterwards
  broken,        // the communicator failed earlier or was closed
  interrupted,   // a signal handler asked to stop (Ctrl-C); the binding re-raises Python's own
                 // exception
  internal,
};

class Error : public std::runtime_error {
 public:
  /// `rank` is the rank (in the communicator concerned) that the message speaks about, -1 for none.
  Error(Errc code, int rank, const std::string& message)
      : std::runtime_error(message), code_(code), rank_(rank) {}

  Errc code() const noexcept { return code_; }
  int rank() const noexcept { return rank_; }
  /// True where the communicator cannot be used after this error.
  bool breaks_communicator() const noexcept {
    return code_ == Errc::timeout || code_ == Errc::peer_dead || code_ == Errc::peer_aborted ||
           code_ == Errc::transport || code_ == Errc::internal || code_ == Errc::interrupted;
  }

 private:
  Errc code_;
  int rank_;
};

namespace detail {
template <class... Parts>
[[noreturn]] void throw_error(Errc code, int rank, Parts&&... parts) {
  std::ostringstream text;
  (text << ... << std::forward<Parts>(parts));
  throw Error(code, rank, text.str());
}
}  // namespace detail

/// Always on, in every build type.
#define HPCOMM_CHECK(condition, code, ...)                    \
  do {                                                        \
    if (!(condition)) [[unlikely]]                            \
      ::hpcomm::detail::throw_error((code), -1, __VA_ARGS__); \
  } while (0)

}  // namespace hpcomm
