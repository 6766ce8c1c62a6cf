#include "transport/loopback/transport.hpp"

#include <algorithm>
#include <cstring>

#include "core/error.hpp"
#include "core/surroundings.hpp"
#include "transport/failures.hpp"

namespace hpcomm::loopback {

LoopbackTransport::LoopbackTransport(std::shared_ptr<World> world, int rank, Medium medium)
    : world_(std::move(world)),
      rank_(rank),
      medium_(medium),
      random_(world_->options().seed * 1000003U + static_cast<std::uint64_t>(2 * rank) +
              static_cast<std::uint64_t>(medium)) {}

LoopbackTransport::~LoopbackTransport() {
  // Peers must not read memory of this rank once it is gone.
  while (!sends_.empty()) cancel(sends_.begin()->first);
}

std::string_view LoopbackTransport::name() const noexcept {
  return medium_ == Medium::node ? "loopback" : "loopback-network";
}

bool LoopbackTransport::reaches(int peer) const noexcept {
  return medium_ == Medium::network || world_->same_node(rank_, peer);
}

double LoopbackTransport::next_visible_s(int peer, Tag tag) {
  const double max_delay_s = world_->options().max_delay_s;
  if (max_delay_s <= 0) return 0;
  const double delay_s = std::uniform_real_distribution<double>(0, max_delay_s)(random_);
  double& last_s = last_visible_s_[{peer, tag}];
  last_s = std::max(last_s, monotonic_s() + delay_s);
  return last_s;
}

Ticket LoopbackTransport::isend(ConstBuffer src, int peer, Tag tag) {
  auto message = std::make_shared<Message>();
  message->source = rank_;
  message->tag = tag;
  message->data = src;
  message->visible_at_s = next_visible_s(peer, tag);
  message->chain = 1 + world_->chain_clock(rank_).fetch_add(1, std::memory_order_relaxed);
  if (src.nbytes <= world_->options().eager_bytes) {
    message->copy = std::make_unique_for_overwrite<std::byte[]>(src.nbytes);
    if (src.nbytes > 0) std::memcpy(message->copy.get(), src.data, src.nbytes);
    message->data.data = message->copy.get();
  }
  sends_.emplace(++last_ticket_, message);
  world_->mailbox(static_cast<int>(medium_), peer).post(std::move(message));
  return last_ticket_;
}

Ticket LoopbackTransport::irecv(Buffer dst, int peer, Tag tag) {
  progress();
  Receive& receive =
      receives_.try_emplace(++last_ticket_, Receive{dst, peer, tag, {}}).first->second;
  for (auto it = unexpected_.begin(); it != unexpected_.end();) {
    if ((*it)->source != peer || (*it)->tag != tag) {
      ++it;
      continue;
    }
    const bool taken = take(receive, std::move(*it));
    it = unexpected_.erase(it);
    if (taken) break;
  }
  return last_ticket_;
}

bool LoopbackTransport::take(Receive& receive, std::shared_ptr<Message> message) {
  if (!message->claim()) return false;  // the sender gave up
  const ConstBuffer data = message->data;
  if (data.nbytes == receive.dst.nbytes && data.nbytes > 0)
    std::memcpy(receive.dst.data, data.data, data.nbytes);
  message->state.store(Message::State::done, std::memory_order_release);
  receive.message = std::move(message);
  return true;
}

void LoopbackTransport::deliver(std::shared_ptr<Message> message) {
  for (auto& [ticket, receive] : receives_) {
    if (receive.message || receive.peer != message->source || receive.tag != message->tag) continue;
    take(receive, std::move(message));
    return;
  }
  unexpected_.push_back(std::move(message));
}

void LoopbackTransport::progress() {
  world_->mailbox(static_cast<int>(medium_), rank_).drain(travelling_);
  if (travelling_.empty()) return;
  if (world_->options().max_delay_s <= 0) {
    for (auto& message : travelling_) deliver(std::move(message));
    travelling_.clear();
    return;
  }
  const double now_s = monotonic_s();
  for (auto& message : travelling_)
    if (message->visible_at_s <= now_s) deliver(std::move(message));
  std::erase(travelling_, nullptr);
}

bool LoopbackTransport::test(Ticket ticket) {
  progress();
  if (const auto send = sends_.find(ticket); send != sends_.end()) {
    if (!send->second->copy && !send->second->is_done()) return false;
    sends_.erase(send);
    return true;
  }
  const auto found = receives_.find(ticket);
  HPCOMM_CHECK(found != receives_.end(), Errc::internal, "loopback: rank ", rank_,
               " asks for unknown ticket ", ticket);
  if (!found->second.message) return false;
  const Receive receive = std::move(found->second);
  receives_.erase(found);
  std::atomic<std::uint64_t>& clock = world_->chain_clock(rank_);
  clock.store(std::max(clock.load(std::memory_order_relaxed), receive.message->chain),
              std::memory_order_relaxed);
  if (receive.message->data.nbytes != receive.dst.nbytes)
    detail::throw_error(Errc::mismatch, receive.peer, "receive of ", receive.dst.nbytes,
                        " bytes from rank ", receive.peer, " (tag ", receive.tag, "): rank ",
                        receive.peer, " sent ", receive.message->data.nbytes,
                        " bytes; both ranks must name the same length");
  return true;
}

void LoopbackTransport::cancel(Ticket ticket) noexcept {
  if (const auto send = sends_.find(ticket); send != sends_.end()) {
    Message& message = *send->second;
    Message::State expected = Message::State::offered;
    if (!message.copy &&
        !message.state.compare_exchange_strong(expected, Message::State::cancelled) &&
        expected == Message::State::taken) {
      while (!message.is_done()) spin_pause();  // the receiver is in the middle of copying
    }
    sends_.erase(send);
    return;
  }
  receives_.erase(ticket);
}

std::optional<std::size_t> LoopbackTransport::iprobe(int peer, Tag tag) {
  progress();
  for (const auto& message : unexpected_)
    if (message->source == peer && message->tag == tag &&
        message->state.load(std::memory_order_acquire) == Message::State::offered)
      return message->data.nbytes;
  return std::nullopt;
}

void LoopbackTransport::check_peer(int peer) {
  const bool has_left = world_->has_left(peer);  // first: what it said before counts
  check_announcements();
  if (has_left)
    detail::throw_error(Errc::peer_dead, peer, "rank ", peer, " has left: its thread ended or it ",
                        "closed the communicator, so rank ", rank_, " waits in vain");
}

void LoopbackTransport::check_announcements() {
  if (const auto failure = world_->failure()) throw announced_failure(*failure);
}

void LoopbackTransport::announce_failure(const Failure& failure) noexcept {
  world_->announce(failure);
}

void LoopbackTransport::close() noexcept { world_->leave(rank_); }

}  // namespace hpcomm::loopback
