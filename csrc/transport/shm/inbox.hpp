// Messages from one peer on their way out of the ring that it fills.
#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <vector>

#include "core/doorbell.hpp"
#include "transport/shm/operations.hpp"
#include "transport/shm/ring.hpp"

namespace hpcomm::shm {

/// Matches messages with receives by tag in posting order. The ring is read only while somebody
/// asks for a message: what nobody asked for stays there and holds the sender back, unless a later
/// message is wanted, then it is put aside.
class Inbox {
 public:
  Inbox() = default;
  Inbox(RingConsumer ring, Doorbell& bell, int own_rank, int peer)
      : ring_(ring), bell_(&bell), own_rank_(own_rank), peer_(peer) {}

  void post(OperationTable& operations, OperationTable::Index index);
  bool has_work() const noexcept {
    return !posted_.empty() || target_ == Target::operation || target_ == Target::drop;
  }
  /// Moves what has arrived to where it belongs.
  void pull(OperationTable& operations);
  /// Bytes of the first message of `tag` that no receive was posted for.
  std::optional<std::size_t> probe(OperationTable& operations, Tag tag);
  /// The buffer of a pending receive is no longer touched; the rest of its message is dropped.
  void cancel(OperationTable::Index index);

 private:
  struct Aside {  // a message that nobody asked for yet
    Tag tag = 0;
    std::size_t nbytes = 0;
    std::vector<std::byte> bytes;
    bool complete = false;
  };
  enum class Target { none, operation, aside, drop };

  void run(OperationTable& operations, std::optional<Tag> probed);
  bool read_header();
  bool stream(OperationTable& operations);
  void finish(OperationTable& operations);
  void put_aside();
  void aim_at(OperationTable& operations, OperationTable::Index index);
  bool take_aside(OperationTable& operations, OperationTable::Index index);
  std::optional<OperationTable::Index> take_posted(OperationTable& operations, Tag tag);
  Error length_error(const Operation& operation, std::size_t nbytes) const;

  RingConsumer ring_;
  Doorbell* bell_ = nullptr;  // the sender's
  int own_rank_ = -1;
  int peer_ = -1;
  std::deque<OperationTable::Index> posted_;  // not matched yet, in posting order
  std::deque<Aside> aside_;  // in order of arrival; only the last may be incomplete
  // The message that the ring is at, if any:
  bool in_message_ = false;
  MessageHeader header_;
  std::size_t arrived_ = 0;  // bytes after the header, filling included
  Target target_ = Target::none;
  OperationTable::Index operation_ = 0;
  std::byte* into_ = nullptr;  // null: the bytes are dropped
};

}  // namespace hpcomm::shm
