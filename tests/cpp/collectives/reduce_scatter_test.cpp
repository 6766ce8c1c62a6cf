#include <boost/test/unit_test.hpp>

#include "support/calls.hpp"
#include "support/runs.hpp"

namespace hpcomm::testing {

BOOST_AUTO_TEST_SUITE(collectives)
BOOST_AUTO_TEST_SUITE(reduce_scatter)

namespace {

/// A vector and how it is dealt; `counts` is empty where all parts have `each` elements.
struct Deal {
  Reduction reduction;
  std::vector<std::size_t> counts;
  std::size_t each = 0;

  Parts parts(int size) const {
    return counts.empty() ? Parts::uniform(each, size) : Parts::of_counts(counts);
  }
};

void check_reduce_scatter(RankScope& scope, const Deal& deal, std::string_view algorithm,
                          bool in_place) {
  const Reduction& reduction = deal.reduction;
  const std::size_t width = size_bytes(reduction.dtype);
  const Parts parts = deal.parts(scope.size);
  const std::size_t begin = parts.offset(scope.rank) * width;
  const std::size_t nbytes = parts.count(scope.rank) * width;
  const Bytes& input = reduction.inputs[static_cast<std::size_t>(scope.rank)];
  Guarded send(input);
  Guarded out(nbytes);
  call(scope,
       {.kind = Collective::reduce_scatter,
        .send = send.buffer(),
        .recv = in_place ? send.buffer().slice(begin, nbytes) : out.buffer(),
        .dtype = reduction.dtype,
        .op = reduction.op,
        .count = deal.each,
        .counts = deal.counts,
        .deadline = scope.patient()},
       algorithm);
  const std::string what = std::string(algorithm) + ", " + reduction.label() +
                           (deal.counts.empty() ? "" : " in unequal parts") +
                           (in_place ? " in place" : "") + " on " + std::to_string(scope.size);
  const auto part = [&](const Bytes& whole) {
    const auto at = whole.begin() + static_cast<std::ptrdiff_t>(begin);
    return Bytes(at, at + static_cast<std::ptrdiff_t>(nbytes));
  };
  const Bytes got = in_place ? part(send.content()) : out.content();
  require(got == part(reduction.wanted), what + ": wrong result");
  require(out.is_intact() && send.is_intact(), what + ": wrote outside of its buffer");
  Bytes others = send.content();
  if (in_place)
    std::copy_n(input.begin() + static_cast<std::ptrdiff_t>(begin), nbytes,
                others.begin() + static_cast<std::ptrdiff_t>(begin));
  require(others == input, what + ": changed its input outside of its part");
}

void check_all(const std::vector<Deal>& deals, int size, const RunOptions& options) {
  run_ranks(
      size,
      [&](RankScope& scope) {
        for (const Deal& deal : deals)
          for (const Algorithm& algorithm : algorithms_of(Collective::reduce_scatter))
            for (const bool in_place : {false, true})
              if (algorithm.supports({.size = size, .shared = scope.endpoint.shared() != nullptr}))
                check_reduce_scatter(scope, deal, algorithm.name, in_place);
      },
      options);
}

Deal uniform(DType dtype, ReduceOp op, std::size_t each, int size) {
  return {exact_reduction(dtype, op, each * static_cast<std::size_t>(size), size), {}, each};
}

Deal unequal(DType dtype, ReduceOp op, std::vector<std::size_t> counts, int size) {
  counts.resize(static_cast<std::size_t>(size));
  const std::size_t total = Parts::of_counts(counts).total();
  return {exact_reduction(dtype, op, total, size), counts, 0};
}

}  // namespace

BOOST_AUTO_TEST_CASE(every_algorithm_type_op_and_size_on_1_to_5_ranks) {
  for (int size = 1; size <= 5; ++size) {
    std::vector<Deal> deals;
    for (const DType dtype : kAllDTypes)
      for (const ReduceOp op : kAllOps) {
        if (!is_reducible(op, dtype)) continue;
        for (const std::size_t each : interesting_counts(size))
          deals.push_back(uniform(dtype, op, each > 1000 ? 2003 : each, size));
      }
    HPCOMM_TEST_RUNS(check_all(deals, size, {}));
  }
}

BOOST_AUTO_TEST_CASE(parts_of_unequal_lengths) {
  for (int size = 1; size <= 5; ++size) {
    std::vector<Deal> deals;
    for (const DType dtype : {DType::f32, DType::f16, DType::i64, DType::u8})
      for (const ReduceOp op : {ReduceOp::sum, ReduceOp::min}) {
        deals.push_back(unequal(dtype, op, {3, 0, 1, 7, 2}, size));
        deals.push_back(unequal(dtype, op, {0, 0, 5, 0, 0}, size));
        deals.push_back(unequal(dtype, op, {0, 0, 0, 0, 0}, size));
        deals.push_back(unequal(dtype, op, {30'001, 3, 0, 9'000, 1}, size));
      }
    HPCOMM_TEST_RUNS(check_all(deals, size, {}));
    RunOptions options;
    options.world.ranks_per_node = 2;
    HPCOMM_TEST_RUNS(check_all(deals, size, options));
  }
}

BOOST_AUTO_TEST_CASE(slots_of_any_size_will_do) {
  for (const std::size_t slot_bytes : {0UL, 1000UL, 262144UL})
    for (const int size : {2, 5}) {
      RunOptions options;
      options.world.slot_bytes = slot_bytes;
      const std::vector<Deal> deals = {uniform(DType::f64, ReduceOp::sum, 1, size),
                                       uniform(DType::f64, ReduceOp::sum, 2003, size),
                                       uniform(DType::u8, ReduceOp::max, 4001, size)};
      HPCOMM_TEST_RUNS(check_all(deals, size, options));
    }
}

BOOST_AUTO_TEST_SUITE_END()
BOOST_AUTO_TEST_SUITE_END()

}  // namespace hpcomm::testing
