// In round k every rank tells the one 2^k ahead what it knows; after the last round everybody has
// heard from everybody. Windows overlap where the number of ranks is no power of two, so what is
// exchanged must not mind being counted twice.
#pragma once

#include <bit>

namespace hpcomm::dissemination {

/// The rounded-up binary logarithm of `size`.
constexpr int num_rounds(int size) noexcept {
  return std::bit_width(static_cast<unsigned>(size) - 1U);
}
constexpr int to(int rank, int round, int size) noexcept {
  return static_cast<int>((static_cast<long>(rank) + (1L << round)) % size);
}
constexpr int from(int rank, int round, int size) noexcept {
  return static_cast<int>((static_cast<long>(rank) - (1L << round) + size) % size);
}

}  // namespace hpcomm::dissemination
