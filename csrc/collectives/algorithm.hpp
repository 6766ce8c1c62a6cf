// An algorithm is a row of a table. Its steps and bytes are functions that tests count on the
// loopback transport and that the cost model of hpcomm.strategy reads; its order and width say what
// is promised about rounding.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "collectives/request.hpp"
#include "transport/endpoint.hpp"

namespace hpcomm {

/// In which order the contributions of the ranks are added to one element.
enum class SumOrder {
  by_rank,  // 0, 1, … p-1 on every rank: bitwise the same for any chunking, fusion layout and
            // timing
  fixed,    // another fixed order per element that depends on position; bitwise equal on all ranks
  not_declared,
};

/// What supports() may look at: equal on all ranks, so that all choose alike.
struct Situation {
  int size = 1;           // ranks
  std::size_t count = 0;  // elements
  DType dtype = DType::u8;
  ReduceOp op = ReduceOp::sum;
  bool shared = false;  // the whole communicator shares memory
};

struct Algorithm {
  std::string_view name;
  std::string_view summary;
  std::string_view source;
  SumOrder order;
  bool accumulates_wide;  // fp16 and bf16 in fp32, rounded once
  bool (*supports)(const Situation&);
  /// Longest chain of dependent messages (or waits) for `size` ranks and `nbytes` of one rank's
  /// whole vector.
  double (*steps)(int size, std::size_t nbytes);
  /// Bytes that the busiest rank sends (or reads from others' memory).
  double (*bytes)(int size, std::size_t nbytes);
  void (*run)(Endpoint&, const CollectiveRequest&);
};

/// The table of one collective, in the order of their indices.
std::span<const Algorithm> algorithms_of(Collective kind);

}  // namespace hpcomm
