// The arguments of any collective, in one struct.
#pragma once

#include <cstddef>
#include <cstring>
#include <span>
#include <string>

#include "collectives/patterns/parts.hpp"
#include "core/buffer.hpp"
#include "core/dtype.hpp"
#include "core/surroundings.hpp"
#include "transport/shared_group.hpp"

namespace hpcomm {

/// `send` and `recv` never overlap but for work in place:
///   allreduce, broadcast  recv is send (the root of a broadcast then writes nothing)
///   allgather             send is this rank's part of recv
///   reduce_scatter        recv is this rank's part of send; the other parts stay as they are
/// A broadcast reads `send` on its root alone and writes `recv` everywhere else.
struct CollectiveRequest {
  Collective kind = Collective::barrier;
  ConstBuffer send{};
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

/// The ranks' parts of an allgather or reduce_scatter.
inline Parts parts_of(const CollectiveRequest& request, int size) {
  return request.counts.empty() ? Parts::uniform(request.count, size)
                                : Parts::of_counts(request.counts);
}

/// Elements of the whole vector.
std::size_t total_count(const CollectiveRequest& request, int size);

/// "allreduce of 4096 bytes"; for messages.
std::string describe(const CollectiveRequest& request, int size);

/// memcpy that does nothing for equal places and for no bytes.
inline void copy_bytes(std::byte* to, const std::byte* from, std::size_t nbytes) noexcept {
  if (nbytes > 0 && to != from) std::memcpy(to, from, nbytes);
}

}  // namespace hpcomm
