// Recursive doubling for any number of ranks. Let m be the largest power of two that is not larger
// than p, and r = p - m: of the first 2r ranks each odd one folds its data into its left neighbour
// and gets the result from it in the end; the m others exchange with partners at distances 1, 2, 4
// …
#pragma once

#include <bit>
#include <vector>

namespace hpcomm {

struct DoublingPlan {
  int folds_into = -1;  // this rank only hands its data to that one and waits
  int folded = -1;      // the rank whose data this one takes over
  std::vector<int> partners;
};

inline DoublingPlan doubling_plan(int rank, int size) {
  const int active = static_cast<int>(std::bit_floor(static_cast<unsigned>(size)));
  const int rest = size - active;
  DoublingPlan plan;
  if (rank < 2 * rest && rank % 2 == 1) {
    plan.folds_into = rank - 1;
    return plan;
  }
  if (rank < 2 * rest) plan.folded = rank + 1;
  const int position = rank < 2 * rest ? rank / 2 : rank - rest;
  for (int bit = 1; bit < active; bit *= 2) {
    const int partner = position ^ bit;
    plan.partners.push_back(partner < rest ? 2 * partner : partner + rest);
  }
  return plan;
}

/// Messages one after another: the doubling, and two more where ranks fold.
constexpr int doubling_steps(int size) noexcept {
  const unsigned n = static_cast<unsigned>(size);
  return std::bit_width(n) - 1 + (std::has_single_bit(n) ? 0 : 2);
}

}  // namespace hpcomm
