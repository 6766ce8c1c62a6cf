#include "collectives/shared_phases.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include "collectives/agreement.hpp"
#include "core/error.hpp"

namespace hpcomm {
namespace {

// Polls before the wait turns to the endpoint, which looks at deadlines and lets others work.
constexpr int kQuickPolls = 100;

SharedGroup& group_of(Endpoint& endpoint) {
  HPCOMM_CHECK(endpoint.shared() != nullptr, Errc::internal, "communicator '", endpoint.name(),
               "' has no shared memory");
  return *endpoint.shared();
}

}  // namespace

SharedPhases::SharedPhases(Endpoint& endpoint, const CollectiveRequest& request,
                           const Signature& signature)
    : endpoint_(endpoint),
      group_(group_of(endpoint)),
      request_(request),
      signature_(signature),
      rank_(endpoint.rank()),
      size_(endpoint.size()),
      chunk_bytes_(std::min(kChunkBytes, group_.slot_bytes() / 64 * 64)),
      phase_(endpoint.sequence()) {}

std::byte* SharedPhases::place(int owner, std::uint64_t phase, std::size_t nbytes) noexcept {
  if (nbytes <= Publication::kPayloadBytes) return group_.control(owner).of(phase).payload;
  return group_.slot(owner, static_cast<int>(phase % SharedGroup::kSlots));
}

std::byte* SharedPhases::outbox(std::size_t nbytes) noexcept {
  return place(rank_, phase_ + 1, nbytes);
}

const std::byte* SharedPhases::inbox(int peer, std::size_t nbytes) noexcept {
  return place(peer, phase_, nbytes);
}

std::byte* SharedPhases::next_slot() noexcept {
  return group_.slot(rank_, static_cast<int>((phase_ + 1) % SharedGroup::kSlots));
}

std::byte* SharedPhases::slot(int peer) noexcept {
  return group_.slot(peer, static_cast<int>(phase_ % SharedGroup::kSlots));
}

void SharedPhases::advance() {
  phase_ = ++endpoint_.sequence();
  Publication& mine = group_.control(rank_).of(phase_);
  if (!is_open_) mine.signature = signature_;
  mine.sequence.store(phase_, std::memory_order_release);
  group_.wake();
  num_shown_ = 0;
  const int quick_polls = spinning_allowed() ? kQuickPolls : 1;
  for (int poll = 0; !all_shown(); ++poll) {
    if (poll >= quick_polls) {
      wait_slowly();
      break;
    }
    spin_pause();
  }
  if (!is_open_) {
    is_open_ = true;
    compare_signatures();
  }
}

bool SharedPhases::all_shown() noexcept {
  while (num_shown_ < size_ &&
         group_.control(num_shown_).of(phase_).sequence.load(std::memory_order_acquire) >= phase_)
    ++num_shown_;
  return num_shown_ == size_;
}

void SharedPhases::wait_slowly() {
  std::vector<int> peers;
  for (int peer = 0; peer < size_; ++peer)
    if (peer != rank_) peers.push_back(peer);
  const auto shown = [this](int peer) {
    return group_.control(peer).of(phase_).sequence.load(std::memory_order_acquire) >= phase_;
  };
  endpoint_.wait_until([this] { return all_shown(); }, peers, shown, request_.deadline,
                       describe(request_, size_));
}

void SharedPhases::compare_signatures() {
  const Signature& first = group_.control(0).of(phase_).signature;
  for (int peer = 1; peer < size_; ++peer) {
    const Signature& other = group_.control(peer).of(phase_).signature;
    if (other == first) continue;
    // Copies: the next call of a peer overwrites the lines two phases from now at the earliest.
    throw_disagreement(endpoint_.name(), 0, Signature(first), peer, Signature(other));
  }
}

}  // namespace hpcomm
