#include <boost/test/unit_test.hpp>

#include "support/calls.hpp"
#include "support/runs.hpp"
#include "support/sanitized.hpp"

namespace hpcomm::testing {

BOOST_AUTO_TEST_SUITE(collectives)
BOOST_AUTO_TEST_SUITE(allreduce)

namespace {

void check_allreduce(RankScope& scope, const Reduction& reduction, std::string_view algorithm,
                     bool in_place) {
  const Bytes& input = reduction.inputs[static_cast<std::size_t>(scope.rank)];
  Guarded send(input);
  Guarded out(input.size());
  Guarded& recv = in_place ? send : out;
  call(scope,
       allreduce_request(send.buffer(), recv.buffer(), reduction.dtype, reduction.op,
                         scope.patient()),
       algorithm);
  const std::string what = std::string(algorithm) + ", " + reduction.label() +
                           (in_place ? " in place" : "") + " on " + std::to_string(scope.size);
  require(recv.content() == reduction.wanted, what + ": wrong result");
  require(recv.is_intact() && send.is_intact(), what + ": wrote outside of its buffer");
  require(in_place || send.content() == input, what + ": changed its input");
}

void check_all(const std::vector<Reduction>& reductions, int size, const RunOptions& options) {
  run_ranks(
      size,
      [&](RankScope& scope) {
        for (const Reduction& reduction : reductions)
          for (const Algorithm& algorithm : algorithms_of(Collective::allreduce))
            for (const bool in_place : {false, true}) {
              if (!algorithm.supports({.size = size, .shared = scope.endpoint.shared() != nullptr}))
                continue;
              check_allreduce(scope, reduction, algorithm.name, in_place);
            }
      },
      options);
}

}  // namespace

BOOST_AUTO_TEST_CASE(every_algorithm_type_op_and_size_on_1_to_5_ranks) {
  for (int size = 1; size <= 5; ++size) {
    std::vector<Reduction> reductions;
    for (const DType dtype : kAllDTypes)
      for (const ReduceOp op : kAllOps)
        for (const std::size_t count : interesting_counts(size))
          if (is_reducible(op, dtype))
            reductions.push_back(exact_reduction(dtype, op, count, size));
    HPCOMM_TEST_RUNS(check_all(reductions, size, {}));
  }
}

BOOST_AUTO_TEST_CASE(over_nodes_that_share_no_memory) {
  for (int size = 2; size <= 5; ++size) {
    std::vector<Reduction> reductions;
    for (const DType dtype : {DType::f32, DType::bf16, DType::i8})
      for (const ReduceOp op : {ReduceOp::sum, ReduceOp::max})
        for (const std::size_t count : interesting_counts(size))
          reductions.push_back(exact_reduction(dtype, op, count, size));
    RunOptions options;
    options.world.ranks_per_node = 2;
    HPCOMM_TEST_RUNS(check_all(reductions, size, options));
  }
}

BOOST_AUTO_TEST_CASE(vectors_of_several_segments_and_chunks) {
  for (const int size : kIsSanitized ? std::vector<int>{2, 3} : std::vector<int>{2, 3, 4, 5}) {
    const std::size_t count = 100'001 * static_cast<std::size_t>(size);  // parts of 400 kB
    const std::vector<Reduction> reductions = {
        exact_reduction(DType::f32, ReduceOp::sum, count, size),
        exact_reduction(DType::f16, ReduceOp::avg, 2 * count, size)};
    HPCOMM_TEST_RUNS(check_all(reductions, size, {}));
  }
}

BOOST_AUTO_TEST_CASE(slots_of_any_size_will_do) {
  for (const std::size_t slot_bytes : {0UL, 320UL, 1000UL, 4096UL, 1048576UL})
    for (const int size : {2, 3, 5}) {
      std::vector<Reduction> reductions;
      for (const std::size_t count : {1UL, 10UL, 11UL, 5003UL})
        for (const DType dtype : {DType::f64, DType::f16, DType::u8})
          reductions.push_back(exact_reduction(dtype, ReduceOp::sum, count, size));
      RunOptions options;
      options.world.slot_bytes = slot_bytes;
      HPCOMM_TEST_RUNS(check_all(reductions, size, options));
    }
}

BOOST_AUTO_TEST_CASE(algorithms_may_follow_each_other_in_any_order) {
  for (const int size : {2, 3, 4}) {
    std::vector<Reduction> reductions;
    for (const std::size_t count : {3UL, 9UL, 4001UL, 20011UL})
      reductions.push_back(exact_reduction(DType::f32, ReduceOp::sum, count, size));
    HPCOMM_TEST_RUNS(run_ranks(size, [&](RankScope& scope) {
      const auto table = algorithms_of(Collective::allreduce);
      for (std::uint64_t i = 0; i < 300; ++i) {
        const std::uint64_t choice = mixed(5, 0, i);  // the same on all ranks
        check_allreduce(scope, reductions[choice % reductions.size()],
                        table[(choice >> 8U) % table.size()].name, (choice >> 16U) % 2 == 0);
      }
    }));
  }
}

BOOST_AUTO_TEST_SUITE_END()
BOOST_AUTO_TEST_SUITE_END()

}  // namespace hpcomm::testing
