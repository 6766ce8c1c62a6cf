// An algorithm is a row of a table. Its steps and bytes are functions that tests count on the
// loopback transport and that a cost model can read; its order and width say what is promised about
// rounding.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "collectives/request.hpp"
#include "transport/endpoint.hpp"

namespace hpcomm {

/// In which order the contributions of the ranks are combined to one element. All declared orders
/// give bitwise equal results on all ranks and do not depend on timing.
enum class SumOrder {
  by_rank,      ///< 0, 1, … p-1: the same for any chunking and for any place in a fused buffer
  by_tree,      ///< another order, but the same for every element
  by_position,  ///< depends on where in the vector the element lies
  none,         ///< nothing is combined
};

constexpr std::string_view name_of(SumOrder order) noexcept {
  constexpr std::string_view names[] = {"by rank", "by tree", "by position", "none"};
  return names[static_cast<int>(order)];
}

/// What supports() may look at: equal on all ranks, so that all choose alike.
struct Situation {
  int size = 1;           // ranks
  std::size_t count = 0;  // elements of the whole vector
  DType dtype = DType::u8;
  ReduceOp op = ReduceOp::sum;
  bool shared = false;  // the whole communicator shares memory

  std::size_t nbytes() const noexcept { return count * size_bytes(dtype); }
};

/// In the functions below `nbytes` is the size of the whole vector: of a rank's input for
/// allreduce, reduce_scatter and broadcast, of the result for allgather.
struct Algorithm {
  std::string_view name;
  std::string_view summary;
  std::string_view source;
  SumOrder order;
  bool accumulates_wide;  ///< fp16 and bf16 are added in fp32 and rounded once
  /// run() itself compares the signatures of all ranks before it touches a buffer. The others run
  /// after an agreement (agreement.hpp).
  bool agrees_itself;
  bool (*supports)(const Situation&);
  /// Messages, one after another, on the longest chain of dependent ones, where a rank sends one at
  /// a time; for shared memory: phases, each of which waits for all ranks.
  double (*steps)(int size, std::size_t nbytes);
  /// Bytes that the busiest rank sends, or reads from the memory of other ranks.
  double (*bytes)(int size, std::size_t nbytes);
  /// `signature` is what agreement is about; only those that agree themselves look at it.
  void (*run)(Endpoint&, const CollectiveRequest&, const Signature& signature);
};

/// The table of one collective, in the order of their indices.
std::span<const Algorithm> algorithms_of(Collective kind);

}  // namespace hpcomm
