#include "transport/shm/outbox.hpp"

#include <algorithm>

namespace hpcomm::shm {
namespace {

// The consumer copies out one piece while the producer copies in the next; both stay in the
// second-level cache.
constexpr std::size_t kPieceBytes = 64 * 1024;

}  // namespace

void Outbox::push(OperationTable& operations) {
  while (has_work()) {
    const OperationTable::Index index = waiting_.front();
    if (!push_front(operations[index])) return;
    operations.complete(index);
    waiting_.pop_front();
    begun_ = false;
    sent_ = 0;
  }
}

// True once the whole message, filled up to a multiple of the header's size, is in the ring.
bool Outbox::push_front(Operation& operation) {
  const std::size_t piece_bytes = std::min(kPieceBytes, ring_.capacity() / 2);
  const std::size_t total = padded(operation.nbytes);
  bool moved = false;
  if (!begun_) {
    const std::size_t wanted = sizeof(MessageHeader) + std::min(total, piece_bytes);
    if (ring_.free_bytes(wanted) < sizeof(MessageHeader)) return false;
    const MessageHeader header{operation.nbytes, operation.tag, kMessageMagic};
    ring_.put(&header, sizeof header);
    begun_ = moved = true;
  }
  while (sent_ < total) {
    const std::size_t wanted = std::min(total - sent_, piece_bytes);
    const std::size_t piece = std::min(wanted, ring_.free_bytes(wanted));
    if (piece == 0) break;
    const std::size_t payload =
        std::min(piece, operation.nbytes - std::min(sent_, operation.nbytes));
    ring_.put(operation.data + sent_, payload);
    ring_.skip(piece - payload);
    sent_ += piece;
    show();
    moved = false;
  }
  if (moved) show();  // the header is all that fitted, or all there is
  return sent_ == total;
}

void Outbox::show() {
  ring_.publish();
  bell_->ring();
}

void Outbox::cancel(OperationTable::Index index) {
  if (begun_ && !waiting_.empty() && waiting_.front() == index) torn_ = true;
  std::erase(waiting_, index);
}

}  // namespace hpcomm::shm
