#include "transport/endpoint.hpp"

#include <cmath>
#include <numeric>
#include <sstream>
#include <utility>

#include "core/error.hpp"

namespace hpcomm {
namespace {

std::string list_of(std::span<const int> ranks) {
  std::ostringstream text;
  text << (ranks.size() == 1 ? "rank " : "ranks ");
  for (std::size_t i = 0; i < ranks.size(); ++i) text << (i == 0 ? "" : ", ") << ranks[i];
  return text.str();
}

}  // namespace

Endpoint::Endpoint(int rank, int size, std::string name,
                   std::vector<std::unique_ptr<Transport>> transports,
                   std::shared_ptr<SharedGroup> shared, Surroundings& surroundings)
    : rank_(rank),
      size_(size),
      name_(std::move(name)),
      transports_(std::move(transports)),
      by_peer_(static_cast<std::size_t>(size), nullptr),
      shared_(std::move(shared)),
      surroundings_(&surroundings) {
  for (int peer = 0; peer < size_; ++peer) {
    Transport*& chosen = by_peer_[static_cast<std::size_t>(peer)];
    for (const auto& transport : transports_) {
      if (!transport->reaches(peer)) continue;
      chosen = transport.get();
      break;
    }
    HPCOMM_CHECK(chosen != nullptr || peer == rank_, Errc::unsupported, "communicator '", name_,
                 "': rank ", rank_, " has no way to reach rank ", peer,
                 "; ranks on different nodes need MPI");
  }
}

Transport& Endpoint::transport_to(int peer) {
  HPCOMM_CHECK(peer >= 0 && peer < size_, Errc::invalid_argument, "communicator '", name_,
               "' has ranks 0 to ", size_ - 1, "; rank ", rank_, " asked for rank ", peer);
  Transport* transport = by_peer_[static_cast<std::size_t>(peer)];
  HPCOMM_CHECK(transport != nullptr, Errc::unsupported, "rank ", rank_, " of communicator '", name_,
               "' cannot send to itself over this transport");
  return *transport;
}

Endpoint::Handle Endpoint::isend(ConstBuffer src, int peer, Tag tag) {
  Transport& transport = transport_to(peer);
  const Ticket ticket = transport.isend(src, peer, tag);
  ++counters_.messages_sent;
  counters_.bytes_sent += src.nbytes;
  return {&transport, ticket, peer, true};
}

Endpoint::Handle Endpoint::irecv(Buffer dst, int peer, Tag tag) {
  Transport& transport = transport_to(peer);
  const Ticket ticket = transport.irecv(dst, peer, tag);
  ++counters_.messages_received;
  counters_.bytes_received += dst.nbytes;
  return {&transport, ticket, peer, false};
}

bool Endpoint::test(Handle& handle) {
  if (!handle) return true;
  const Handle copy =
      std::exchange(handle, Handle{});  // a test that throws frees the ticket as well
  if (copy.transport->test(copy.ticket)) return true;
  handle = copy;
  return false;
}

void Endpoint::wait(Handle& handle, const Deadline& deadline, std::string_view what) {
  if (test(handle)) return;
  const int peers[] = {handle.peer};
  wait_until([&] { return test(handle); }, peers, [](int) { return false; }, deadline, what);
}

void Endpoint::wait_all(std::span<Handle> handles, const Deadline& deadline,
                        std::string_view what) {
  std::vector<int> peers;
  const auto all_complete = [&] {
    bool complete = true;
    for (Handle& handle : handles) complete = test(handle) && complete;
    return complete;
  };
  if (all_complete()) return;
  for (const Handle& handle : handles)
    if (handle) peers.push_back(handle.peer);
  const auto answered = [&](int peer) {
    for (const Handle& handle : handles)
      if (handle && handle.peer == peer) return false;
    return true;
  };
  // A peer whose own message is complete may leave while others are still awaited.
  for (;;) {
    bool shrunk = false;
    wait_until(
        [&] {
          if (all_complete()) return true;
          shrunk = std::erase_if(peers, answered) > 0;
          return shrunk;
        },
        peers, answered, deadline, what);
    if (!shrunk) return;
  }
}

void Endpoint::cancel(Handle& handle) noexcept {
  if (!handle) return;
  handle.transport->cancel(handle.ticket);
  handle = Handle{};
}

void Endpoint::progress() {
  for (const auto& transport : transports_) transport->progress();
}

std::optional<std::size_t> Endpoint::iprobe(int peer, Tag tag) {
  return transport_to(peer).iprobe(peer, tag);
}

void Endpoint::announce_failure(const Failure& failure) noexcept {
  for (const auto& transport : transports_) transport->announce_failure(failure);
}

void Endpoint::close() noexcept {
  for (const auto& transport : transports_) transport->close();
}

void Endpoint::check_slow(std::span<const int> peers) {
  surroundings_->check_interrupt();
  check_peers(peers);
}

void Endpoint::check_peers(std::span<const int> peers) {
  for (const auto& transport : transports_) transport->check_announcements();
  for (const int peer : peers)
    if (peer != rank_) transport_to(peer).check_peer(peer);
}

void Endpoint::throw_timeout(std::span<const int> missing, const Deadline& deadline,
                             std::string_view what) {
  std::ostringstream text;
  text << what << " on communicator '" << name_ << "': rank " << rank_ << " waited ";
  if (std::isfinite(deadline.timeout_s)) {
    // Not the timeout as given: a wait on an asynchronous operation may have brought it forward.
    const double waited_s = surroundings_->now_s() - (deadline.at_s - deadline.timeout_s);
    text << std::round(100 * waited_s) / 100 << " s ";
  }
  text << "for " << (missing.empty() ? std::string("the others") : list_of(missing))
       << ", which did not answer; check that they are still at work and call the same operations "
          "in the same order, or allow "
          "more time with timeout_s";
  throw Error(Errc::timeout, missing.empty() ? -1 : missing.front(), text.str());
}

}  // namespace hpcomm
