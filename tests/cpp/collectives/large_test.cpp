// More than 2^31 elements, with little memory: the content of all buffers repeats.
#include <boost/test/unit_test.hpp>

#include "support/calls.hpp"
#include "support/repeated_memory.hpp"
#include "support/runs.hpp"
#include "support/sanitized.hpp"

namespace hpcomm::testing {
namespace {

// A precondition, because --run_test of an outer suite runs what enable_if has disabled.
boost::test_tools::assertion_result memory_is_not_shadowed(boost::unit_test::test_unit_id) {
  boost::test_tools::assertion_result allowed(!kIsSanitized);
  if (kIsSanitized) allowed.message() << "sanitizers keep shadow memory of every page";
  return allowed;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(collectives)
BOOST_AUTO_TEST_SUITE(large, *boost::unit_test::precondition(memory_is_not_shadowed))

namespace {

constexpr std::size_t kPeriod = RepeatedMemory::kPeriod;
// Two ranks' parts of it are whole periods as well.
constexpr std::size_t kCount = (std::size_t{1} << 31U) + 2 * kPeriod;

std::byte pattern(int rank, std::size_t i) {
  return static_cast<std::byte>(mixed(3, static_cast<std::uint64_t>(rank), i % kPeriod));
}

void fill(RepeatedMemory& memory, int rank) {
  for (std::size_t i = 0; i < kPeriod; ++i) memory.data()[i] = pattern(rank, i);
}

template <class Wanted>
void require_content(RepeatedMemory& memory, const Wanted& wanted) {
  for (std::size_t i = 0; i < kPeriod; ++i)
    require(memory.data()[i] == wanted(i), "wrong byte at " + std::to_string(i));
}

}  // namespace

BOOST_AUTO_TEST_CASE(allreduce_of_more_than_two_to_the_31_elements) {
  for (const char* algorithm : {"shared", "ring"})
    HPCOMM_TEST_RUNS(run_ranks(2, [&](RankScope& scope) {
      RepeatedMemory send(kCount);
      RepeatedMemory recv(kCount);
      fill(send, scope.rank);
      call(scope,
           allreduce_request(send.buffer(), recv.buffer(), DType::u8, ReduceOp::sum,
                             scope.patient()),
           algorithm);
      require_content(recv, [](std::size_t i) {
        return static_cast<std::byte>(std::to_integer<int>(pattern(0, i)) +
                                      std::to_integer<int>(pattern(1, i)));
      });
      require(scope.endpoint.counters().bytes_sent + scope.endpoint.counters().bytes_read_shared >=
                  kCount,
              "too few bytes were moved");
    }));
}

BOOST_AUTO_TEST_CASE(broadcast_of_more_than_two_to_the_31_elements) {
  for (const char* algorithm : {"shared", "binomial"})
    HPCOMM_TEST_RUNS(run_ranks(2, [&](RankScope& scope) {
      RepeatedMemory data(kCount);
      fill(data, scope.rank);
      call(scope,
           {.kind = Collective::broadcast,
            .send = data.buffer(),
            .recv = data.buffer(),
            .count = kCount,
            .root = 1,
            .deadline = scope.patient()},
           algorithm);
      require_content(data, [](std::size_t i) { return pattern(1, i); });
    }));
}

BOOST_AUTO_TEST_SUITE_END()
BOOST_AUTO_TEST_SUITE_END()

}  // namespace hpcomm::testing
