#include "runtime/topology.hpp"

#include <algorithm>

namespace hpcomm {

std::vector<int> NodeLayout::ranks_of(int node) const {
  std::vector<int> ranks;
  for (int rank = 0; rank < size(); ++rank)
    if (node_of[static_cast<std::size_t>(rank)] == node) ranks.push_back(rank);
  return ranks;
}

int NodeLayout::local_rank(int rank) const {
  const auto until = node_of.begin() + rank;
  return static_cast<int>(
      std::count(node_of.begin(), until, node_of.at(static_cast<std::size_t>(rank))));
}

int NodeLayout::local_size(int rank) const {
  return static_cast<int>(
      std::count(node_of.begin(), node_of.end(), node_of.at(static_cast<std::size_t>(rank))));
}

NodeLayout agree_on_nodes(const std::vector<std::vector<bool>>& reaches,
                          const std::vector<int>& fake_node) {
  std::vector<std::vector<std::size_t>> nodes;
  NodeLayout layout;
  for (std::size_t rank = 0; rank < reaches.size(); ++rank) {
    const auto belongs_to = [&](const std::vector<std::size_t>& members) {
      return std::all_of(members.begin(), members.end(), [&](std::size_t member) {
        return reaches[rank][member] && reaches[member][rank] &&
               fake_node[rank] == fake_node[member];
      });
    };
    auto node = std::find_if(nodes.begin(), nodes.end(), belongs_to);
    if (node == nodes.end()) node = nodes.emplace(nodes.end());
    node->push_back(rank);
    layout.node_of.push_back(static_cast<int>(node - nodes.begin()));
  }
  layout.num_nodes = static_cast<int>(nodes.size());
  return layout;
}

}  // namespace hpcomm
