// What the tables declare about the order of addition and its width.
#include <boost/test/unit_test.hpp>
#include <cmath>

#include "reduce/reduce.hpp"
#include "support/calls.hpp"
#include "support/runs.hpp"

namespace hpcomm::testing {

BOOST_AUTO_TEST_SUITE(collectives)
BOOST_AUTO_TEST_SUITE(order)

namespace {

constexpr DType kFloats[] = {DType::f16, DType::bf16, DType::f32, DType::f64};

/// What every rank gets from an allreduce of `inputs`.
std::vector<Bytes> allreduce_on_all(const std::vector<Bytes>& inputs, DType dtype, ReduceOp op,
                                    std::string_view algorithm, std::size_t slot_bytes) {
  std::vector<Bytes> results(inputs.size());
  RunOptions options;
  options.world.slot_bytes = slot_bytes;
  const auto body = [&](RankScope& scope) {
    const Bytes& mine = inputs[static_cast<std::size_t>(scope.rank)];
    Guarded send(mine);
    Guarded recv(mine.size());
    call(scope, allreduce_request(send.buffer(), recv.buffer(), dtype, op, scope.patient()),
         algorithm);
    results[static_cast<std::size_t>(scope.rank)] = recv.content();
  };
  run_ranks(static_cast<int>(inputs.size()), body, options);
  return results;
}

std::vector<Bytes> rough_inputs(DType dtype, int size, std::size_t count) {
  std::vector<Bytes> inputs;
  for (int rank = 0; rank < size; ++rank) inputs.push_back(rough_values(dtype, rank, count));
  return inputs;
}

Bytes reduced_by_rank(const std::vector<Bytes>& inputs, DType dtype, ReduceOp op) {
  std::vector<const std::byte*> pointers;
  for (const Bytes& input : inputs) pointers.push_back(input.data());
  Bytes out(inputs[0].size());
  reduce(dtype, op, out.data(), pointers, out.size() / size_bytes(dtype),
         static_cast<int>(inputs.size()));
  return out;
}

std::string label(const Algorithm& algorithm, DType dtype, int size) {
  return std::string(algorithm.name) + " of " + std::string(name_of(dtype)) + " on " +
         std::to_string(size);
}

}  // namespace

BOOST_AUTO_TEST_CASE(all_ranks_get_the_same_bits) {
  for (const Algorithm& algorithm : algorithms_of(Collective::allreduce))
    for (int size = 2; size <= 5; ++size)
      for (const DType dtype : kFloats)
        for (const ReduceOp op : {ReduceOp::sum, ReduceOp::avg, ReduceOp::prod}) {
          std::vector<Bytes> results;
          HPCOMM_TEST_RUNS(results = allreduce_on_all(rough_inputs(dtype, size, 6007), dtype, op,
                                                      algorithm.name, 4096));
          for (const Bytes& result : results)
            BOOST_TEST((result == results[0]), label(algorithm, dtype, size));
        }
}

BOOST_AUTO_TEST_CASE(by_rank_is_the_wide_sum_in_rank_order_for_any_chunk_size) {
  for (const Algorithm& algorithm : algorithms_of(Collective::allreduce)) {
    if (algorithm.order != SumOrder::by_rank) continue;
    BOOST_TEST(algorithm.accumulates_wide);
    for (int size = 2; size <= 5; ++size)
      for (const DType dtype : kFloats)
        for (const ReduceOp op : {ReduceOp::sum, ReduceOp::avg})
          for (const std::size_t slot_bytes : {320UL, 4096UL, 65536UL}) {
            const std::vector<Bytes> inputs = rough_inputs(dtype, size, 9001);
            std::vector<Bytes> results;
            HPCOMM_TEST_RUNS(results =
                                 allreduce_on_all(inputs, dtype, op, algorithm.name, slot_bytes));
            BOOST_TEST((results[0] == reduced_by_rank(inputs, dtype, op)),
                       label(algorithm, dtype, size) << " with slots of " << slot_bytes);
          }
  }
}

BOOST_AUTO_TEST_CASE(reduce_scatter_by_rank_is_the_wide_sum_in_rank_order) {
  for (const Algorithm& algorithm : algorithms_of(Collective::reduce_scatter)) {
    if (algorithm.order != SumOrder::by_rank) continue;
    for (const int size : {2, 3, 5})
      for (const DType dtype : kFloats) {
        const std::size_t each = 1501;
        const std::vector<Bytes> inputs =
            rough_inputs(dtype, size, each * static_cast<std::size_t>(size));
        const Bytes wanted = reduced_by_rank(inputs, dtype, ReduceOp::sum);
        HPCOMM_TEST_RUNS(run_ranks(size, [&](RankScope& scope) {
          const std::size_t nbytes = each * size_bytes(dtype);
          const std::size_t rank = static_cast<std::size_t>(scope.rank);
          Guarded send(inputs[rank]);
          Guarded recv(nbytes);
          call(scope,
               {.kind = Collective::reduce_scatter,
                .send = send.buffer(),
                .recv = recv.buffer(),
                .dtype = dtype,
                .count = each,
                .deadline = scope.patient()},
               algorithm.name);
          const auto begin = wanted.begin() + static_cast<std::ptrdiff_t>(rank * nbytes);
          require(recv.content() == Bytes(begin, begin + static_cast<std::ptrdiff_t>(nbytes)),
                  label(algorithm, dtype, size) + ": another order or width");
        }));
      }
  }
}

BOOST_AUTO_TEST_CASE(the_place_in_a_fused_buffer_matters_only_where_declared) {
  for (const Algorithm& algorithm : algorithms_of(Collective::allreduce))
    for (const int size : {3, 4, 5})
      for (const DType dtype : {DType::f32, DType::bf16}) {
        const std::vector<Bytes> alone = rough_inputs(dtype, size, 3000);
        std::vector<Bytes> fused;
        const std::size_t shift = 1234 * size_bytes(dtype);
        for (int rank = 0; rank < size; ++rank) {
          Bytes bytes = rough_values(dtype, rank, 1234, 7);
          const Bytes& mine = alone[static_cast<std::size_t>(rank)];
          bytes.insert(bytes.end(), mine.begin(), mine.end());
          fused.push_back(bytes);
        }
        std::vector<Bytes> result_alone;
        std::vector<Bytes> result_fused;
        HPCOMM_TEST_RUNS(result_alone =
                             allreduce_on_all(alone, dtype, ReduceOp::sum, algorithm.name, 65536));
        HPCOMM_TEST_RUNS(result_fused =
                             allreduce_on_all(fused, dtype, ReduceOp::sum, algorithm.name, 65536));
        const Bytes tail(result_fused[0].begin() + static_cast<std::ptrdiff_t>(shift),
                         result_fused[0].end());
        if (algorithm.order == SumOrder::by_position) {
          BOOST_TEST((tail != result_alone[0]), label(algorithm, dtype, size)
                                                    << " could promise more than it does");
        } else {
          BOOST_TEST((tail == result_alone[0]), label(algorithm, dtype, size));
        }
      }
}

BOOST_AUTO_TEST_CASE(errors_stay_within_what_rounding_explains) {
  constexpr double kRoundoff[] = {0x1p-11, 0x1p-8, 0x1p-24, 0x1p-53};  // half a unit, by DType
  for (const Algorithm& algorithm : algorithms_of(Collective::allreduce))
    for (const int size : {2, 5})
      for (const DType dtype : kFloats) {
        const std::vector<Bytes> inputs = rough_inputs(dtype, size, 4001);
        std::vector<Bytes> results;
        HPCOMM_TEST_RUNS(results =
                             allreduce_on_all(inputs, dtype, ReduceOp::sum, algorithm.name, 4096));
        const double roundoff = kRoundoff[static_cast<int>(dtype)];
        int wrong = 0;
        for (std::size_t i = 0; i < 4001; ++i) {
          double sum = 0;
          double magnitude = 0;
          for (const Bytes& input : inputs) {
            sum += decode(dtype, input.data(), i);
            magnitude += std::abs(decode(dtype, input.data(), i));
          }
          const double error = std::abs(decode(dtype, results[0].data(), i) - sum);
          // Rounded once: half a unit of the result, and what float32 lost on the way.
          const bool once = algorithm.accumulates_wide && size_bytes(dtype) == 2;
          const double bound = once ? roundoff * std::abs(sum) * 1.01 + 0x1p-22 * magnitude
                                    : (size + 1) * roundoff * magnitude;
          wrong += error <= bound ? 0 : 1;
        }
        BOOST_TEST(wrong == 0, label(algorithm, dtype, size) << ": " << wrong << " elements");
      }
}

BOOST_AUTO_TEST_SUITE_END()
BOOST_AUTO_TEST_SUITE_END()

}  // namespace hpcomm::testing
