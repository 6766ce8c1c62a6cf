#include "transport/shm/transport.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "transport/failures.hpp"

namespace hpcomm::shm {
namespace {

[[noreturn]] void throw_announced(const SegmentHeader& header) {
  const std::size_t length = std::min<std::size_t>(header.failure_length, kMaxFailureText);
  throw announced_failure({static_cast<Errc>(header.failure_code),
                           header.failure_origin,
                           {header.failure_text, length}});
}

}  // namespace

ShmTransport::ShmTransport(std::shared_ptr<Neighbourhood> neighbourhood)
    : neighbourhood_(std::move(neighbourhood)), channels_(neighbourhood_->ranks.size()) {
  const int own = neighbourhood_->rank;
  const Segment& mine = neighbourhood_->own();
  for (int peer = 0; peer < neighbourhood_->size(); ++peer) {
    const Segment& theirs = neighbourhood_->at(peer).segment;
    if (!theirs) continue;
    const std::size_t ring_bytes = mine.geometry().ring_bytes;
    channel(peer).out =
        Outbox(RingProducer(theirs.ring_lines(own), theirs.ring_data(own), ring_bytes),
               theirs.header().bell);
    channel(peer).in = Inbox(RingConsumer(mine.ring_lines(peer), mine.ring_data(peer), ring_bytes),
                             theirs.header().bell, own, peer);
  }
}

ShmTransport::~ShmTransport() { close(); }

void ShmTransport::activate(int peer) {
  if (std::exchange(channel(peer).active, true)) return;
  active_.push_back(peer);
}

Ticket ShmTransport::isend(ConstBuffer src, int peer, Tag tag) {
  Outbox& out = channel(peer).out;
  HPCOMM_CHECK(!out.torn(), Errc::transport, "rank ", neighbourhood_->rank, " cannot send to rank ",
               peer, " any more: an earlier message was given up when half of it had been sent");
  // The outbox only reads.
  const auto index = operations_.add(true, peer, tag, const_cast<std::byte*>(src.data), src.nbytes);
  out.post(index);
  out.push(operations_);
  if (out.has_work()) activate(peer);
  return operations_.ticket(index);
}

Ticket ShmTransport::irecv(Buffer dst, int peer, Tag tag) {
  const auto index = operations_.add(false, peer, tag, dst.data, dst.nbytes);
  Inbox& in = channel(peer).in;
  in.post(operations_, index);
  if (in.has_work()) activate(peer);
  return operations_.ticket(index);
}

bool ShmTransport::test(Ticket ticket) {
  const auto index = operations_.find(ticket);
  if (operations_[index].state == Operation::State::pending) {
    progress();
    if (operations_[index].state == Operation::State::pending) return false;
  }
  const std::optional<Error> error = std::move(operations_[index].error);
  operations_.remove(index);
  if (error) throw Error(*error);
  return true;
}

void ShmTransport::cancel(Ticket ticket) noexcept {
  const auto index = operations_.find_if_any(ticket);
  if (!index) return;
  const Operation& operation = operations_[*index];
  if (operation.state == Operation::State::pending) {
    Channel& to = channel(operation.peer);
    if (operation.is_send) {
      to.out.cancel(*index);
    } else {
      to.in.cancel(*index);
    }
  }
  operations_.remove(*index);
}

void ShmTransport::progress() {
  bool finished = false;
  for (const int peer : active_) {
    Channel& with = channel(peer);
    if (with.out.has_work()) with.out.push(operations_);
    if (with.in.has_work()) with.in.pull(operations_);
    if (!with.out.has_work() && !with.in.has_work()) {
      with.active = false;
      finished = true;
    }
  }
  if (finished) std::erase_if(active_, [this](int peer) { return !channel(peer).active; });
}

std::optional<std::size_t> ShmTransport::iprobe(int peer, Tag tag) {
  progress();
  return channel(peer).in.probe(operations_, tag);
}

void ShmTransport::check_peer(int peer) {
  const Neighbour& neighbour = neighbourhood_->at(peer);
  const SegmentHeader& header = neighbour.segment.header();
  // First of all: what a process says before it ends is there once its end has been seen.
  const bool is_alive = neighbour.watch->alive();
  switch (header.state.load(std::memory_order_acquire)) {
    case RankState::failed:
      throw_announced(header);
    case RankState::closed:
      throw left_too_early(neighbourhood_->name, peer, neighbourhood_->rank);
    case RankState::open:
      break;
  }
  if (!is_alive) throw peer_died(neighbourhood_->name, peer, header.pid, neighbourhood_->rank);
}

void ShmTransport::check_announcements() {
  for (int peer = 0; peer < neighbourhood_->size(); ++peer) {
    if (peer == neighbourhood_->rank || !reaches(peer)) continue;
    const SegmentHeader& header = neighbourhood_->at(peer).segment.header();
    if (header.state.load(std::memory_order_acquire) == RankState::failed) throw_announced(header);
  }
}

void ShmTransport::announce_failure(const Failure& failure) noexcept {
  SegmentHeader& header = neighbourhood_->own().header();
  if (header.state.load(std::memory_order_relaxed) != RankState::open) return;
  header.failure_code = static_cast<std::int32_t>(failure.code);
  header.failure_origin = failure.origin;
  // The end of a traceback says more than its beginning.
  const std::size_t length = std::min(failure.message.size(), kMaxFailureText);
  std::memcpy(header.failure_text, failure.message.data() + (failure.message.size() - length),
              length);
  header.failure_length = static_cast<std::uint32_t>(length);
  leave(RankState::failed);
}

void ShmTransport::close() noexcept {
  if (neighbourhood_->own().header().state.load(std::memory_order_relaxed) == RankState::open)
    leave(RankState::closed);
}

void ShmTransport::leave(RankState state) noexcept {
  neighbourhood_->own().header().state.store(state, std::memory_order_release);
  for (int peer = 0; peer < neighbourhood_->size(); ++peer)
    if (reaches(peer)) neighbourhood_->at(peer).segment.header().bell.ring();
}

}  // namespace hpcomm::shm
