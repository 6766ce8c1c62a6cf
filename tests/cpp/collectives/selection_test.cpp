#include "collectives/selection.hpp"

#include <boost/test/unit_test.hpp>

#include "core/error.hpp"

namespace hpcomm::testing {

BOOST_AUTO_TEST_SUITE(collectives)
BOOST_AUTO_TEST_SUITE(selection)

namespace {

Situation situation(int size, std::size_t nbytes, bool shared) {
  return {.size = size, .count = nbytes, .shared = shared};
}

std::string chosen(const Selection& selection, Collective kind, const Situation& now) {
  return std::string(selection.choose(kind, now).name);
}

std::string refusal(const char* text) {
  try {
    Selection{text};
  } catch (const Error& error) {
    BOOST_TEST((error.code() == Errc::invalid_argument));
    return error.what();
  }
  return "accepted";
}

void check_contains(const std::string& text, const std::string& part) {
  BOOST_TEST(text.find(part) != std::string::npos, text << " lacks " << part);
}

}  // namespace

BOOST_AUTO_TEST_CASE(defaults_prefer_shared_memory_and_otherwise_the_order_of_ranks) {
  const Selection selection;
  for (int kind = 0; kind < kNumCollectives; ++kind)
    for (const std::size_t nbytes : {0UL, 100UL, 1UL << 40U})
      BOOST_TEST(chosen(selection, static_cast<Collective>(kind), situation(3, nbytes, true)) ==
                 "shared");
  const auto allreduce = [&](int size, std::size_t nbytes) {
    return chosen(selection, Collective::allreduce, situation(size, nbytes, false));
  };
  BOOST_TEST(allreduce(1, 100) == "direct");
  BOOST_TEST(allreduce(16, 100) == "direct");
  BOOST_TEST(allreduce(16, 1UL << 40U) == "direct");
  BOOST_TEST(allreduce(17, 16384) == "recursive_doubling");
  BOOST_TEST(allreduce(17, 16385) == "ring");
  BOOST_TEST(chosen(selection, Collective::barrier, situation(2, 0, false)) == "dissemination");
  BOOST_TEST(chosen(selection, Collective::broadcast, situation(2, 9, false)) == "binomial");
}

BOOST_AUTO_TEST_CASE(overrides_come_first_in_their_order_and_only_where_they_match) {
  const Selection selection(
      " allreduce : 1k - 64K : 2-3 ranks : ring ; allreduce:-1m:recursive_doubling;;"
      "barrier:-:dissemination;");
  const auto allreduce = [&](int size, std::size_t nbytes) {
    return chosen(selection, Collective::allreduce, situation(size, nbytes, true));
  };
  BOOST_TEST(allreduce(2, 1023) == "recursive_doubling");
  BOOST_TEST(allreduce(2, 1024) == "ring");
  BOOST_TEST(allreduce(3, 65536) == "ring");
  BOOST_TEST(allreduce(3, 65537) == "recursive_doubling");
  BOOST_TEST(allreduce(4, 2048) == "recursive_doubling");
  BOOST_TEST(allreduce(4, (1U << 20U) + 1) == "shared");
  BOOST_TEST(chosen(selection, Collective::barrier, situation(2, 0, true)) == "dissemination");
  BOOST_TEST(chosen(selection, Collective::allgather, situation(2, 0, true)) == "shared");
}

BOOST_AUTO_TEST_CASE(an_override_that_cannot_serve_a_call_is_passed_over) {
  const Selection selection("allreduce:-:shared");
  BOOST_TEST(chosen(selection, Collective::allreduce, situation(2, 9, true)) == "shared");
  BOOST_TEST(chosen(selection, Collective::allreduce, situation(2, 9, false)) == "direct");
}

BOOST_AUTO_TEST_CASE(malformed_overrides_are_refused_with_the_place_and_the_remedy) {
  check_contains(refusal("allsum:-:ring"), "expected a collective (barrier, broadcast, allreduce");
  check_contains(refusal("allsum:-:ring"), "at character 1, found 'allsum:-:ring'");
  check_contains(refusal("allreduce:-:rong"), "ring, recursive_doubling, direct, shared");
  check_contains(refusal("allreduce:-:rong"), "at character 13");
  check_contains(refusal("allreduce ring"), "expected ':' after the collective at character 11");
  check_contains(refusal("allreduce:5:ring"), "expected '-' between the two sizes");
  check_contains(refusal("allreduce:64k-1k:ring"), "largest size");
  check_contains(refusal("allreduce:-:2:ring"), "the word 'ranks'");
  check_contains(refusal("allreduce:-:3-2ranks:ring"), "number of ranks");
  check_contains(refusal("allreduce:-:0ranks:ring"), "number of ranks");
  check_contains(refusal("allreduce:-:ring barrier:-:shared"), "expected ';' or the end");
  check_contains(refusal("allreduce:99999999999999999999-:ring"), "expected a number");
  check_contains(refusal("allreduce:18446744073709551615g-:ring"), "a smaller size");
  check_contains(refusal("allreduce:-:"), "found the end");
  check_contains(refusal("allreduce:-:"), "HPCOMM_TUNE");
}

BOOST_AUTO_TEST_CASE(by_name_says_what_there_is_and_why_not_here) {
  BOOST_TEST(Selection::by_name(Collective::allreduce, "ring", situation(2, 1, false)).name ==
             "ring");
  try {
    Selection::by_name(Collective::broadcast, "ring", situation(2, 1, true));
    BOOST_ERROR("accepted");
  } catch (const Error& error) {
    BOOST_TEST((error.code() == Errc::invalid_argument));
    check_contains(error.what(), "no algorithm 'ring'; choose one of binomial, shared");
  }
  try {
    Selection::by_name(Collective::broadcast, "shared", situation(2, 1, false));
    BOOST_ERROR("accepted");
  } catch (const Error& error) {
    BOOST_TEST((error.code() == Errc::unsupported));
    check_contains(error.what(), "memory that all ranks of the communicator share");
  }
}

BOOST_AUTO_TEST_CASE(the_map_shows_rules_in_force_with_their_origin) {
  const Selection selection("allreduce:4k-1m:2ranks:ring");
  const std::string map = selection.map();
  check_contains(map, "allreduce       4k-1m           2       ring                by position ");
  check_contains(map, "override");
  check_contains(map,
                 "broadcast       0-max           any     binomial            -           default");
  check_contains(map, "1-16");
}

BOOST_AUTO_TEST_CASE(the_map_tells_apart_who_shares_memory_and_who_does_not) {
  const std::string map = Selection(
                              "allreduce:4k-1m:2ranks:ring;allreduce:8k-8k:2ranks:direct;"
                              "broadcast:-64k:shared")
                              .map();
  const std::size_t second = map.find("between nodes");
  BOOST_REQUIRE(second != std::string::npos);
  const auto count = [](std::string_view text, std::string_view word) {
    int found = 0;
    for (std::size_t at = text.find(word); at != std::string_view::npos;
         at = text.find(word, at + 1))
      ++found;
    return found;
  };
  const std::string within = map.substr(0, second);
  const std::string between = map.substr(second);
  check_contains(within, "where all ranks of the communicator share memory");
  // One row of each collective that serves everything, and the override before it.
  BOOST_TEST(count(within, " shared ") == 6);
  BOOST_TEST(count(within, " ring ") == 1);
  BOOST_TEST(count(within, "dissemination") == 0);
  BOOST_TEST(count(within, "\n") == 2 + 5 + 2 + 1);
  BOOST_TEST(count(between, " shared ") == 0);
  BOOST_TEST(count(between, "dissemination") == 1);
  // What no call can reach is not there: the second override lies within the first.
  BOOST_TEST(count(between, " direct ") == 2);
  BOOST_TEST(count(between, "\n") == 2 + 5 + 3 + 1);
}

BOOST_AUTO_TEST_SUITE_END()
BOOST_AUTO_TEST_SUITE_END()

}  // namespace hpcomm::testing
