#include "transport/mpi/transport.hpp"

#include <algorithm>
#include <memory>
#include <utility>

#include "core/error.hpp"
#include "core/surroundings.hpp"
#include "transport/failures.hpp"
#include "transport/mpi/transport_impl.hpp"
#include "transport/tag.hpp"

namespace hpcomm::mpi {

template <class Handle>
MpiTransport<Handle>::MpiTransport(const Binding& binding, std::uint64_t epoch, int rank, int size,
                                   std::string name)
    : binding_(binding),
      mpi_(Library<Handle>::load(binding.library_path)),
      comm_(to_handle(binding.comm)),
      byte_(to_handle(binding.byte_type)),
      epoch_(epoch),
      rank_(rank),
      size_(size),
      name_(std::move(name)),
      home_(std::this_thread::get_id()),
      notices_(static_cast<std::size_t>(size)),
      met_(static_cast<std::size_t>(size), false),
      heard_(static_cast<std::size_t>(size)),
      missed_(static_cast<std::size_t>(size), false) {
  HPCOMM_CHECK(binding_.chunk_limit >= 1 && binding_.chunk_limit <= 0x7fffffff,
               Errc::invalid_argument, "one MPI message carries 1 to 2147483647 bytes, not ",
               binding_.chunk_limit, "; correct HPCOMM_CHUNK_LIMIT");
  check(mpi_.set_errhandler(comm_, to_handle(binding_.errors_return)), "MPI_Comm_set_errhandler",
        rank_);
}

template <class Handle>
MpiTransport<Handle>::~MpiTransport() {
  for (auto& [ticket, operation] : operations_) abandon(operation);
  keep_for_good();
}

template <class Handle>
void MpiTransport<Handle>::check(int code, const char* what, int peer) const {
  if (code == 0) return;
  std::vector<char> text(static_cast<std::size_t>(std::max(binding_.max_error_string, 256)) + 1);
  int length = 0;
  if (mpi_.error_string(code, text.data(), &length) != 0) length = 0;
  detail::throw_error(Errc::transport, peer, what, " between ranks ", rank_, " and ", peer,
                      " of communicator '", name_, "' failed in ", binding_.description, ": ",
                      std::string_view(text.data(), static_cast<std::size_t>(std::max(length, 0))));
}

// Destructors may run late, or on any thread.
template <class Handle>
bool MpiTransport<Handle>::may_call() const noexcept {
  int finalized = 1;
  if (mpi_.finalized == nullptr || mpi_.finalized(&finalized) != 0 || finalized != 0) return false;
  return binding_.thread_multiple || std::this_thread::get_id() == home_;
}

template <class Handle>
void MpiTransport<Handle>::send_piece(Operation& operation, const void* data, std::size_t nbytes,
                                      Tag tag) {
  Handle& request = operation.requests.emplace_back();
  check(mpi_.isend(data, static_cast<int>(nbytes), byte_, operation.peer, static_cast<int>(tag),
                   comm_, &request),
        "MPI_Isend", operation.peer);
}

template <class Handle>
void MpiTransport<Handle>::receive_piece(Operation& operation, std::byte* data,
                                         std::size_t nbytes) {
  Handle& request = operation.requests.emplace_back();
  check(mpi_.irecv(data, static_cast<int>(nbytes), byte_, operation.peer,
                   static_cast<int>(operation.tag), comm_, &request),
        "MPI_Irecv", operation.peer);
}

template <class Handle>
Ticket MpiTransport<Handle>::isend(ConstBuffer src, int peer, Tag tag) {
  met_[static_cast<std::size_t>(peer)] = true;
  const Ticket ticket = ++last_ticket_;
  Operation& operation = operations_[ticket];
  operation.is_send = true;
  operation.peer = peer;
  operation.tag = tag;
  operation.data = const_cast<std::byte*>(src.data);
  operation.nbytes = src.nbytes;
  const std::size_t limit = binding_.chunk_limit;
  if (src.nbytes < limit) {
    send_piece(operation, src.data, src.nbytes, tag);
    return ticket;
  }
  operation.notice = {src.nbytes, tag};
  send_piece(operation, &operation.notice, sizeof operation.notice, tag::kLength);
  for (std::size_t at = 0; at < src.nbytes; at += limit)
    send_piece(operation, src.data + at, std::min(limit, src.nbytes - at), tag);
  return ticket;
}

template <class Handle>
Ticket MpiTransport<Handle>::irecv(Buffer dst, int peer, Tag tag) {
  met_[static_cast<std::size_t>(peer)] = true;
  const Ticket ticket = ++last_ticket_;
  Operation& operation = operations_[ticket];
  operation.peer = peer;
  operation.tag = tag;
  operation.data = dst.data;
  operation.nbytes = dst.nbytes;
  unmatched_[{peer, tag}].push_back(ticket);
  return ticket;
}

// Bytes of the next message of (peer, tag) that has arrived.
template <class Handle>
std::optional<std::size_t> MpiTransport<Handle>::probed_bytes(int peer, Tag tag) {
  int here = 0;
  Status status;
  check(mpi_.iprobe(peer, static_cast<int>(tag), comm_, &here, &status), "MPI_Iprobe", peer);
  if (here == 0) return std::nullopt;
  int count = 0;
  check(mpi_.get_count(&status, byte_, &count), "MPI_Get_count", peer);
  return static_cast<std::size_t>(std::max(count, 0));
}

// Of the oldest long message of (peer, tag); its notice was sent before its first piece.
template <class Handle>
std::optional<std::size_t> MpiTransport<Handle>::announced_length(int peer, Tag tag, bool take) {
  std::deque<LengthNotice>& notices = notices_[static_cast<std::size_t>(peer)];
  while (probed_bytes(peer, tag::kLength)) {
    LengthNotice notice;
    receive_now(&notice, sizeof notice, peer, tag::kLength);
    notices.push_back(notice);
  }
  const auto found = std::find_if(notices.begin(), notices.end(),
                                  [&](const LengthNotice& n) { return n.tag == tag; });
  if (found == notices.end()) return std::nullopt;
  const std::size_t nbytes = found->nbytes;
  if (take) notices.erase(found);
  return nbytes;
}

// A small message that a probe has seen: it is complete as soon as MPI has copied it.
template <class Handle>
void MpiTransport<Handle>::receive_now(void* data, std::size_t nbytes, int from, Tag tag) {
  Handle request{};
  check(mpi_.irecv(data, static_cast<int>(nbytes), byte_, from, static_cast<int>(tag), comm_,
                   &request),
        "MPI_Irecv", from);
  for (int done = 0; done == 0;) {
    Status status;
    check(mpi_.test(&request, &done, &status), "MPI_Test", from);
  }
}

// If the message of a receive has arrived: begins to receive it.
template <class Handle>
bool MpiTransport<Handle>::try_match(Operation& operation) {
  std::optional<std::size_t> nbytes = probed_bytes(operation.peer, operation.tag);
  if (!nbytes) return false;
  if (*nbytes == binding_.chunk_limit) {
    nbytes = announced_length(operation.peer, operation.tag, true);
    if (!nbytes) return false;
  }
  operation.matched = true;
  operation.message_nbytes = *nbytes;
  if (*nbytes != operation.nbytes) {
    receive_waste(operation);
    return true;
  }
  std::size_t at = 0;
  do {
    const std::size_t piece = std::min(binding_.chunk_limit, operation.nbytes - at);
    receive_piece(operation, operation.data + at, piece);
    at += piece;
  } while (at < operation.nbytes);
  return true;
}

template <class Handle>
void MpiTransport<Handle>::receive_waste(Operation& operation) {
  const std::size_t piece =
      std::min(binding_.chunk_limit, operation.message_nbytes - operation.dropped);
  operation.waste.resize(std::max(operation.waste.size(), piece));
  receive_piece(operation, operation.waste.data(), piece);
  operation.dropped += piece;
}

// True once nothing is under way any more.
template <class Handle>
bool MpiTransport<Handle>::finish(Operation& operation) {
  if (operation.complete) return true;
  if (!operation.is_send && !operation.matched) return false;
  for (;;) {
    while (!operation.requests.empty()) {
      int done = 0;
      Status status;
      check(mpi_.test(&operation.requests.back(), &done, &status), "MPI_Test", operation.peer);
      if (done == 0) return false;
      operation.requests.pop_back();
    }
    const bool goes_on = !operation.is_send && operation.message_nbytes != operation.nbytes &&
                         operation.dropped < operation.message_nbytes;
    if (!goes_on) break;
    receive_waste(operation);
  }
  operation.complete = true;
  return true;
}

template <class Handle>
void MpiTransport<Handle>::progress() {
  for (auto at = unmatched_.begin(); at != unmatched_.end();) {
    std::deque<Ticket>& waiting = at->second;
    while (!waiting.empty() && try_match(operations_.at(waiting.front()))) waiting.pop_front();
    at = waiting.empty() ? unmatched_.erase(at) : std::next(at);
  }
  for (auto& [ticket, operation] : operations_) finish(operation);
}

template <class Handle>
bool MpiTransport<Handle>::test(Ticket ticket) {
  const auto found = operations_.find(ticket);
  HPCOMM_CHECK(found != operations_.end(), Errc::internal, "no operation has ticket ", ticket);
  progress();
  if (!found->second.complete) return false;
  const Operation operation = std::move(found->second);
  operations_.erase(found);
  if (operation.is_send || operation.message_nbytes == operation.nbytes) return true;
  throw length_mismatch(rank_, operation.peer, operation.tag, operation.nbytes,
                        operation.message_nbytes);
}

template <class Handle>
std::optional<std::size_t> MpiTransport<Handle>::iprobe(int peer, Tag tag) {
  progress();
  if (unmatched_.contains({peer, tag})) return std::nullopt;
  const std::optional<std::size_t> nbytes = probed_bytes(peer, tag);
  return nbytes == binding_.chunk_limit ? announced_length(peer, tag, false) : nbytes;
}

template <class Handle>
void MpiTransport<Handle>::cancel(Ticket ticket) noexcept {
  const auto found = operations_.find(ticket);
  if (found == operations_.end()) return;
  Operation& operation = found->second;
  if (const auto waiting = unmatched_.find({operation.peer, operation.tag});
      waiting != unmatched_.end()) {
    std::erase(waiting->second, ticket);
    if (waiting->second.empty()) unmatched_.erase(waiting);
  }
  abandon(operation);
  operations_.erase(found);
}

// MPI cannot take a send back, and a receive begins only when its message is here: what is under
// way normally ends by itself in a moment. If the peer is gone it never does, and the communicator
// is broken anyway.
template <class Handle>
void MpiTransport<Handle>::abandon(Operation& operation) noexcept {
  constexpr double kPatience_s = 0.2;
  if (operation.requests.empty() || !may_call()) return;
  const double until_s = monotonic_s() + kPatience_s;
  for (Handle& request : operation.requests) {
    int done = 0;
    Status status;
    do {
      if (mpi_.test(&request, &done, &status) != 0) break;
    } while (done == 0 && monotonic_s() < until_s);
    if (done != 0) continue;
    mpi_.cancel(&request);
    mpi_.request_free(&request);
  }
  operation.requests.clear();
}

template class MpiTransport<int>;
template class MpiTransport<void*>;

std::unique_ptr<Transport> make_transport(const Binding& binding, std::uint64_t epoch, int rank,
                                          int size, const std::string& name) {
  if (binding.pointer_handles)
    return std::make_unique<MpiTransport<void*>>(binding, epoch, rank, size, name);
  return std::make_unique<MpiTransport<int>>(binding, epoch, rank, size, name);
}

}  // namespace hpcomm::mpi
