// What ranks on different nodes tell each other when one fails or leaves: small messages that the
// slow path of waits polls.
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <list>
#include <mutex>
#include <string>

#include "core/error.hpp"
#include "transport/failures.hpp"
#include "transport/mpi/transport_impl.hpp"
#include "transport/tag.hpp"

namespace hpcomm::mpi {

template <class Handle>
void MpiTransport<Handle>::tell_peers(const ControlMessage& message, bool all) noexcept {
  if (silent_ || !may_call()) return;
  silent_ = true;
  try {
    for (int peer = 0; peer < size_; ++peer) {
      if (peer == rank_ || !(all || met_[static_cast<std::size_t>(peer)])) continue;
      const ControlMessage& copy = told_.emplace_back(message);
      Handle request{};
      const int code = mpi_.isend(&copy, static_cast<int>(sizeof copy), byte_, peer,
                                  static_cast<int>(tag::kControl), comm_, &request);
      if (code != 0 || mpi_.request_free(&request) != 0) continue;  // nobody waits for them
    }
  } catch (const std::bad_alloc&) {
    // Those who were not told will run into their deadline.
  }
}

template <class Handle>
void MpiTransport<Handle>::announce_failure(const Failure& failure) noexcept {
  ControlMessage message;
  message.epoch = epoch_;
  message.kind = ControlKind::failed;
  message.sender = rank_;
  message.code = static_cast<std::int32_t>(failure.code);
  message.origin = failure.origin;
  // The end of a traceback says more than its beginning.
  const std::size_t length = std::min(failure.message.size(), sizeof message.text);
  std::memcpy(message.text, failure.message.data() + (failure.message.size() - length), length);
  message.length = static_cast<std::uint32_t>(length);
  tell_peers(message, true);
}

template <class Handle>
void MpiTransport<Handle>::close() noexcept {
  ControlMessage message;
  message.epoch = epoch_;
  message.kind = ControlKind::closed;
  message.sender = rank_;
  tell_peers(message, false);
}

// An MPI that sends no message of this size at once may read them as long as it lives.
template <class Handle>
void MpiTransport<Handle>::keep_for_good() noexcept {
  static auto* messages = new std::list<ControlMessage>;
  static auto* mutex = new std::mutex;
  const std::lock_guard lock(*mutex);
  messages->splice(messages->end(), told_);
}

template <class Handle>
void MpiTransport<Handle>::read_control() {
  if (!may_call()) return;  // abort() may come at any time, on any thread
  for (;;) {
    int here = 0;
    Status status;
    check(mpi_.iprobe(binding_.any_source, static_cast<int>(tag::kControl), comm_, &here, &status),
          "MPI_Iprobe", rank_);
    if (here == 0) return;
    ControlMessage message;
    receive_now(&message, sizeof message, binding_.any_source, tag::kControl);
    if (message.epoch == epoch_ && message.sender >= 0 && message.sender < size_)
      heard_[static_cast<std::size_t>(message.sender)] = message;
  }
}

template <class Handle>
void MpiTransport<Handle>::throw_announced(int peer, const ControlMessage& message) const {
  if (message.kind == ControlKind::closed) throw left_too_early(name_, peer, rank_);
  const std::size_t length = std::min<std::size_t>(message.length, sizeof message.text);
  throw announced_failure(
      {static_cast<Errc>(message.code), message.origin, {message.text, length}});
}

template <class Handle>
bool MpiTransport<Handle>::process_has_ended(int peer) const noexcept {
  if (binding_.session_folder.empty() || peer == rank_) return false;
  const auto index = static_cast<std::size_t>(peer);
  const int job_rank = binding_.job_ranks.empty() ? peer : binding_.job_ranks[index];
  for (const char* kind : {"/end.", "/done."}) {
    const std::string file = binding_.session_folder + kind + std::to_string(job_rank);
    if (access(file.c_str(), F_OK) == 0) return true;
  }
  return false;
}

template <class Handle>
void MpiTransport<Handle>::check_peer(int peer) {
  // What a process sent before it ended may still be on its way, so its end counts when it is seen
  // for the second time; in between the caller has made progress.
  const auto index = static_cast<std::size_t>(peer);
  const bool was_missed = missed_[index];
  missed_[index] = process_has_ended(peer);
  read_control();
  const auto& message = heard_[index];
  if (message) throw_announced(peer, *message);
  if (was_missed) throw peer_died(name_, peer, 0, rank_);
}

template <class Handle>
void MpiTransport<Handle>::check_announcements() {
  read_control();
  for (int peer = 0; peer < size_; ++peer) {
    const auto& message = heard_[static_cast<std::size_t>(peer)];
    if (message && message->kind == ControlKind::failed) throw_announced(peer, *message);
  }
}

template class MpiTransport<int>;
template class MpiTransport<void*>;

}  // namespace hpcomm::mpi
