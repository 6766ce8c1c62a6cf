#include <atomic>
#include <boost/test/unit_test.hpp>

#include "support/calls.hpp"
#include "support/runs.hpp"

namespace hpcomm::testing {

BOOST_AUTO_TEST_SUITE(collectives)
BOOST_AUTO_TEST_SUITE(barrier)

BOOST_AUTO_TEST_CASE(no_rank_leaves_before_all_have_come) {
  for (int size = 1; size <= 5; ++size)
    for (const int ranks_per_node : {0, 2}) {
      std::atomic<int> arrivals{0};
      RunOptions options;
      options.world.ranks_per_node = ranks_per_node;
      options.jitter_s = 20e-6;
      const auto body = [&](RankScope& scope) {
        int expected_arrivals = 0;
        for (const Algorithm& algorithm : algorithms_of(Collective::barrier)) {
          if (!algorithm.supports({.size = size, .shared = scope.endpoint.shared() != nullptr}))
            continue;
          for (int round = 0; round < 50; ++round) {
            expected_arrivals += size;
            arrivals.fetch_add(1);
            call(scope, barrier_request(scope.patient()), algorithm.name);
            require(arrivals.load() >= expected_arrivals, "a rank left before another had come");
          }
        }
      };
      HPCOMM_TEST_RUNS(run_ranks(size, body, options));
    }
}

BOOST_AUTO_TEST_SUITE_END()
BOOST_AUTO_TEST_SUITE_END()

}  // namespace hpcomm::testing
