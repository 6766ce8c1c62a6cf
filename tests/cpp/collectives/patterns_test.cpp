// The rank arithmetic, without any rank.
#include <boost/test/unit_test.hpp>
#include <set>

#include "collectives/patterns/binomial_tree.hpp"
#include "collectives/patterns/dissemination.hpp"
#include "collectives/patterns/parts.hpp"
#include "collectives/patterns/recursive_doubling.hpp"
#include "collectives/patterns/ring.hpp"

namespace hpcomm::testing {

BOOST_AUTO_TEST_SUITE(collectives)
BOOST_AUTO_TEST_SUITE(patterns)

namespace {

using Ranks = std::vector<int>;

}  // namespace

BOOST_AUTO_TEST_CASE(even_parts_cover_the_vector_and_differ_by_one_at_most) {
  for (const std::size_t total : {0UL, 1UL, 4UL, 5UL, 6UL, 10'000'000'019UL})
    for (int size = 1; size <= 7; ++size) {
      const Parts parts = Parts::even(total, size);
      std::size_t next = 0;
      for (int part = 0; part < size; ++part) {
        BOOST_TEST(parts.offset(part) == next);
        next += parts.count(part);
        BOOST_TEST(parts.largest() - parts.count(part) <= 1U);
      }
      BOOST_TEST(next == total);
      BOOST_TEST(parts.total() == total);
    }
  BOOST_TEST(Parts::even(10, 4).offset(2) == 6U);  // 3, 3, 2, 2
}

BOOST_AUTO_TEST_CASE(parts_as_given) {
  const std::size_t counts[] = {3, 0, 5'000'000'000, 2};
  const Parts parts = Parts::of_counts(counts);
  BOOST_TEST(parts.offset(2) == 3U);
  BOOST_TEST(parts.count(1) == 0U);
  BOOST_TEST(parts.total() == 5'000'000'005U);
  BOOST_TEST(parts.largest() == 5'000'000'000U);
  BOOST_TEST(Parts::uniform(3'000'000'000U, 3).offset(2) == 6'000'000'000U);
}

BOOST_AUTO_TEST_CASE(windows_cover_and_never_leave_the_whole) {
  BOOST_TEST(num_windows(10, 0) == 1U);
  BOOST_TEST(num_windows(10, 10) == 1U);
  BOOST_TEST(num_windows(10, 11) == 2U);
  BOOST_TEST(window_of(1, 10, 11).begin == 10U);
  BOOST_TEST(window_of(1, 10, 11).count == 1U);
  BOOST_TEST(window_of(7, 10, 11).begin == 11U);
  BOOST_TEST(window_of(7, 10, 11).count == 0U);
}

BOOST_AUTO_TEST_CASE(ring_reduce_scatter_adds_every_rank_once_and_ends_at_the_owner) {
  for (int size = 1; size <= 6; ++size) {
    // What each rank holds of each part: the ranks that were added, in order.
    std::vector<std::vector<Ranks>> held(static_cast<std::size_t>(size));
    for (int rank = 0; rank < size; ++rank)
      held[static_cast<std::size_t>(rank)].assign(static_cast<std::size_t>(size), {rank});
    for (int step = 0; step < ring::num_steps(size); ++step) {
      auto next = held;
      for (int rank = 0; rank < size; ++rank) {
        const int from = ring::predecessor(rank, size);
        const int part = ring::reduce_recv(rank, step, size);
        BOOST_TEST(part == ring::reduce_send(from, step, size));
        Ranks partial = held[static_cast<std::size_t>(from)][static_cast<std::size_t>(part)];
        partial.push_back(rank);
        next[static_cast<std::size_t>(rank)][static_cast<std::size_t>(part)] = partial;
      }
      held = next;
    }
    for (int rank = 0; rank < size; ++rank) {
      const Ranks& own = held[static_cast<std::size_t>(rank)][static_cast<std::size_t>(rank)];
      Ranks wanted;
      for (int i = 1; i <= size; ++i) wanted.push_back((rank + i) % size);
      BOOST_TEST(own == wanted, boost::test_tools::per_element());
    }
  }
}

BOOST_AUTO_TEST_CASE(ring_allgather_sends_only_what_it_has_and_leaves_nothing_out) {
  for (int size = 1; size <= 6; ++size) {
    std::vector<std::set<int>> has(static_cast<std::size_t>(size));
    for (int rank = 0; rank < size; ++rank) has[static_cast<std::size_t>(rank)] = {rank};
    for (int step = 0; step < ring::num_steps(size); ++step) {
      const auto before = has;
      for (int rank = 0; rank < size; ++rank) {
        const int from = ring::predecessor(rank, size);
        const int part = ring::gather_recv(rank, step, size);
        BOOST_TEST(part == ring::gather_send(from, step, size));
        BOOST_TEST(before[static_cast<std::size_t>(from)].count(part) == 1U);
        BOOST_TEST(has[static_cast<std::size_t>(rank)].insert(part).second);
      }
    }
    for (const std::set<int>& parts : has)
      BOOST_TEST(parts.size() == static_cast<std::size_t>(size));
  }
}

BOOST_AUTO_TEST_CASE(dissemination_reaches_everybody_in_log_rounds) {
  const int rounds[] = {0, 0, 1, 2, 2, 3, 3, 3, 3, 4};
  for (int size = 1; size <= 9; ++size) {
    BOOST_TEST(dissemination::num_rounds(size) == rounds[size]);
    std::vector<std::set<int>> heard(static_cast<std::size_t>(size));
    for (int rank = 0; rank < size; ++rank) heard[static_cast<std::size_t>(rank)] = {rank};
    for (int round = 0; round < dissemination::num_rounds(size); ++round) {
      const auto before = heard;
      for (int rank = 0; rank < size; ++rank) {
        const int from = dissemination::from(rank, round, size);
        BOOST_TEST(dissemination::to(from, round, size) == rank);
        BOOST_TEST(from != rank);
        const auto& news = before[static_cast<std::size_t>(from)];
        heard[static_cast<std::size_t>(rank)].insert(news.begin(), news.end());
      }
    }
    for (const auto& of_rank : heard) BOOST_TEST(of_rank.size() == static_cast<std::size_t>(size));
  }
}

BOOST_AUTO_TEST_CASE(binomial_trees_literally) {
  const BinomialNode root = binomial_node(0, 0, 5);
  BOOST_TEST(root.parent == -1);
  BOOST_TEST(root.children == Ranks({4, 2, 1}), boost::test_tools::per_element());
  BOOST_TEST(binomial_node(2, 0, 5).children == Ranks({3}), boost::test_tools::per_element());
  BOOST_TEST(binomial_node(3, 0, 5).parent == 2);
  const BinomialNode moved = binomial_node(3, 3, 5);  // positions 0 … 4 are ranks 3, 4, 0, 1, 2
  BOOST_TEST(moved.children == Ranks({2, 0, 4}), boost::test_tools::per_element());
  BOOST_TEST(binomial_node(1, 3, 5).parent == 0);
  BOOST_TEST(binomial_node(0, 0, 1).children.empty());
}

BOOST_AUTO_TEST_CASE(binomial_trees_are_trees) {
  for (int size = 1; size <= 17; ++size)
    for (int root = 0; root < size; ++root) {
      std::size_t edges = 0;
      for (int rank = 0; rank < size; ++rank) {
        for (const int child : binomial_node(rank, root, size).children) {
          BOOST_TEST(binomial_node(child, root, size).parent == rank);
          ++edges;
        }
        int at = rank;
        for (int steps = 0; at != root && steps < size; ++steps)
          at = binomial_node(at, root, size).parent;
        BOOST_TEST(at == root);
      }
      BOOST_TEST(edges == static_cast<std::size_t>(size - 1));
    }
}

BOOST_AUTO_TEST_CASE(doubling_plans_literally) {
  const DoublingPlan active = doubling_plan(0, 6);  // 0 and 2 take over 1 and 3
  BOOST_TEST(active.folded == 1);
  BOOST_TEST(active.partners == Ranks({2, 4}), boost::test_tools::per_element());
  BOOST_TEST(doubling_plan(3, 6).folds_into == 2);
  BOOST_TEST(doubling_plan(3, 6).partners.empty());
  BOOST_TEST(doubling_plan(5, 6).partners == Ranks({4, 2}), boost::test_tools::per_element());
  BOOST_TEST(doubling_plan(5, 8).partners == Ranks({4, 7, 1}), boost::test_tools::per_element());
  BOOST_TEST(doubling_steps(1) == 0);
  BOOST_TEST(doubling_steps(5) == 4);
  BOOST_TEST(doubling_steps(8) == 3);
}

BOOST_AUTO_TEST_CASE(doubling_partners_are_mutual_and_collect_everybody_once) {
  for (int size = 1; size <= 17; ++size) {
    std::vector<std::multiset<int>> has(static_cast<std::size_t>(size));
    std::vector<DoublingPlan> plans;
    std::size_t rounds = 0;
    for (int rank = 0; rank < size; ++rank) {
      plans.push_back(doubling_plan(rank, size));
      rounds = std::max(rounds, plans.back().partners.size());
      has[static_cast<std::size_t>(rank)] = {rank};
      if (plans.back().folded >= 0) {
        BOOST_TEST(doubling_plan(plans.back().folded, size).folds_into == rank);
        has[static_cast<std::size_t>(rank)].insert(plans.back().folded);
      }
    }
    for (std::size_t round = 0; round < rounds; ++round) {
      const auto before = has;
      for (int rank = 0; rank < size; ++rank) {
        const DoublingPlan& plan = plans[static_cast<std::size_t>(rank)];
        if (plan.folds_into >= 0) continue;
        const int partner = plan.partners[round];
        BOOST_TEST(plans[static_cast<std::size_t>(partner)].partners[round] == rank);
        const auto& theirs = before[static_cast<std::size_t>(partner)];
        has[static_cast<std::size_t>(rank)].insert(theirs.begin(), theirs.end());
      }
    }
    for (int rank = 0; rank < size; ++rank) {
      if (plans[static_cast<std::size_t>(rank)].folds_into >= 0) continue;
      const auto& all = has[static_cast<std::size_t>(rank)];
      BOOST_TEST(all.size() == static_cast<std::size_t>(size));
      BOOST_TEST(std::set<int>(all.begin(), all.end()).size() == all.size());
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()
BOOST_AUTO_TEST_SUITE_END()

}  // namespace hpcomm::testing
