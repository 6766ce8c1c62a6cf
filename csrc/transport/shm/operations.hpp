// The pending sends and receives of one shared-memory transport.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/error.hpp"
#include "transport/transport.hpp"

namespace hpcomm::shm {

struct Operation {
  enum class State : std::uint8_t { unused, pending, complete };
  State state = State::unused;
  bool is_send = false;
  int peer = -1;
  Tag tag = 0;
  std::byte* data = nullptr;  // only read from where it is a send
  std::size_t nbytes = 0;
  std::optional<Error> error;
  std::uint32_t generation = 0;
};

/// Operations by number; numbers are used again, tickets are not.
class OperationTable {
 public:
  using Index = std::uint32_t;

  Index add(bool is_send, int peer, Tag tag, std::byte* data, std::size_t nbytes) {
    Index index = 0;
    if (free_.empty()) {
      index = static_cast<Index>(operations_.size());
      operations_.emplace_back();
    } else {
      index = free_.back();
      free_.pop_back();
    }
    Operation& operation = operations_[index];
    const std::uint32_t generation = operation.generation + 1;
    operation = {
        Operation::State::pending, is_send, peer, tag, data, nbytes, std::nullopt, generation};
    return index;
  }
  Ticket ticket(Index index) const noexcept {
    return (Ticket{operations_[index].generation} << 32U) | (Ticket{index} + 1);
  }
  Operation& operator[](Index index) noexcept { return operations_[index]; }
  /// Throws Error(internal) for a ticket that is not pending.
  Index find(Ticket ticket) const {
    const std::optional<Index> index = find_if_any(ticket);
    HPCOMM_CHECK(index.has_value(), Errc::internal, "no operation has ticket ", ticket);
    return *index;
  }
  std::optional<Index> find_if_any(Ticket ticket) const noexcept {
    const Ticket low = ticket & 0xffffffffU;
    if (low == 0 || low > operations_.size()) return std::nullopt;
    const Operation& operation = operations_[low - 1];
    if (operation.state == Operation::State::unused || operation.generation != ticket >> 32U)
      return std::nullopt;
    return static_cast<Index>(low - 1);
  }
  void complete(Index index, std::optional<Error> error = std::nullopt) {
    operations_[index].state = Operation::State::complete;
    operations_[index].error = std::move(error);
  }
  void remove(Index index) {
    operations_[index].state = Operation::State::unused;
    operations_[index].error.reset();
    free_.push_back(index);
  }

 private:
  std::vector<Operation> operations_;
  std::vector<Index> free_;
};

}  // namespace hpcomm::shm
