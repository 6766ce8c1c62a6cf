// Messages to one peer on their way into the ring that it owns.
#pragma once

#include <cstddef>
#include <deque>

#include "core/doorbell.hpp"
#include "transport/shm/operations.hpp"
#include "transport/shm/ring.hpp"

namespace hpcomm::shm {

/// Sends in the order of posting, each as a stream of pieces that fit, so that a message may be
/// larger than the ring.
class Outbox {
 public:
  Outbox() = default;
  Outbox(RingProducer ring, Doorbell& bell) : ring_(ring), bell_(&bell) {}

  void post(OperationTable::Index index) { waiting_.push_back(index); }
  bool has_work() const noexcept { return !waiting_.empty() && !torn_; }
  /// Moves what fits into the ring.
  void push(OperationTable& operations);
  /// Forgets a pending send. If part of its message is in the ring already, nothing can follow: the
  /// outbox is torn.
  void cancel(OperationTable::Index index);
  bool torn() const noexcept { return torn_; }

 private:
  bool push_front(Operation& operation);
  void show();

  RingProducer ring_;
  Doorbell* bell_ = nullptr;
  std::deque<OperationTable::Index> waiting_;
  bool begun_ = false;    // the header of the first message is in the ring
  std::size_t sent_ = 0;  // bytes of the first message after its header, filling included
  bool torn_ = false;
};

}  // namespace hpcomm::shm
