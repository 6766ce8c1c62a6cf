// Declaration of the MPI transport; for transport.cpp and control.cpp alone.
#pragma once

#include <deque>
#include <list>
#include <map>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "transport/mpi/library.hpp"
#include "transport/mpi/transport.hpp"

namespace hpcomm::mpi {

template <class Handle>
class MpiTransport final : public Transport {
 public:
  MpiTransport(const Binding& binding, std::uint64_t epoch, int rank, int size, std::string name);
  ~MpiTransport() override;

  std::string_view name() const noexcept override { return "mpi"; }
  bool reaches(int peer) const noexcept override { return peer != rank_; }
  Ticket isend(ConstBuffer src, int peer, Tag tag) override;
  Ticket irecv(Buffer dst, int peer, Tag tag) override;
  bool test(Ticket ticket) override;
  void cancel(Ticket ticket) noexcept override;
  void progress() override;
  std::optional<std::size_t> iprobe(int peer, Tag tag) override;
  void check_peer(int peer) override;
  void check_announcements() override;
  void announce_failure(const Failure& failure) noexcept override;
  void close() noexcept override;

 private:
  struct LengthNotice {
    std::uint64_t nbytes = 0;
    std::uint64_t tag = 0;
  };
  struct Operation {
    bool is_send = false;
    int peer = -1;
    Tag tag = 0;
    std::byte* data = nullptr;  // only read from where it is a send
    std::size_t nbytes = 0;
    bool matched = false;  // receive: its message is known
    bool complete = false;
    std::vector<Handle> requests;  // not complete
    LengthNotice notice;
    std::size_t message_nbytes = 0;  // receive: what the sender sent
    std::size_t dropped = 0;         // receive of the wrong length: bytes gone by
    std::vector<std::byte> waste;    // and where they go
  };
  enum class ControlKind : std::uint32_t { failed, closed };
  struct ControlMessage {
    std::uint64_t epoch = 0;
    ControlKind kind = ControlKind::failed;
    std::int32_t sender = -1;
    std::int32_t code = 0;
    std::int32_t origin = -1;
    std::uint32_t length = 0;
    char text[1000]{};
  };

  static Handle to_handle(std::uint64_t bits) noexcept {
    if constexpr (std::is_same_v<Handle, int>) {
      return static_cast<int>(static_cast<std::uint32_t>(bits));
    } else {
      return reinterpret_cast<Handle>(bits);
    }
  }
  /// Throws Error(transport) with MPI's own text unless `code` is success.
  void check(int code, const char* what, int peer) const;
  bool may_call() const noexcept;
  void send_piece(Operation& operation, const void* data, std::size_t nbytes, Tag tag);
  void receive_piece(Operation& operation, std::byte* data, std::size_t nbytes);
  bool finish(Operation& operation);
  bool try_match(Operation& operation);
  void receive_waste(Operation& operation);
  std::optional<std::size_t> probed_bytes(int peer, Tag tag);
  std::optional<std::size_t> announced_length(int peer, Tag tag, bool take);
  void receive_now(void* data, std::size_t nbytes, int from, Tag tag);
  void abandon(Operation& operation) noexcept;
  void tell_peers(const ControlMessage& message, bool all) noexcept;
  void keep_for_good() noexcept;
  void read_control();
  [[noreturn]] void throw_announced(int peer, const ControlMessage& message) const;
  bool process_has_ended(int peer) const noexcept;

  const Binding binding_;
  const Library<Handle> mpi_;
  const Handle comm_;
  const Handle byte_;
  const std::uint64_t epoch_;
  const int rank_;
  const int size_;
  const std::string name_;
  const std::thread::id home_;
  Ticket last_ticket_ = 0;
  std::map<Ticket, Operation> operations_;                       // in order of posting
  std::map<std::pair<int, Tag>, std::deque<Ticket>> unmatched_;  // receives that wait for a message
  std::vector<std::deque<LengthNotice>> notices_;                // by peer
  std::vector<bool> met_;                                        // peers with traffic
  std::vector<std::optional<ControlMessage>> heard_;             // by peer
  std::vector<bool> missed_;                                     // peers whose process has ended
  std::list<ControlMessage> told_;                               // on their way; see keep_for_good
  bool silent_ = false;                                          // this rank has said its last word
};

}  // namespace hpcomm::mpi
