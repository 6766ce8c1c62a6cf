#include "collectives/tables.hpp"

namespace hpcomm {

std::span<const Algorithm> algorithms_of(Collective kind) {
  switch (kind) {
    case Collective::barrier:
      return barrier_algorithms();
    case Collective::broadcast:
      return broadcast_algorithms();
    case Collective::allreduce:
      return allreduce_algorithms();
    case Collective::allgather:
      return allgather_algorithms();
    case Collective::reduce_scatter:
      return reduce_scatter_algorithms();
  }
  return {};
}

}  // namespace hpcomm
