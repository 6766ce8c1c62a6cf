#include "collectives/broadcast/binomial.hpp"
#include "collectives/broadcast/shared.hpp"
#include "collectives/patterns/dissemination.hpp"
#include "collectives/shared_phases.hpp"
#include "collectives/tables.hpp"

namespace hpcomm {
namespace {

double tree_depth(int size, std::size_t) {
  return static_cast<double>(dissemination::num_rounds(size));
}

constexpr Algorithm kTable[] = {
    {.name = "binomial",
     .summary = "a tree in which the number of ranks that have the data doubles",
     .source = "Thakur, Rabenseifner and Gropp, IJHPCA 2005",
     .order = SumOrder::none,
     .accumulates_wide = false,
     .agrees_itself = false,
     .supports = supports_any,
     .steps = tree_depth,
     .bytes = [](int size,
                 std::size_t nbytes) { return tree_depth(size, 0) * static_cast<double>(nbytes); },
     .run = binomial_broadcast},
    {.name = "shared",
     .summary = "the root stages chunks in shared memory, all others copy them",
     .source = "staging with monotone counters",
     .order = SumOrder::none,
     .accumulates_wide = false,
     .agrees_itself = true,
     .supports = supports_shared,
     .steps =
         [](int, std::size_t nbytes) {
           return static_cast<double>(num_windows(SharedPhases::kChunkBytes, nbytes));
         },
     .bytes = [](int size,
                 std::size_t nbytes) { return size > 1 ? static_cast<double>(nbytes) : 0.0; },
     .run = shared_broadcast},
};

}  // namespace

std::span<const Algorithm> broadcast_algorithms() { return kTable; }

}  // namespace hpcomm
