// Messages between processes (or threads) that map each other's memory.
#pragma once

#include <memory>
#include <vector>

#include "transport/shm/inbox.hpp"
#include "transport/shm/neighbours.hpp"
#include "transport/shm/operations.hpp"
#include "transport/shm/outbox.hpp"
#include "transport/transport.hpp"

namespace hpcomm::shm {

/// Reaches every rank of `neighbourhood` whose memory is mapped, its own included. A message
/// travels through the ring that the receiver owns for this sender: two copies, no lock, no system
/// call while nobody sleeps. Steps: one per message.
class ShmTransport final : public Transport {
 public:
  explicit ShmTransport(std::shared_ptr<Neighbourhood> neighbourhood);
  ~ShmTransport() override;

  std::string_view name() const noexcept override { return "shm"; }
  bool reaches(int peer) const noexcept override {
    return static_cast<bool>(neighbourhood_->at(peer).segment);
  }
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
  struct Channel {
    Outbox out;
    Inbox in;
    bool active = false;  // listed in active_
  };
  Channel& channel(int peer) { return channels_[static_cast<std::size_t>(peer)]; }
  void activate(int peer);
  void leave(RankState state) noexcept;

  std::shared_ptr<Neighbourhood> neighbourhood_;
  OperationTable operations_;
  std::vector<Channel> channels_;
  std::vector<int> active_;  // peers with pending operations
};

}  // namespace hpcomm::shm
