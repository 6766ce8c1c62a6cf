#include "collectives/reduce_scatter/exchange.hpp"
#include "collectives/reduce_scatter/shared.hpp"
#include "collectives/shared_phases.hpp"
#include "collectives/tables.hpp"

namespace hpcomm {
namespace {

double share_of_others(int size, std::size_t nbytes) {
  return static_cast<double>(nbytes) * (size - 1) / size;
}

constexpr Algorithm kTable[] = {
    {.name = "ring",
     .summary = "parts travel once around, each rank adds its own",
     .source = "Patarasuk and Yuan, JPDC 2009",
     .order = SumOrder::by_position,
     .accumulates_wide = false,
     .agrees_itself = false,
     .supports = supports_any,
     .steps = [](int size, std::size_t nbytes) { return (size - 1) * ring_segments(size, nbytes); },
     .bytes = share_of_others,
     .run =
         [](Endpoint& endpoint, const CollectiveRequest& request, const Signature&) {
           ring_reduce_scatter(endpoint, request, parts_of(request, endpoint.size()),
                               request.send.data, request.recv.data);
         }},
    {.name = "direct",
     .summary = "each rank sends every part straight to its owner, who adds in rank order",
     .source = "pairwise exchange; Thakur, Rabenseifner and Gropp, IJHPCA 2005",
     .order = SumOrder::by_rank,
     .accumulates_wide = true,
     .agrees_itself = false,
     .supports = supports_any,
     .steps = [](int size,
                 std::size_t nbytes) { return (size - 1) * direct_segments(size, nbytes); },
     .bytes = share_of_others,
     .run =
         [](Endpoint& endpoint, const CollectiveRequest& request, const Signature&) {
           direct_reduce_scatter(endpoint, request, parts_of(request, endpoint.size()),
                                 request.send.data, request.recv.data);
         }},
    {.name = "shared",
     .summary = "staged in shared memory, each rank adds its part in rank order",
     .source = "one-shot staging with monotone counters",
     .order = SumOrder::by_rank,
     .accumulates_wide = true,
     .agrees_itself = true,
     .supports = supports_shared,
     .steps =
         [](int size, std::size_t nbytes) {
           const std::size_t ranks = static_cast<std::size_t>(size);
           const std::size_t room = SharedPhases::kChunkBytes / ranks / 64 * 64;
           return static_cast<double>(num_windows(room, (nbytes + ranks - 1) / ranks));
         },
     .bytes = share_of_others,
     .run = shared_reduce_scatter},
};

}  // namespace

std::span<const Algorithm> reduce_scatter_algorithms() { return kTable; }

}  // namespace hpcomm
