// Who sends which part in which step of a ring. Ranks send to their successor in every step.
#pragma once

namespace hpcomm::ring {

constexpr int successor(int rank, int size) noexcept { return rank + 1 == size ? 0 : rank + 1; }
constexpr int predecessor(int rank, int size) noexcept { return rank == 0 ? size - 1 : rank - 1; }
constexpr int num_steps(int size) noexcept { return size - 1; }

/// `back` parts before `rank`, back <= size.
constexpr int part_behind(int rank, int back, int size) noexcept {
  return (rank - back + size) % size;
}

// Reduce-scatter: a part starts at the rank after its owner and arrives there in the last step.
constexpr int reduce_send(int rank, int step, int size) noexcept {
  return part_behind(rank, step + 1, size);
}
constexpr int reduce_recv(int rank, int step, int size) noexcept {
  return reduce_send(predecessor(rank, size), step, size);
}

// Allgather: a part starts at its owner and is passed on until all have it.
constexpr int gather_send(int rank, int step, int size) noexcept {
  return part_behind(rank, step, size);
}
constexpr int gather_recv(int rank, int step, int size) noexcept {
  return gather_send(predecessor(rank, size), step, size);
}

}  // namespace hpcomm::ring
