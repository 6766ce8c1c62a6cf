#include <boost/test/unit_test.hpp>

#include "support/calls.hpp"
#include "support/runs.hpp"

namespace hpcomm::testing {

BOOST_AUTO_TEST_SUITE(collectives)
BOOST_AUTO_TEST_SUITE(allgather)

namespace {

void check_allgather(RankScope& scope, DType dtype, std::size_t each,
                     const std::vector<std::size_t>& counts, std::string_view algorithm,
                     bool in_place) {
  const std::size_t width = size_bytes(dtype);
  const Parts parts = counts.empty() ? Parts::uniform(each, scope.size) : Parts::of_counts(counts);
  Bytes wanted;
  for (int rank = 0; rank < scope.size; ++rank) {
    const Bytes part = any_bytes(rank, parts.count(rank) * width);
    wanted.insert(wanted.end(), part.begin(), part.end());
  }
  const Bytes mine = any_bytes(scope.rank, parts.count(scope.rank) * width);
  Guarded send(mine);
  Guarded recv(wanted.size());
  const Buffer place = recv.buffer().slice(parts.offset(scope.rank) * width, mine.size());
  if (in_place) std::copy(mine.begin(), mine.end(), place.data);
  call(scope,
       {.kind = Collective::allgather,
        .send = in_place ? place : send.buffer(),
        .recv = recv.buffer(),
        .dtype = dtype,
        .count = each,
        .counts = counts,
        .deadline = scope.patient()},
       algorithm);
  const std::string what = std::string(algorithm) + " of " + std::to_string(each) + " " +
                           std::string(name_of(dtype)) + (in_place ? " in place" : "") + " on " +
                           std::to_string(scope.size);
  require(recv.content() == wanted, what + ": wrong result");
  require(recv.is_intact() && send.content() == mine, what + ": wrote where it must not");
}

void check_everywhere(DType dtype, std::size_t each, const std::vector<std::size_t>& counts,
                      RankScope& scope) {
  for (const Algorithm& algorithm : algorithms_of(Collective::allgather))
    for (const bool in_place : {false, true})
      if (algorithm.supports({.size = scope.size, .shared = scope.endpoint.shared() != nullptr}))
        check_allgather(scope, dtype, each, counts, algorithm.name, in_place);
}

}  // namespace

BOOST_AUTO_TEST_CASE(every_algorithm_type_and_size_on_1_to_5_ranks) {
  for (int size = 1; size <= 5; ++size)
    HPCOMM_TEST_RUNS(run_ranks(size, [&](RankScope& scope) {
      for (const DType dtype : kAllDTypes)
        for (const std::size_t each : interesting_counts(size))
          check_everywhere(dtype, each, {}, scope);
    }));
}

BOOST_AUTO_TEST_CASE(parts_of_unequal_lengths) {
  const std::vector<std::size_t> deals[] = {
      {3, 0, 1, 7, 2}, {0, 0, 5, 0, 0}, {0, 0, 0, 0, 0}, {30'001, 3, 0, 9'000, 1}};
  for (int size = 1; size <= 5; ++size)
    for (const int ranks_per_node : {0, 2}) {
      RunOptions options;
      options.world.ranks_per_node = ranks_per_node;
      const auto body = [&](RankScope& scope) {
        for (std::vector<std::size_t> counts : deals) {
          counts.resize(static_cast<std::size_t>(size));
          for (const DType dtype : {DType::u8, DType::f64})
            check_everywhere(dtype, 0, counts, scope);
        }
      };
      HPCOMM_TEST_RUNS(run_ranks(size, body, options));
    }
}

BOOST_AUTO_TEST_CASE(slots_of_any_size_will_do) {
  for (const std::size_t slot_bytes : {0UL, 1000UL, 262144UL}) {
    RunOptions options;
    options.world.slot_bytes = slot_bytes;
    const auto body = [](RankScope& scope) {
      for (const std::size_t each : {1UL, 5UL, 6UL, 4001UL})
        check_everywhere(DType::f64, each, {}, scope);
    };
    HPCOMM_TEST_RUNS(run_ranks(3, body, options));
  }
}

BOOST_AUTO_TEST_SUITE_END()
BOOST_AUTO_TEST_SUITE_END()

}  // namespace hpcomm::testing
