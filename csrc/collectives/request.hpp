// The arguments of any collective, in one struct.
#pragma once

#include <span>

#include "core/buffer.hpp"
#include "core/dtype.hpp"
#include "core/surroundings.hpp"
#include "transport/shared_group.hpp"

namespace hpcomm {

struct CollectiveRequest {
  Collective kind = Collective::barrier;
  ConstBuffer send{};  // may be the same memory as `recv` (in place), never a partial overlap
  Buffer recv{};
  DType dtype = DType::u8;
  ReduceOp op = ReduceOp::sum;
  /// Elements: of the whole vector for allreduce and broadcast, of this rank's part for allgather
  /// and reduce_scatter where `counts` is empty.
  std::size_t count = 0;
  int root = -1;
  /// allgather(v), reduce_scatter(v): elements of each rank's part; empty means `count` each.
  std::span<const std::size_t> counts{};
  Deadline deadline{};
};

}  // namespace hpcomm
