// The calls of a communicator. Its birth is in create.cpp, its end in close.cpp, waits for Works in
// wait.cpp.
#include "runtime/communicator.hpp"

#include <mutex>
#include <utility>

#include "core/process_generation.hpp"
#include "runtime/progress.hpp"
#include "runtime/state.hpp"

namespace hpcomm {
namespace {

// Between two ranks that both run a message takes less than this many polls; only then a
// description is worth its time.
constexpr int kPollsBeforeWait = 64;

}  // namespace

Communicator::Communicator(std::unique_ptr<State> state) : state_(std::move(state)) {}

int Communicator::rank() const noexcept { return state_->options.rank; }
int Communicator::size() const noexcept { return state_->options.size; }
const std::string& Communicator::name() const noexcept { return state_->options.name; }
double Communicator::default_timeout_s() const noexcept { return state_->options.timeout_s; }
const NodeLayout& Communicator::layout() const noexcept { return state_->layout; }
bool Communicator::has_background_progress() const noexcept { return !state_->home_thread_only; }
bool Communicator::is_closed() const noexcept {
  return state_->closed.load(std::memory_order_acquire);
}
bool Communicator::is_broken() const noexcept {
  return state_->broken.load(std::memory_order_acquire);
}
std::string Communicator::selection_map() const { return state_->selection.map(); }

std::string Communicator::transport_name(int peer) {
  state_->check_address(peer, 0);
  return state_->transport_names[static_cast<std::size_t>(peer)];
}

std::string Communicator::broken_reason() const {
  return is_broken() ? state_->stop_error().what() : std::string();
}

// What every call does first.
Communicator::State& Communicator::enter() const {
  State& state = *state_;
  if (state.generation != process_generation()) [[unlikely]]
    detail::throw_error(Errc::broken, state.options.rank, "communicator '", state.options.name,
                        "' belongs to the parent of this process, rank ", state.options.rank,
                        "; a child made by fork cannot use it: start processes with 'spawn', or "
                        "communicate in the parent");
  if (state.home_thread_only && !state.on_home_thread()) [[unlikely]]
    detail::throw_error(
        Errc::unsupported, state.options.rank, "communicator '", state.options.name,
        "' needs MPI between its nodes, and this MPI was started below MPI_THREAD_MULTIPLE: rank ",
        state.options.rank,
        " may use it on the thread that made it alone; start MPI with thread_level='multiple'");
  Progress::instance().drive_home(state);
  return state;
}

void Communicator::send(ConstBuffer src, int peer, Tag tag, std::optional<double> timeout_s) {
  State& state = enter();
  state.check_address(peer, tag);
  const double seconds = state.seconds(timeout_s);
  const std::lock_guard lock(state.turnstile);
  state.check_usable();
  state.attempt([&] {
    Endpoint& endpoint = *state.endpoint;
    Endpoint::Handle handle = endpoint.isend(src, peer, tag);
    if (endpoint.test(handle)) return;
    try {
      endpoint.wait(handle, Deadline::after(state.surroundings, seconds),
                    describe_message(true, src.nbytes, peer, tag));
    } catch (...) {
      endpoint.cancel(handle);
      throw;
    }
  });
}

void Communicator::recv(Buffer dst, int peer, Tag tag, std::optional<double> timeout_s) {
  State& state = enter();
  state.check_address(peer, tag);
  const double seconds = state.seconds(timeout_s);
  const std::lock_guard lock(state.turnstile);
  state.check_usable();
  state.attempt([&] {
    Endpoint& endpoint = *state.endpoint;
    Endpoint::Handle handle = endpoint.irecv(dst, peer, tag);
    if (endpoint.test(handle)) return;
    if (spinning_allowed()) {
      for (int i = 0; i < kPollsBeforeWait; ++i) {
        spin_pause();
        if (endpoint.test(handle)) return;
      }
    }
    try {
      endpoint.wait(handle, Deadline::after(state.surroundings, seconds),
                    describe_message(false, dst.nbytes, peer, tag));
    } catch (...) {
      endpoint.cancel(handle);
      throw;
    }
  });
}

Probe Communicator::probe(int peer, Tag tag, std::optional<double> timeout_s) {
  State& state = enter();
  state.check_address(peer, tag);
  const Deadline deadline = state.deadline(timeout_s);
  const std::lock_guard lock(state.turnstile);
  state.check_usable();
  Probe result;
  state.attempt([&] {
    const auto is_here = [&] {
      const std::optional<std::size_t> nbytes = state.endpoint->iprobe(peer, tag);
      if (nbytes) result.nbytes = *nbytes;
      return nbytes.has_value();
    };
    if (is_here()) return;
    const int peers[] = {peer};
    state.endpoint->wait_until(
        is_here, peers, [](int) { return false; }, deadline,
        "probe for a message from rank " + std::to_string(peer) + " (tag " + std::to_string(tag) +
            ")");
  });
  return result;
}

std::shared_ptr<Work> Communicator::isend(ConstBuffer src, int peer, Tag tag) {
  // A send only reads its buffer.
  return post(Work::Kind::send, {const_cast<std::byte*>(src.data), src.nbytes}, peer, tag);
}

std::shared_ptr<Work> Communicator::irecv(Buffer dst, int peer, Tag tag) {
  return post(Work::Kind::receive, dst, peer, tag);
}

std::shared_ptr<Work> Communicator::post(Work::Kind kind, Buffer buffer, int peer, Tag tag) {
  State& state = enter();
  state.check_address(peer, tag);
  auto work = std::make_shared<Work>(shared_from_this(), kind, peer, tag, buffer.nbytes);
  {
    const std::lock_guard lock(state.turnstile);
    state.check_usable();
    state.attempt([&] {
      work->handle_ = kind == Work::Kind::send ? state.endpoint->isend(buffer, peer, tag)
                                               : state.endpoint->irecv(buffer, peer, tag);
    });
    if (state.poll(*work)) return work;
    state.pending.push_back(work);
  }
  Progress::instance().submit(shared_from_this(), false);
  return work;
}

std::shared_ptr<Work> Communicator::icollective(const CollectiveRequest& request,
                                                std::string algorithm,
                                                std::optional<double> timeout_s) {
  State& state = enter();
  auto work = std::make_shared<Work>(shared_from_this(), request, std::move(algorithm));
  work->request_.deadline = state.deadline(timeout_s);
  {
    const std::lock_guard lock(state.turnstile);
    state.check_usable();
    state.queue.push_back(work);
  }
  Progress::instance().submit(shared_from_this(), true);
  return work;
}

void Communicator::collective(const CollectiveRequest& request, std::string_view algorithm,
                              std::optional<double> timeout_s) {
  State& state = enter();
  CollectiveRequest timed = request;
  timed.deadline = state.deadline(timeout_s);
  {
    const std::lock_guard lock(state.turnstile);
    state.check_usable();
    if (!state.collective_running && state.queue.empty()) {
      struct Running {
        bool& flag;
        explicit Running(bool& is_running) : flag(is_running) { flag = true; }
        ~Running() { flag = false; }
      } running(state.collective_running);
      state.run(timed, algorithm);
      return;
    }
  }
  icollective(request, std::string(algorithm), timeout_s)->wait(timeout_s);
}

Counters Communicator::counters() {
  State& state = enter();
  const std::lock_guard lock(state.turnstile);
  return state.endpoint ? state.endpoint->counters() : Counters{};
}

std::size_t Communicator::pending() const {
  State& state = enter();
  const std::lock_guard lock(state.turnstile);
  return state.pending.size() + state.queue.size() + (state.collective_running ? 1 : 0);
}

}  // namespace hpcomm
