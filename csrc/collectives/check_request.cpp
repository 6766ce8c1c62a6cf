#include "collectives/check_request.hpp"

#include <cstdint>
#include <functional>
#include <limits>

#include "core/error.hpp"
#include "reduce/reduce.hpp"

namespace hpcomm {
namespace {

/// Bytes that a request's buffers must have, and where the overlap of work in place begins.
struct Extent {
  std::size_t send = 0;
  std::size_t recv = 0;
  std::size_t send_offset = 0;  // of what `recv` may lie on, in `send`
  std::size_t recv_offset = 0;  // of what `send` may lie on, in `recv`
};

Extent extent_of(const CollectiveRequest& request, int rank, int size) {
  const std::size_t width = size_bytes(request.dtype);
  const std::size_t whole = total_count(request, size) * width;
  switch (request.kind) {
    case Collective::barrier:
      return {};
    case Collective::allreduce:
      return {.send = whole, .recv = whole};
    case Collective::broadcast:
      return rank == request.root ? Extent{.send = whole} : Extent{.recv = whole};
    case Collective::allgather: {
      const Parts parts = parts_of(request, size);
      return {.send = parts.count(rank) * width,
              .recv = whole,
              .recv_offset = parts.offset(rank) * width};
    }
    case Collective::reduce_scatter: {
      const Parts parts = parts_of(request, size);
      return {.send = whole,
              .recv = parts.count(rank) * width,
              .send_offset = parts.offset(rank) * width};
    }
  }
  return {};
}

bool multiplies_safely(const CollectiveRequest& request, int size) {
  std::size_t room = std::numeric_limits<std::size_t>::max() / size_bytes(request.dtype);
  if (request.counts.empty()) return request.count <= room / static_cast<std::size_t>(size);
  for (const std::size_t count : request.counts) {
    if (count > room) return false;
    room -= count;
  }
  return true;
}

}  // namespace

void check_request(const CollectiveRequest& request, int rank, int size, const std::string& name) {
  const auto call = [&] { return std::string(name_of(request.kind)) + " on '" + name + "'"; };
  const bool reduces =
      request.kind == Collective::allreduce || request.kind == Collective::reduce_scatter;
  HPCOMM_CHECK(!reduces || is_defined(request.op, request.dtype), Errc::unsupported, call(),
               ": op '", name_of(request.op), "' has no exact meaning for dtype ",
               name_of(request.dtype), " (rank ", rank,
               "); take op 'sum' and divide as you need, or pass a floating-point array");
  HPCOMM_CHECK(request.kind != Collective::broadcast || (request.root >= 0 && request.root < size),
               Errc::invalid_argument, call(), ": root must be a rank from 0 to ", size - 1,
               "; rank ", rank, " passed ", request.root);
  const bool has_counts = !request.counts.empty();
  HPCOMM_CHECK(!has_counts || static_cast<int>(request.counts.size()) == size,
               Errc::invalid_argument, call(), ": counts must have one entry per rank, ", size,
               "; rank ", rank, " passed ", request.counts.size());
  HPCOMM_CHECK(multiplies_safely(request, size), Errc::invalid_argument, call(), ": rank ", rank,
               " passed counts whose sum no memory can hold");

  const Extent extent = extent_of(request, rank, size);
  const auto check_buffer = [&](const char* what, const std::byte* data, std::size_t nbytes,
                                std::size_t needed) {
    HPCOMM_CHECK(needed == 0 || (data != nullptr && nbytes == needed), Errc::invalid_argument,
                 call(), ": the ", what, " buffer of rank ", rank, " must have ", needed,
                 " bytes; it has ", data == nullptr ? 0 : nbytes);
  };
  check_buffer("send", request.send.data, request.send.nbytes, extent.send);
  check_buffer("receive", request.recv.data, request.recv.nbytes, extent.recv);
  if (extent.send == 0 || extent.recv == 0) return;

  const std::byte* send = request.send.data;
  const std::byte* recv = request.recv.data;
  if (send + extent.send_offset == recv + extent.recv_offset) return;  // in place
  const std::less_equal<> before;
  HPCOMM_CHECK(before(send + extent.send, recv) || before(recv + extent.recv, send),
               Errc::invalid_argument, call(), ": the buffers of rank ", rank,
               " overlap in part; work in place, or on separate memory");
}

}  // namespace hpcomm
