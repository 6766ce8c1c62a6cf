#include <boost/test/unit_test.hpp>

#include "support/calls.hpp"
#include "support/runs.hpp"

namespace hpcomm::testing {

BOOST_AUTO_TEST_SUITE(collectives)
BOOST_AUTO_TEST_SUITE(broadcast)

namespace {

enum class RootBuffers { in_place, separate, send_only };

void check_broadcast(RankScope& scope, DType dtype, std::size_t count, int root,
                     std::string_view algorithm, RootBuffers buffers) {
  const Bytes wanted = any_bytes(root, count * size_bytes(dtype));
  const bool is_root = scope.rank == root;
  Guarded source(wanted);
  Guarded target(wanted.size());
  CollectiveRequest request{.kind = Collective::broadcast,
                            .recv = target.buffer(),
                            .dtype = dtype,
                            .count = count,
                            .root = root,
                            .deadline = scope.patient()};
  if (is_root) request.send = source.buffer();
  if (is_root && buffers == RootBuffers::in_place) request.recv = source.buffer();
  if (is_root && buffers == RootBuffers::send_only) request.recv = {};
  call(scope, request, algorithm);
  const std::string what = std::string(algorithm) + " of " + std::to_string(count) + " " +
                           std::string(name_of(dtype)) + " from " + std::to_string(root) + " on " +
                           std::to_string(scope.size);
  const bool has_target = !is_root || buffers == RootBuffers::separate;
  require(has_target ? target.content() == wanted : target.is_untouched(), what + ": wrong result");
  require(target.is_intact() && source.content() == wanted, what + ": wrote where it must not");
}

void check_everywhere(RankScope& scope, DType dtype, std::size_t count) {
  for (const Algorithm& algorithm : algorithms_of(Collective::broadcast))
    for (int root = 0; root < scope.size; ++root)
      for (const auto buffers :
           {RootBuffers::in_place, RootBuffers::separate, RootBuffers::send_only})
        if (algorithm.supports({.size = scope.size, .shared = scope.endpoint.shared() != nullptr}))
          check_broadcast(scope, dtype, count, root, algorithm.name, buffers);
}

}  // namespace

BOOST_AUTO_TEST_CASE(every_algorithm_type_size_and_root_on_1_to_5_ranks) {
  for (int size = 1; size <= 5; ++size)
    HPCOMM_TEST_RUNS(run_ranks(size, [&](RankScope& scope) {
      for (const DType dtype : kAllDTypes)
        for (const std::size_t count : interesting_counts(size))
          check_everywhere(scope, dtype, count);
    }));
}

BOOST_AUTO_TEST_CASE(over_nodes_and_in_many_chunks) {
  for (int size = 2; size <= 5; ++size)
    for (const int ranks_per_node : {0, 2}) {
      RunOptions options;
      options.world.ranks_per_node = ranks_per_node;
      options.world.slot_bytes = 1024;
      const auto body = [](RankScope& scope) { check_everywhere(scope, DType::f32, 60'001); };
      HPCOMM_TEST_RUNS(run_ranks(size, body, options));
    }
}

BOOST_AUTO_TEST_SUITE_END()
BOOST_AUTO_TEST_SUITE_END()

}  // namespace hpcomm::testing
