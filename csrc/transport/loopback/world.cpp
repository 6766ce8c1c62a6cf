#include "transport/loopback/world.hpp"

#include <utility>

#include "core/error.hpp"
#include "transport/loopback/shared_group.hpp"
#include "transport/loopback/transport.hpp"

namespace hpcomm::loopback {

World::World(int size, Options options)
    : size_(size),
      options_(options),
      ranks_(std::make_unique<PerRank[]>(static_cast<std::size_t>(size))) {
  const bool one_node = options.ranks_per_node <= 0 || options.ranks_per_node >= size;
  if (one_node && options.shared_memory)
    shared_ = std::make_shared<HeapSharedGroup>(size, options.slot_bytes);
}

std::shared_ptr<World> World::create(int size, Options options) {
  HPCOMM_CHECK(size >= 1, Errc::invalid_argument, "a loopback world needs ranks, got size ", size);
  return std::shared_ptr<World>(new World(size, options));
}

Endpoint World::endpoint(int rank, std::string name, Surroundings& surroundings) {
  return Endpoint(rank, size_, std::move(name), transports(rank), shared_, surroundings);
}

std::vector<std::unique_ptr<Transport>> World::transports(int rank) {
  using Medium = LoopbackTransport::Medium;
  std::vector<std::unique_ptr<Transport>> result;
  result.push_back(std::make_unique<LoopbackTransport>(shared_from_this(), rank, Medium::node));
  if (options_.ranks_per_node > 0)
    result.push_back(
        std::make_unique<LoopbackTransport>(shared_from_this(), rank, Medium::network));
  return result;
}

Mailbox& World::mailbox(int medium, int rank) noexcept {
  return ranks_[static_cast<std::size_t>(rank)].mailboxes[medium];
}

bool World::same_node(int a, int b) const noexcept {
  return options_.ranks_per_node <= 0 || a / options_.ranks_per_node == b / options_.ranks_per_node;
}

std::atomic<std::uint64_t>& World::chain_clock(int rank) noexcept {
  return ranks_[static_cast<std::size_t>(rank)].chain;
}

std::uint64_t World::chain(int rank) const noexcept {
  return ranks_[static_cast<std::size_t>(rank)].chain.load(std::memory_order_relaxed);
}

void World::leave(int rank) noexcept {
  ranks_[static_cast<std::size_t>(rank)].left.store(true, std::memory_order_release);
}

bool World::has_left(int rank) const noexcept {
  return ranks_[static_cast<std::size_t>(rank)].left.load(std::memory_order_acquire);
}

void World::announce(const Failure& failure) noexcept {
  const std::lock_guard lock(failure_mutex_);
  if (failure_) return;
  failure_ = failure;
  failed_.store(true, std::memory_order_release);
}

std::optional<Failure> World::failure() const {
  if (!failed_.load(std::memory_order_acquire)) return std::nullopt;
  const std::lock_guard lock(failure_mutex_);
  return failure_;
}

}  // namespace hpcomm::loopback
