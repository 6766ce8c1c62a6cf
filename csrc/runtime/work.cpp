#include "runtime/work.hpp"

#include <utility>

#include "core/surroundings.hpp"
#include "runtime/communicator.hpp"
#include "runtime/progress.hpp"
#include "transport/tag.hpp"

namespace hpcomm {
namespace {

struct ReleasedOwners {
  std::mutex mutex;
  std::vector<std::shared_ptr<void>> owners;
};

ReleasedOwners& released_owners() {
  static auto* instance = new ReleasedOwners;  // Works may outlive static objects
  return *instance;
}

}  // namespace

std::string describe_message(bool is_send, std::size_t nbytes, int peer, Tag tag) {
  std::string text = is_send ? "send of " : "receive of ";
  text += std::to_string(nbytes) + (is_send ? " bytes to rank " : " bytes from rank ") +
          std::to_string(peer);
  if (tag < tag::kUserLimit) return text + " (tag " + std::to_string(tag) + ")";
  return text + (tag == tag::kObject ? " (an object)" : " (of hpcomm itself)");
}

Work::Work(std::shared_ptr<Communicator> owner, Kind kind, int peer, Tag tag, std::size_t nbytes)
    : owner_(std::move(owner)),
      kind_(kind),
      peer_(peer),
      tag_(tag),
      nbytes_(nbytes),
      submitted_ns_(monotonic_ns()) {}

Work::Work(std::shared_ptr<Communicator> owner, const CollectiveRequest& request,
           std::string algorithm)
    : owner_(std::move(owner)),
      kind_(Kind::collective),
      submitted_ns_(monotonic_ns()),
      request_(request),
      counts_(request.counts.begin(), request.counts.end()),
      algorithm_(std::move(algorithm)) {
  request_.counts = counts_;
}

Work::~Work() = default;

std::string Work::what() const {
  if (kind_ == Kind::collective) return describe(request_, owner_->size());
  return describe_message(kind_ == Kind::send, nbytes_, peer_, tag_);
}

void Work::keep(std::shared_ptr<void> owner) {
  const std::lock_guard lock(mutex_);
  if (!done_.load(std::memory_order_relaxed)) owners_.push_back(std::move(owner));
}

void Work::complete(std::exception_ptr error) noexcept {
  std::vector<std::shared_ptr<void>> owners;
  {
    const std::lock_guard lock(mutex_);
    if (done_.load(std::memory_order_relaxed)) return;
    error_ = std::move(error);
    owners.swap(owners_);
    completed_ns_.store(monotonic_ns(), std::memory_order_relaxed);
    done_.store(true, std::memory_order_release);
  }
  if (!owners.empty()) {
    ReleasedOwners& released = released_owners();
    const std::lock_guard lock(released.mutex);
    for (auto& owner : owners) released.owners.push_back(std::move(owner));
  }
  if (kind_ == Kind::collective) Progress::instance().completion.ring_surely();
}

std::exception_ptr Work::error() const {
  const std::lock_guard lock(mutex_);
  return error_;
}

void Work::throw_error() const {
  if (const std::exception_ptr error = this->error()) std::rethrow_exception(error);
}

bool Work::test() {
  if (done()) return true;
  owner_->advance(*this);
  return done();
}

void Work::wait(std::optional<double> timeout_s) {
  if (!done()) owner_->wait(*this, timeout_s);
  throw_error();
}

std::vector<std::shared_ptr<void>> take_released_owners() {
  ReleasedOwners& released = released_owners();
  const std::lock_guard lock(released.mutex);
  return std::exchange(released.owners, {});
}

}  // namespace hpcomm
