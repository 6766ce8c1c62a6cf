// The binomial tree in which a rank that has the data passes it on in every round.
#pragma once

#include <bit>
#include <vector>

namespace hpcomm {

struct BinomialNode {
  int parent = -1;            // -1 for the root
  std::vector<int> children;  // those with the largest subtrees first
};

/// Ranks are numbered from `root` on: position v's parent clears v's lowest bit.
inline BinomialNode binomial_node(int rank, int root, int size) {
  const unsigned n = static_cast<unsigned>(size);
  const unsigned start = static_cast<unsigned>(root);
  const unsigned position = (static_cast<unsigned>(rank) + n - start) % n;
  const auto rank_at = [&](unsigned v) { return static_cast<int>((v + start) % n); };
  BinomialNode node;
  unsigned bit = std::bit_ceil(n);
  if (position != 0) {
    bit = position & (~position + 1U);
    node.parent = rank_at(position - bit);
  }
  for (bit >>= 1U; bit > 0; bit >>= 1U)
    if (position + bit < n) node.children.push_back(rank_at(position + bit));
  return node;
}

}  // namespace hpcomm
