#include "collectives/barrier/dissemination.hpp"
#include "collectives/barrier/shared.hpp"
#include "collectives/patterns/dissemination.hpp"
#include "collectives/tables.hpp"

namespace hpcomm {
namespace {

double no_bytes(int, std::size_t) { return 0; }

constexpr Algorithm kTable[] = {
    {.name = "dissemination",
     .summary = "in round k each rank tells the one 2^k ahead",
     .source = "Hensgen, Finkel and Manber, IJPP 1988",
     .order = SumOrder::none,
     .accumulates_wide = false,
     .agrees_itself = false,
     .supports = supports_any,
     .steps = [](int size,
                 std::size_t) { return static_cast<double>(dissemination::num_rounds(size)); },
     .bytes = no_bytes,
     .run = dissemination_barrier},
    {.name = "shared",
     .summary = "one phase of the control lines",
     .source = "one counter per rank",
     .order = SumOrder::none,
     .accumulates_wide = false,
     .agrees_itself = true,
     .supports = supports_shared,
     .steps = [](int, std::size_t) { return 1.0; },
     .bytes = no_bytes,
     .run = shared_barrier},
};

}  // namespace

std::span<const Algorithm> barrier_algorithms() { return kTable; }

}  // namespace hpcomm
