// Which ranks share memory with which: agreed by all ranks from mappings that succeeded.
#pragma once

#include <vector>

namespace hpcomm {

/// Nodes are numbered in the order of their smallest rank.
struct NodeLayout {
  std::vector<int> node_of;  ///< by rank
  int num_nodes = 1;

  int size() const noexcept { return static_cast<int>(node_of.size()); }
  bool same_node(int a, int b) const {
    return node_of.at(static_cast<std::size_t>(a)) == node_of.at(static_cast<std::size_t>(b));
  }
  /// The ranks of `node`, ascending.
  std::vector<int> ranks_of(int node) const;
  /// Position of `rank` among the ranks of its node.
  int local_rank(int rank) const;
  int local_size(int rank) const;
};

/// `reaches[a][b]` says whether rank a could map rank b's memory. A node is a clique of ranks that
/// all reach each other and have equal `fake_node` (-1 where nodes are real); built greedily in
/// rank order, so every rank computes the same.
NodeLayout agree_on_nodes(const std::vector<std::vector<bool>>& reaches,
                          const std::vector<int>& fake_node);

}  // namespace hpcomm
