#include "collectives/request.hpp"

#include <numeric>

namespace hpcomm {

std::size_t total_count(const CollectiveRequest& request, int size) {
  if (!request.counts.empty())
    return std::accumulate(request.counts.begin(), request.counts.end(), std::size_t{0});
  const bool has_parts =
      request.kind == Collective::allgather || request.kind == Collective::reduce_scatter;
  return has_parts ? request.count * static_cast<std::size_t>(size) : request.count;
}

std::string describe(const CollectiveRequest& request, int size) {
  std::string text = name_of(request.kind);
  if (request.kind == Collective::barrier) return text;
  const std::size_t nbytes = total_count(request, size) * size_bytes(request.dtype);
  return text + " of " + std::to_string(nbytes) + " bytes";
}

}  // namespace hpcomm
