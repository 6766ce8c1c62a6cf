#include <bit>

#include "collectives/allreduce/algorithms.hpp"
#include "collectives/patterns/recursive_doubling.hpp"
#include "collectives/reduce_scatter/exchange.hpp"
#include "collectives/shared_phases.hpp"
#include "collectives/tables.hpp"

namespace hpcomm {
namespace {

double twice_share_of_others(int size, std::size_t nbytes) {
  return 2 * static_cast<double>(nbytes) * (size - 1) / size;
}

bool in_two_shots(int size, std::size_t nbytes) {
  return size >= 3 && nbytes >= kSharedTwoShotBytes;
}

double doubling_bytes(int size, std::size_t nbytes) {
  const unsigned ranks = static_cast<unsigned>(size);
  const int vectors = std::bit_width(ranks) - 1 + (std::has_single_bit(ranks) ? 0 : 1);
  return vectors * static_cast<double>(nbytes);
}

constexpr Algorithm kTable[] = {
    {.name = "ring",
     .summary = "ring reduce-scatter, then ring allgather",
     .source = "Patarasuk and Yuan, JPDC 2009",
     .order = SumOrder::by_position,
     .accumulates_wide = false,
     .agrees_itself = false,
     .supports = supports_any,
     .steps = [](int size,
                 std::size_t nbytes) { return (size - 1) * (ring_segments(size, nbytes) + 1); },
     .bytes = twice_share_of_others,
     .run = ring_allreduce},
    {.name = "recursive_doubling",
     .summary = "whole vectors exchanged at distances 1, 2, 4 …",
     .source = "Thakur, Rabenseifner and Gropp, IJHPCA 2005",
     .order = SumOrder::by_tree,
     .accumulates_wide = false,
     .agrees_itself = false,
     .supports = supports_any,
     .steps = [](int size, std::size_t) { return static_cast<double>(doubling_steps(size)); },
     .bytes = doubling_bytes,
     .run = doubling_allreduce},
    {.name = "direct",
     .summary = "direct reduce-scatter in rank order, then ring allgather",
     .source = "Thakur, Rabenseifner and Gropp, IJHPCA 2005",
     .order = SumOrder::by_rank,
     .accumulates_wide = true,
     .agrees_itself = false,
     .supports = supports_any,
     .steps = [](int size,
                 std::size_t nbytes) { return (size - 1) * (direct_segments(size, nbytes) + 1); },
     .bytes = twice_share_of_others,
     .run = direct_allreduce},
    {.name = "shared",
     .summary = "staged in shared memory, reduced in rank order; slices from three ranks on",
     .source = "staged one-shot and two-shot reductions with monotone counters",
     .order = SumOrder::by_rank,
     .accumulates_wide = true,
     .agrees_itself = true,
     .supports = supports_shared,
     .steps =
         [](int size, std::size_t nbytes) {
           const double chunks =
               static_cast<double>(num_windows(SharedPhases::kChunkBytes, nbytes));
           return in_two_shots(size, nbytes) ? 2 * chunks : chunks;
         },
     .bytes =
         [](int size, std::size_t nbytes) {
           return in_two_shots(size, nbytes) ? twice_share_of_others(size, nbytes)
                                             : (size - 1) * static_cast<double>(nbytes);
         },
     .run = shared_allreduce},
};

}  // namespace

std::span<const Algorithm> allreduce_algorithms() { return kTable; }

}  // namespace hpcomm
