// Control lines and slots of a communicator whose ranks all share memory.
#pragma once

#include <memory>
#include <utility>

#include "transport/shared_group.hpp"
#include "transport/shm/neighbours.hpp"

namespace hpcomm::shm {

class Group final : public SharedGroup {
 public:
  explicit Group(std::shared_ptr<Neighbourhood> neighbourhood)
      : neighbourhood_(std::move(neighbourhood)) {}

  ControlLine& control(int rank) noexcept override {
    return neighbourhood_->at(rank).segment.header().control;
  }
  std::byte* slot(int rank, int index) noexcept override {
    return neighbourhood_->at(rank).segment.slot(index);
  }
  std::size_t slot_bytes() const noexcept override {
    return neighbourhood_->at(neighbourhood_->rank).segment.geometry().slot_bytes;
  }
  void wake() noexcept override {
    for (int peer = 0; peer < neighbourhood_->size(); ++peer)
      if (peer != neighbourhood_->rank) neighbourhood_->at(peer).segment.header().bell.ring();
  }

 private:
  std::shared_ptr<Neighbourhood> neighbourhood_;
};

}  // namespace hpcomm::shm
