#include "transport/shm/inbox.hpp"

#include <algorithm>
#include <cstring>
#include <new>

#include "transport/failures.hpp"

namespace hpcomm::shm {
namespace {

constexpr std::size_t kPieceBytes =
    64 * 1024;  // the sender gets space back before all has been copied

}  // namespace

void Inbox::post(OperationTable& operations, OperationTable::Index index) {
  if (take_aside(operations, index)) return;
  posted_.push_back(index);
  pull(operations);
}

void Inbox::pull(OperationTable& operations) { run(operations, std::nullopt); }

std::optional<std::size_t> Inbox::probe(OperationTable& operations, Tag tag) {
  for (const Aside& message : aside_)
    if (message.tag == tag) return message.nbytes;
  run(operations, tag);
  if (in_message_ && target_ == Target::none && header_.tag == tag) return header_.nbytes;
  return std::nullopt;
}

void Inbox::cancel(OperationTable::Index index) {
  std::erase(posted_, index);
  if (target_ != Target::operation || operation_ != index) return;
  target_ = Target::drop;
  into_ = nullptr;
}

void Inbox::run(OperationTable& operations, std::optional<Tag> probed) {
  for (;;) {
    if (!in_message_ && !read_header()) return;
    if (target_ == Target::none) {
      if (const auto index = take_posted(operations, header_.tag)) {
        aim_at(operations, *index);
      } else if (probed == header_.tag || (posted_.empty() && !probed)) {
        return;
      } else {
        put_aside();
      }
    }
    if (!stream(operations)) return;
  }
}

bool Inbox::read_header() {
  if (ring_.available() < sizeof header_) return false;
  ring_.take(&header_, sizeof header_);
  HPCOMM_CHECK(header_.magic == kMessageMagic, Errc::transport, "rank ", own_rank_,
               " found no message from rank ", peer_,
               " where one should begin: shared memory was overwritten, by a bug here or in the "
               "application");
  in_message_ = true;
  arrived_ = 0;
  target_ = Target::none;
  return true;
}

// True once the message has gone by.
bool Inbox::stream(OperationTable& operations) {
  const std::size_t total = padded(header_.nbytes);
  while (arrived_ < total) {
    const std::size_t piece = std::min({ring_.available(), total - arrived_, kPieceBytes});
    if (piece == 0) return false;
    const std::size_t payload =
        std::min(piece, header_.nbytes - std::min<std::size_t>(arrived_, header_.nbytes));
    ring_.take(into_ == nullptr ? nullptr : into_ + arrived_, payload);
    ring_.take(nullptr, piece - payload);
    arrived_ += piece;
    ring_.release();
    bell_->ring();
  }
  finish(operations);
  return true;
}

void Inbox::finish(OperationTable& operations) {
  ring_.release();
  if (target_ == Target::operation) {
    const Operation& operation = operations[operation_];
    if (operation.nbytes == header_.nbytes) {
      operations.complete(operation_);
    } else {
      operations.complete(operation_, length_error(operation, header_.nbytes));
    }
  } else if (target_ == Target::aside) {
    aside_.back().complete = true;
  }
  in_message_ = false;
  target_ = Target::none;
  into_ = nullptr;
}

void Inbox::put_aside() {
  try {
    Aside& message = aside_.emplace_back();
    message.tag = header_.tag;
    message.nbytes = header_.nbytes;
    message.bytes.resize(header_.nbytes);
    into_ = message.bytes.data();
  } catch (const std::bad_alloc&) {
    aside_.pop_back();
    detail::throw_error(Errc::transport, peer_, "rank ", own_rank_,
                        " has no memory to put aside a message of ", header_.nbytes, " bytes (tag ",
                        header_.tag, ") that rank ", peer_,
                        " sent before the one that is waited for; receive in the order of sending");
  }
  target_ = Target::aside;
}

void Inbox::aim_at(OperationTable& operations, OperationTable::Index index) {
  target_ = Target::operation;
  operation_ = index;
  // A message of the wrong length still has to go by before the error can be told.
  into_ = operations[index].nbytes == header_.nbytes ? operations[index].data : nullptr;
}

bool Inbox::take_aside(OperationTable& operations, OperationTable::Index index) {
  const Operation& operation = operations[index];
  const auto found = std::find_if(aside_.begin(), aside_.end(), [&](const Aside& message) {
    return message.tag == operation.tag;
  });
  if (found == aside_.end()) return false;
  const bool fits = found->nbytes == operation.nbytes;
  const std::size_t here =
      found->complete ? found->nbytes : std::min<std::size_t>(arrived_, found->nbytes);
  if (fits && here > 0) std::memcpy(operation.data, found->bytes.data(), here);
  if (!found->complete) {
    aim_at(operations, index);
  } else if (fits) {
    operations.complete(index);
  } else {
    operations.complete(index, length_error(operation, found->nbytes));
  }
  aside_.erase(found);
  return true;
}

std::optional<OperationTable::Index> Inbox::take_posted(OperationTable& operations, Tag tag) {
  const auto found = std::find_if(posted_.begin(), posted_.end(), [&](OperationTable::Index index) {
    return operations[index].tag == tag;
  });
  if (found == posted_.end()) return std::nullopt;
  const OperationTable::Index index = *found;
  posted_.erase(found);
  return index;
}

Error Inbox::length_error(const Operation& operation, std::size_t nbytes) const {
  return length_mismatch(own_rank_, peer_, operation.tag, operation.nbytes, nbytes);
}

}  // namespace hpcomm::shm
