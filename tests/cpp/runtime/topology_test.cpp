#include "runtime/topology.hpp"

#include <boost/test/unit_test.hpp>

namespace hpcomm::testing {

BOOST_AUTO_TEST_SUITE(runtime)
BOOST_AUTO_TEST_SUITE(topology)

namespace {

using Matrix = std::vector<std::vector<bool>>;

Matrix all(std::size_t size) { return Matrix(size, std::vector<bool>(size, true)); }

}  // namespace

BOOST_AUTO_TEST_CASE(ranks_that_all_reach_each_other_are_one_node) {
  const NodeLayout layout = agree_on_nodes(all(4), {-1, -1, -1, -1});
  BOOST_TEST(layout.num_nodes == 1);
  BOOST_TEST(layout.node_of == (std::vector<int>{0, 0, 0, 0}), boost::test_tools::per_element());
  BOOST_TEST(layout.local_rank(3) == 3);
  BOOST_TEST(layout.local_size(0) == 4);
}

BOOST_AUTO_TEST_CASE(pretended_nodes_part_ranks_that_reach_each_other) {
  const NodeLayout layout = agree_on_nodes(all(5), {0, 1, 0, 1, 2});
  BOOST_TEST(layout.node_of == (std::vector<int>{0, 1, 0, 1, 2}), boost::test_tools::per_element());
  BOOST_TEST(layout.local_rank(2) == 1);
  BOOST_TEST(layout.ranks_of(1) == (std::vector<int>{1, 3}), boost::test_tools::per_element());
  BOOST_TEST(layout.same_node(0, 2));
  BOOST_TEST(!layout.same_node(0, 1));
}

BOOST_AUTO_TEST_CASE(a_mapping_that_worked_in_one_direction_only_does_not_count) {
  Matrix reaches = all(3);
  reaches[0][1] = false;
  const NodeLayout layout = agree_on_nodes(reaches, {-1, -1, -1});
  BOOST_TEST(layout.node_of == (std::vector<int>{0, 1, 0}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(a_node_is_a_clique) {
  // 0-1 and 1-2 share memory, 0-2 do not.
  Matrix reaches = all(3);
  reaches[0][2] = reaches[2][0] = false;
  const NodeLayout layout = agree_on_nodes(reaches, {-1, -1, -1});
  BOOST_TEST(layout.node_of == (std::vector<int>{0, 0, 1}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_SUITE_END()
BOOST_AUTO_TEST_SUITE_END()

}  // namespace hpcomm::testing
