// Messages between ranks that are threads of one process.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>

#include "transport/loopback/world.hpp"
#include "transport/transport.hpp"

namespace hpcomm::loopback {

/// Matching happens on the receiver's thread, in its test, progress, irecv and iprobe, as it does
/// on real media; so a rank that makes no progress lets its peers wait.
class LoopbackTransport final : public Transport {
 public:
  enum class Medium { node, network };  // within a (pretended) node; between any two ranks

  LoopbackTransport(std::shared_ptr<World> world, int rank, Medium medium);
  ~LoopbackTransport() override;

  std::string_view name() const noexcept override;
  bool reaches(int peer) const noexcept override;
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
  struct Receive {
    Buffer dst;
    int peer = -1;
    Tag tag = 0;
    std::shared_ptr<Message> message;  // once it was taken
  };

  double next_visible_s(int peer, Tag tag);
  bool take(Receive& receive, std::shared_ptr<Message> message);
  void deliver(std::shared_ptr<Message> message);

  std::shared_ptr<World> world_;
  const int rank_;
  const Medium medium_;
  Ticket last_ticket_ = 0;
  std::map<Ticket, std::shared_ptr<Message>> sends_;
  std::map<Ticket, Receive> receives_;  // tickets grow, so this is the order of posting
  std::deque<std::shared_ptr<Message>> travelling_;  // posted, perhaps not visible yet
  std::deque<std::shared_ptr<Message>> unexpected_;
  std::mt19937_64 random_;
  std::map<std::pair<int, Tag>, double> last_visible_s_;
};

}  // namespace hpcomm::loopback
