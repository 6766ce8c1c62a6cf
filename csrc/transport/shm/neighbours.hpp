// Who can see whose memory: every rank makes its segment, tries to map all others', and tells how
// it went.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/process_watch.hpp"
#include "transport/shm/segment.hpp"

namespace hpcomm::shm {

/// Allgather of one byte string per rank; every rank calls it equally often.
using Allgather = std::function<std::vector<std::string>(const std::string&)>;

struct Neighbour {
  Segment segment;                      // empty where it could not be mapped
  std::shared_ptr<ProcessWatch> watch;  // null likewise
  std::string why_not;
};

/// What one rank knows of all, itself included, by rank.
struct Neighbourhood {
  int rank = 0;
  std::string name;  // of the communicator, for messages
  std::vector<Neighbour> ranks;

  int size() const noexcept { return static_cast<int>(ranks.size()); }
  Neighbour& at(int peer) noexcept { return ranks[static_cast<std::size_t>(peer)]; }
  const Neighbour& at(int peer) const noexcept { return ranks[static_cast<std::size_t>(peer)]; }
  Segment& own() noexcept { return at(rank).segment; }
  /// Lets go of the memory of `peer`.
  void forget(int peer) { at(peer) = Neighbour{}; }
};

struct Meeting {
  std::shared_ptr<Neighbourhood> neighbourhood;
  std::vector<std::vector<bool>>
      reaches;              // [a][b]: rank a mapped the segment of rank b; equal on all ranks
  std::uint64_t epoch = 0;  // a number that this group has and others do not
  std::vector<std::string> extras;  // what each rank passed
};

/// Collective. `routes` (rank 0's counts) lists the ways to try, in order: "proc", "socket",
/// "named". `extra` travels along with the first exchange. Throws the same Error on every rank if
/// one of them cannot make its segment. Leaves no open descriptor and no name behind.
Meeting meet_neighbours(const Geometry& geometry, int rank, const std::string& name,
                        const std::string& routes, const std::string& extra,
                        const Allgather& allgather);

}  // namespace hpcomm::shm
