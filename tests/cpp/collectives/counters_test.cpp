// The formulas of the tables, counted.
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cmath>

#include "collectives/agreement.hpp"
#include "collectives/shared_phases.hpp"
#include "support/calls.hpp"
#include "support/runs.hpp"
#include "support/sanitized.hpp"

namespace hpcomm::testing {

BOOST_AUTO_TEST_SUITE(collectives)
BOOST_AUTO_TEST_SUITE(counters)

namespace {

struct Counted {
  double steps = 0;
  double bytes = 0;
};

/// A request over `nbytes` of the whole vector, which p divides where there are parts.
CollectiveRequest request_of(Collective kind, RankScope& scope, Bytes& send, Bytes& recv) {
  const std::size_t p = static_cast<std::size_t>(scope.size);
  const bool gathers = kind == Collective::allgather;
  const bool scatters = kind == Collective::reduce_scatter;
  CollectiveRequest request{.kind = kind,
                            .send = {send.data(), gathers ? send.size() / p : send.size()},
                            .recv = {recv.data(), scatters ? recv.size() / p : recv.size()},
                            .dtype = DType::f32,
                            .count = send.size() / 4,
                            .root = kind == Collective::broadcast ? scope.size - 1 : -1,
                            .deadline = scope.patient()};
  if (gathers || scatters) request.count /= p;
  return request;
}

/// Runs the algorithm alone, without an agreement before it.
Counted count(Collective kind, const Algorithm& algorithm, int size, std::size_t nbytes) {
  std::vector<Counted> ranks(static_cast<std::size_t>(size));
  std::shared_ptr<const loopback::World> world;
  run_ranks(size, [&](RankScope& scope) {
    Bytes send(nbytes, std::byte{1});
    Bytes recv(nbytes);
    const CollectiveRequest request = request_of(kind, scope, send, recv);
    algorithm.run(scope.endpoint, request, signature_of(request, 0, size));
    const Counters& counters = scope.endpoint.counters();
    const bool by_messages = counters.messages_sent + counters.messages_received > 0;
    require(!by_messages || counters.bytes_read_shared == 0, "two media at once");
    ranks[static_cast<std::size_t>(scope.rank)] = {
        static_cast<double>(scope.world.chain(scope.rank) + scope.endpoint.sequence()),
        static_cast<double>(counters.bytes_sent + counters.bytes_read_shared)};
  });
  Counted most;
  for (const Counted& rank : ranks) {
    most.steps = std::max(most.steps, rank.steps);
    most.bytes = std::max(most.bytes, rank.bytes);
  }
  return most;
}

}  // namespace

BOOST_AUTO_TEST_CASE(steps_and_bytes_are_what_the_table_says) {
  for (const Collective kind : kAllCollectives)
    for (const Algorithm& algorithm : algorithms_of(kind))
      for (const int size : {1, 2, 3, 4, 5, 8})
        for (const std::size_t elements : {16UL, 3072UL, 20'000UL, 300'000UL}) {
          if (kind == Collective::barrier && elements > 16) continue;
          if (kIsSanitized && elements > 20'000 && size > 3) continue;
          const std::size_t nbytes = elements * 4 * static_cast<std::size_t>(size);
          Counted counted;
          HPCOMM_TEST_RUNS(counted = count(kind, algorithm, size, nbytes));
          const std::string label = std::string(name_of(kind)) + " " + std::string(algorithm.name) +
                                    ", " + std::to_string(nbytes) + " bytes on " +
                                    std::to_string(size);
          BOOST_TEST(counted.steps == algorithm.steps(size, nbytes), label << ": steps");
          // Slices of a chunk begin at cache lines, so some ranks have a line more.
          const double chunks = std::ceil(static_cast<double>(nbytes) / SharedPhases::kChunkBytes);
          const double slack = algorithm.agrees_itself ? 64 * size * chunks : 0;
          BOOST_TEST(counted.bytes <= algorithm.bytes(size, nbytes) + slack, label << ": bytes");
          BOOST_TEST(counted.bytes >= algorithm.bytes(size, nbytes), label << ": bytes");
        }
}

BOOST_AUTO_TEST_CASE(parts_that_differ_by_one_element_change_bytes_by_no_more_than_that) {
  for (const Algorithm& algorithm : algorithms_of(Collective::allreduce)) {
    if (algorithm.agrees_itself) continue;
    for (const int size : {2, 3, 5})
      for (const std::size_t elements : {7UL, 1001UL}) {
        Counted counted;
        HPCOMM_TEST_RUNS(counted = count(Collective::allreduce, algorithm, size, elements * 4));
        const double off = counted.bytes - algorithm.bytes(size, elements * 4);
        BOOST_TEST(std::abs(off) <= 2 * 4.0, algorithm.name << " of " << elements);
      }
  }
}

BOOST_AUTO_TEST_CASE(agreement_takes_one_phase_or_a_logarithm_of_messages) {
  for (const int size : {2, 3, 5, 8})
    for (const bool shared : {true, false}) {
      RunOptions options;
      options.world.shared_memory = shared;
      const auto body = [&](RankScope& scope) {
        const CollectiveRequest request = barrier_request(scope.patient());
        agree(scope.endpoint, request, signature_of(request, 0, size));
        const std::uint64_t rounds = static_cast<std::uint64_t>(std::ceil(std::log2(size)));
        require(scope.endpoint.sequence() == (shared ? 1U : 0U), "phases");
        require(scope.endpoint.counters().messages_sent == (shared ? 0 : rounds), "messages");
        require(scope.endpoint.counters().bytes_sent == (shared ? 0 : 40 * rounds), "bytes");
      };
      HPCOMM_TEST_RUNS(run_ranks(size, body, options));
    }
}

BOOST_AUTO_TEST_CASE(tables_are_complete_and_names_unique) {
  for (const Collective kind : kAllCollectives) {
    const auto table = algorithms_of(kind);
    BOOST_TEST(table.size() >= 2);
    BOOST_TEST(table.size() < kRefused);
    for (const Algorithm& algorithm : table) {
      BOOST_TEST(!algorithm.summary.empty());
      BOOST_TEST(!algorithm.source.empty());
      const auto same = [&](const Algorithm& other) { return other.name == algorithm.name; };
      BOOST_TEST(std::count_if(table.begin(), table.end(), same) == 1);
      const bool reduces = kind == Collective::allreduce || kind == Collective::reduce_scatter;
      BOOST_TEST(reduces == (algorithm.order != SumOrder::none));
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()
BOOST_AUTO_TEST_SUITE_END()

}  // namespace hpcomm::testing
