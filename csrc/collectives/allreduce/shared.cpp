// Allreduce over shared memory.
//
// One shot (two ranks, or few bytes): every rank stages a chunk of its vector where all can read
// it, and reduces the chunks of all ranks itself. Very few bytes travel inside the control line.
// Two shots (three and more ranks, many bytes): every rank stages a chunk, reduces its slice of it
// from all ranks, leaves the result in its own slot, and copies the slices of all others.
//
// Phases: for each chunk: stage, advance, reduce; in two shots: advance again, copy.
// Source: staged one-shot and two-shot reductions with monotone counters, as in the shared-memory
//         allreduces of DeepSpeed and vLLM for CPUs.
// Steps:  ceil(n / chunk), twice that in two shots.
// Bytes read from others: n (p-1) in one shot; 2 (n - n/p) in two.
// Order:  by rank, in wide precision, rounded once: both ways and all chunk sizes give the same
// bits.
#include <algorithm>
#include <vector>

#include "collectives/allreduce/algorithms.hpp"
#include "collectives/shared_phases.hpp"
#include "reduce/reduce.hpp"

namespace hpcomm {
namespace {

class SharedAllreduce {
 public:
  SharedAllreduce(Endpoint& endpoint, const CollectiveRequest& request, const Signature& signature)
      : phases_(endpoint, request, signature),
        request_(request),
        width_(size_bytes(request.dtype)),
        others_(static_cast<std::size_t>(phases_.size() - 1)),
        inputs_(others_ + 1),
        slots_(others_ + 1) {}

  void run() {
    const bool two_shots = phases_.size() >= 3 && request_.count * width_ >= kSharedTwoShotBytes;
    const std::size_t length = phases_.chunk_bytes() / width_;
    for (std::size_t chunk = 0; chunk < num_windows(length, request_.count); ++chunk) {
      const Window window = window_of(chunk, length, request_.count);
      if (two_shots)
        slice_and_share(window);
      else
        reduce_all(window);
    }
  }

 private:
  void reduce_all(const Window& window) {
    const std::size_t nbytes = window.count * width_;
    const std::byte* own = request_.send.data + window.begin * width_;
    copy_bytes(phases_.outbox(nbytes), own, nbytes);
    phases_.advance();
    for (int peer = 0; peer < phases_.size(); ++peer)
      input(peer) = peer == phases_.rank() ? own : phases_.inbox(peer, nbytes);
    reduce(request_.dtype, request_.op, request_.recv.data + window.begin * width_, inputs_,
           window.count, phases_.size());
    phases_.count_read(others_ * nbytes);
  }

  void slice_and_share(const Window& window) {
    // Slices begin at cache lines, so that no line is written by two ranks.
    const std::size_t per_line = 64 / width_;
    const std::size_t lines = (window.count + per_line - 1) / per_line;
    const Parts slices = Parts::even(lines, phases_.size());
    const auto slice_of = [&](int peer) {
      const std::size_t begin = std::min(slices.offset(peer) * per_line, window.count);
      return Window{begin, std::min(slices.offset(peer + 1) * per_line, window.count) - begin};
    };
    const std::size_t nbytes = window.count * width_;
    // A tail may fit into a control line; here it goes to the slot like all else.
    copy_bytes(phases_.next_slot(), request_.send.data + window.begin * width_, nbytes);
    phases_.advance();

    const Window mine = slice_of(phases_.rank());
    for (int peer = 0; peer < phases_.size(); ++peer) {
      slots_[static_cast<std::size_t>(peer)] = phases_.slot(peer);
      input(peer) = phases_.slot(peer) + mine.begin * width_;
    }
    // This slice of this rank's slot is read by nobody else before the next phase.
    reduce(request_.dtype, request_.op, phases_.slot(phases_.rank()) + mine.begin * width_, inputs_,
           mine.count, phases_.size());
    phases_.advance();

    for (int peer = 0; peer < phases_.size(); ++peer) {
      const Window slice = slice_of(peer);
      copy_bytes(request_.recv.data + (window.begin + slice.begin) * width_,
                 slots_[static_cast<std::size_t>(peer)] + slice.begin * width_,
                 slice.count * width_);
    }
    phases_.count_read(others_ * mine.count * width_ + (window.count - mine.count) * width_);
  }

  const std::byte*& input(int peer) { return inputs_[static_cast<std::size_t>(peer)]; }

  SharedPhases phases_;
  const CollectiveRequest& request_;
  const std::size_t width_;
  const std::size_t others_;
  std::vector<const std::byte*> inputs_;
  std::vector<const std::byte*> slots_;
};

}  // namespace

void shared_allreduce(Endpoint& endpoint, const CollectiveRequest& request,
                      const Signature& signature) {
  SharedAllreduce(endpoint, request, signature).run();
}

}  // namespace hpcomm
