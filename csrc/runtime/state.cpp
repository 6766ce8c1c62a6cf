#include "runtime/state.hpp"

#include <algorithm>
#include <sstream>
#include <utility>

#include "collectives/run.hpp"
#include "core/process_generation.hpp"
#include "transport/failures.hpp"
#include "transport/tag.hpp"

namespace hpcomm {
namespace {

constexpr double kCheckEvery_s = 0.005;

}  // namespace

Communicator::State::State(CommunicatorOptions opts, NodeLayout nodes)
    : options(std::move(opts)),
      layout(std::move(nodes)),
      selection(options.selection_override),
      generation(process_generation()),
      home(std::this_thread::get_id()) {}

void Communicator::State::check_usable() const {
  if (broken.load(std::memory_order_relaxed) || closing.load(std::memory_order_relaxed))
      [[unlikely]]
    throw stop_error();
}

Error Communicator::State::stop_error() const {
  std::ostringstream text;
  text << "communicator '" << options.name << "' ";
  if (!broken.load(std::memory_order_acquire)) {
    text << "was closed on rank " << options.rank
         << "; make operations complete before close(), and none after it";
    return Error(Errc::broken, options.rank, text.str());
  }
  text << "cannot be used on rank " << options.rank << " any more, because it failed: ";
  text << (failure.origin == options.rank ? failure.message : describe(failure));
  return Error(Errc::broken, failure.origin, text.str());
}

void Communicator::State::check_address(int peer, Tag tag) const {
  HPCOMM_CHECK(peer >= 0 && peer < options.size, Errc::invalid_argument, "communicator '",
               options.name, "' has ranks 0 to ", options.size - 1, "; rank ", options.rank,
               " asked for rank ", peer);
  HPCOMM_CHECK(tag < tag::kUserLimit || tag == tag::kObject || tag == tag::kBootstrap,
               Errc::invalid_argument, "tags are 0 to ", tag::kUserLimit - 1, "; rank ",
               options.rank, " used ", tag);
}

double Communicator::State::seconds(std::optional<double> timeout_s) const {
  const double chosen = timeout_s.value_or(options.timeout_s);
  HPCOMM_CHECK(chosen >= 0, Errc::invalid_argument, "timeout_s must not be negative, not ", chosen);
  return chosen;
}

Deadline Communicator::State::deadline(std::optional<double> timeout_s) {
  return Deadline::after(surroundings, seconds(timeout_s));
}

void Communicator::State::fail(const Error& error) noexcept {
  if (!error.breaks_communicator() || broken.load(std::memory_order_relaxed)) return;
  try {
    failure = failure_of(error, options.rank);
  } catch (...) {  // no memory for the text
    failure.code = error.code();
    failure.origin = error.code() == Errc::peer_dead ? error.rank() : options.rank;
  }
  broken.store(true, std::memory_order_release);
  stopped.store(true, std::memory_order_release);
  if (endpoint) endpoint->announce_failure(failure);
  complete_all(stop_error());
}

void Communicator::State::complete_all(const Error& error) noexcept {
  const std::exception_ptr pointer = std::make_exception_ptr(error);
  for (const auto& work : std::exchange(pending, {})) {
    if (endpoint) endpoint->cancel(work->handle_);
    work->complete(pointer);
  }
  for (const auto& work : std::exchange(queue, {})) work->complete(pointer);
}

Error Communicator::State::death(std::string_view message) {
  constexpr int kRounds = 2;  // MPI's transport believes in an end when it sees it again
  for (int round = 0; endpoint && round < kRounds; ++round) {
    for (int peer = 0; peer < options.size; ++peer) {
      const int peers[] = {peer};
      try {
        endpoint->check_peers(peers);
      } catch (const Error& error) {
        if (error.code() == Errc::peer_dead) return error;
      }
    }
  }
  return Error(Errc::peer_dead, -1, std::string(message));
}

void Communicator::State::forget(const Work& work) noexcept {
  std::erase_if(pending, [&](const auto& other) { return other.get() == &work; });
}

bool Communicator::State::poll(Work& work) {
  try {
    if (!endpoint->test(work.handle_)) return false;
    work.complete(nullptr);
  } catch (const Error& error) {
    work.complete(std::current_exception());
    fail(error);
  }
  return true;
}

bool Communicator::State::poll_pending() {
  bool completed = false;
  for (std::size_t i = 0; i < pending.size();) {
    const std::shared_ptr<Work> work = pending[i];
    if (!poll(*work)) {
      ++i;
      continue;
    }
    completed = true;
    forget(*work);  // a failure has emptied the list
  }
  if ((++polls & 63U) == 0 && !pending.empty()) check_peers_of_pending();
  return completed;
}

void Communicator::State::check_peers_of_pending() {
  const double now_s = monotonic_s();
  if (now_s < next_check_s) return;
  next_check_s = now_s + kCheckEvery_s;
  for (std::size_t i = 0; i < pending.size(); ++i) {
    const std::shared_ptr<Work> work = pending[i];
    const int peers[] = {work->peer_};
    try {
      endpoint->check_peers(peers);
    } catch (const Error& error) {
      if (!poll(*work)) {  // what the peer sent before it left counts
        endpoint->cancel(work->handle_);
        work->complete(std::current_exception());
        fail(error);
      }
      forget(*work);
      return;
    }
  }
}

void Communicator::State::run(CollectiveRequest request, std::string_view algorithm) {
  hurry_at_s.store(std::numeric_limits<double>::infinity(), std::memory_order_relaxed);
  request.deadline.hurry_at_s = &hurry_at_s;
  attempt([&] { run_collective(*endpoint, selection, request, algorithm); });
}

void Communicator::State::run(Work& work) noexcept {
  std::exception_ptr error;
  try {
    if (stopped.load(std::memory_order_relaxed)) throw stop_error();
    run(work.request_, work.algorithm_);
  } catch (...) {
    error = std::current_exception();
  }
  work.complete(std::move(error));
}

}  // namespace hpcomm
