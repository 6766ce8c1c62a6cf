#include "collectives/allgather/exchange.hpp"
#include "collectives/allgather/shared.hpp"
#include "collectives/shared_phases.hpp"
#include "collectives/tables.hpp"

namespace hpcomm {
namespace {

double share_of_others(int size, std::size_t nbytes) {
  return static_cast<double>(nbytes) * (size - 1) / size;
}

constexpr Algorithm kTable[] = {
    {.name = "ring",
     .summary = "each rank passes on what it received last",
     .source = "Patarasuk and Yuan, JPDC 2009",
     .order = SumOrder::none,
     .accumulates_wide = false,
     .agrees_itself = false,
     .supports = supports_any,
     .steps = [](int size, std::size_t) { return static_cast<double>(size - 1); },
     .bytes = share_of_others,
     .run =
         [](Endpoint& endpoint, const CollectiveRequest& request, const Signature&) {
           const Parts parts = parts_of(request, endpoint.size());
           const std::size_t width = size_bytes(request.dtype);
           copy_bytes(request.recv.data + parts.offset(endpoint.rank()) * width, request.send.data,
                      parts.count(endpoint.rank()) * width);
           ring_allgather(endpoint, request, parts, request.recv.data);
         }},
    {.name = "shared",
     .summary = "staged in shared memory, each rank copies the parts of all others",
     .source = "staging with monotone counters",
     .order = SumOrder::none,
     .accumulates_wide = false,
     .agrees_itself = true,
     .supports = supports_shared,
     .steps =
         [](int size, std::size_t nbytes) {
           const std::size_t ranks = static_cast<std::size_t>(size);
           return static_cast<double>(
               num_windows(SharedPhases::kChunkBytes, (nbytes + ranks - 1) / ranks));
         },
     .bytes = share_of_others,
     .run = shared_allgather},
};

}  // namespace

std::span<const Algorithm> allgather_algorithms() { return kTable; }

}  // namespace hpcomm
