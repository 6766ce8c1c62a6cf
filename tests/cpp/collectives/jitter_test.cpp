// Random sequences of everything while messages are late and threads are held up.
#include <boost/test/unit_test.hpp>

#include "support/calls.hpp"
#include "support/runs.hpp"
#include "support/sanitized.hpp"

namespace hpcomm::testing {

BOOST_AUTO_TEST_SUITE(collectives)
BOOST_AUTO_TEST_SUITE(jitter)

namespace {

constexpr std::size_t kCounts[] = {0, 1, 9, 10, 257, 5001, 20'011};

/// int32 vectors whose sum over ranks and any part are easy to tell.
std::int32_t element(int rank, std::uint64_t round, std::size_t i) {
  return static_cast<std::int32_t>(mixed(round, static_cast<std::uint64_t>(rank), i) % 1000);
}

using Vector = std::vector<std::int32_t>;

Vector vector_of(int rank, std::uint64_t round, std::size_t count) {
  Vector vector(count);
  for (std::size_t i = 0; i < count; ++i) vector[i] = element(rank, round, i);
  return vector;
}

Buffer bytes_of(Vector& vector) {
  return {reinterpret_cast<std::byte*>(vector.data()), vector.size() * 4};
}

Vector sum_of_all(int size, std::uint64_t round, std::size_t count) {
  Vector sum(count);
  for (int rank = 0; rank < size; ++rank)
    for (std::size_t i = 0; i < count; ++i) sum[i] += element(rank, round, i);
  return sum;
}

void one_round(RankScope& scope, std::uint64_t round) {
  const std::uint64_t dice = mixed(99, 0, round);  // the same on all ranks
  const Collective kind = kAllCollectives[dice % std::size(kAllCollectives)];
  const std::size_t count = kCounts[(dice >> 8U) % std::size(kCounts)];
  const int root = static_cast<int>((dice >> 16U) % static_cast<std::uint64_t>(scope.size));
  const auto table = algorithms_of(kind);
  const Algorithm& algorithm = table[(dice >> 24U) % table.size()];
  const bool fits =
      algorithm.supports({.size = scope.size, .shared = scope.endpoint.shared() != nullptr});
  const std::size_t p = static_cast<std::size_t>(scope.size);
  const std::size_t rank = static_cast<std::size_t>(scope.rank);

  const bool scatters = kind == Collective::reduce_scatter;
  const bool gathers = kind == Collective::allgather;
  Vector send = vector_of(scope.rank, round, scatters ? count * p : count);
  Vector recv(gathers ? count * p : count, -1);
  call(scope,
       {.kind = kind,
        .send = bytes_of(send),
        .recv = bytes_of(recv),
        .dtype = DType::i32,
        .count = kind == Collective::barrier ? 0 : count,
        .root = kind == Collective::broadcast ? root : -1,
        .deadline = scope.patient()},
       fits ? algorithm.name : "");
  Vector wanted;
  if (kind == Collective::barrier) return;
  if (kind == Collective::broadcast) wanted = vector_of(root, round, count);
  if (kind == Collective::allreduce) wanted = sum_of_all(scope.size, round, count);
  if (scatters) {
    const Vector whole = sum_of_all(scope.size, round, count * p);
    const auto begin = whole.begin() + static_cast<std::ptrdiff_t>(rank * count);
    wanted.assign(begin, begin + static_cast<std::ptrdiff_t>(count));
  }
  if (gathers)
    for (int peer = 0; peer < scope.size; ++peer) {
      const Vector part = vector_of(peer, round, count);
      wanted.insert(wanted.end(), part.begin(), part.end());
    }
  require(recv == wanted, "round " + std::to_string(round) + ": wrong result of " + name_of(kind) +
                              " " + std::string(algorithm.name));
}

/// Messages of the user between collectives: posted before, completed after some of them.
class Chatter {
 public:
  explicit Chatter(RankScope& scope) : scope_(scope) {}
  ~Chatter() {
    for (Endpoint::Handle& handle : handles_) scope_.endpoint.cancel(handle);
  }
  Chatter(const Chatter&) = delete;
  Chatter& operator=(const Chatter&) = delete;

  void start(std::uint64_t round) {
    const int to = (scope_.rank + 1) % scope_.size;
    const int from = (scope_.rank + scope_.size - 1) % scope_.size;
    out_ = vector_of(scope_.rank, round, 700);
    in_.assign(700, -1);
    wanted_ = vector_of(from, round, 700);
    handles_[0] = scope_.endpoint.isend(bytes_of(out_), to, 5);
    handles_[1] = scope_.endpoint.irecv(bytes_of(in_), from, 5);
  }
  void finish() {
    scope_.endpoint.wait_all(handles_, scope_.patient(), "messages of the user");
    require(in_ == wanted_, "a message of the user was damaged");
  }

 private:
  RankScope& scope_;
  Vector out_;
  Vector in_;
  Vector wanted_;
  Endpoint::Handle handles_[2];
};

void many_rounds(RankScope& scope, std::uint64_t first, std::uint64_t rounds) {
  Chatter chatter(scope);
  for (std::uint64_t round = first; round < first + rounds; ++round) {
    if (round % 4 == 0) chatter.start(round);
    one_round(scope, round);
    if (round % 4 == 3) chatter.finish();
  }
}

}  // namespace

BOOST_AUTO_TEST_CASE(late_messages_and_held_up_threads_change_no_result) {
  for (int size = 2; size <= 5; ++size)
    for (const int ranks_per_node : {0, 2})
      for (std::uint64_t seed = 0; seed < 3; ++seed) {
        RunOptions options;
        options.world.ranks_per_node = ranks_per_node;
        options.world.slot_bytes = seed == 1 ? 1024 : 65536;
        options.world.eager_bytes = seed == 2 ? 0 : 1024;
        options.world.max_delay_s = 100e-6;
        options.world.seed = seed;
        options.jitter_s = 50e-6;
        const auto body = [&](RankScope& scope) { many_rounds(scope, 1000 * seed, 40); };
        HPCOMM_TEST_RUNS(run_ranks(size, body, options));
      }
}

BOOST_AUTO_TEST_CASE(many_calls_in_quick_succession) {
  constexpr std::uint64_t kRounds = kIsSanitized ? 200 : 1200;
  for (const int size : {2, 4})
    HPCOMM_TEST_RUNS(run_ranks(size, [](RankScope& scope) { many_rounds(scope, 4000, kRounds); }));
}

BOOST_AUTO_TEST_SUITE_END()
BOOST_AUTO_TEST_SUITE_END()

}  // namespace hpcomm::testing
