// Which algorithm serves a call: data, not code. The default table has a row per range of bytes and
// ranks; HPCOMM_TUNE overrides it, and an algorithm named in the call overrides both. Grammar of
// the override string, spaces allowed between words:
//   rules = rule {";" rule}
//   rule  = COLLECTIVE ":" [MIN] "-" [MAX] [":" FEWEST ["-" MOST] "ranks"] ":" ALGORITHM
// MIN and MAX are bytes of the whole vector, both inclusive, with k, m or g for powers of 1024.
// Example: "allreduce:-64k:2ranks:recursive_doubling; allreduce:1m-:ring"
#pragma once

#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/algorithm.hpp"

namespace hpcomm {

struct SelectionRule {
  Collective kind;
  std::size_t min_bytes = 0;
  std::size_t max_bytes = std::numeric_limits<std::size_t>::max();  // inclusive
  int min_ranks = 1;
  int max_ranks = std::numeric_limits<int>::max();  // inclusive
  const Algorithm* algorithm = nullptr;
  std::string_view origin;  // "default" or "override"

  bool matches(Collective asked, const Situation& situation) const noexcept;
};

class Selection {
 public:
  /// Throws Error(invalid_argument) with the position for malformed text and the known names for an
  /// unknown algorithm.
  explicit Selection(std::string_view override_text = {});
  /// The first rule that matches and whose algorithm supports the situation.
  const Algorithm& choose(Collective kind, const Situation& situation) const;
  /// By name; throws Error(invalid_argument) listing the names, or Error(unsupported) saying why
  /// not here.
  static const Algorithm& by_name(Collective kind, std::string_view name,
                                  const Situation& situation);
  /// Two tables for people, for ranks that share memory and for others: collective, range of bytes,
  /// ranks, algorithm, origin. Of rows that fit a call the first counts; rows that another one
  /// forestalls wherever they fit are left out.
  std::string map() const;
  const std::vector<SelectionRule>& rules() const noexcept { return rules_; }

 private:
  std::vector<SelectionRule> rules_;
};

/// The rules of an override string, in their order.
std::vector<SelectionRule> parse_rules(std::string_view text);

/// Null if there is none of that name.
const Algorithm* find_algorithm(Collective kind, std::string_view name) noexcept;
/// "ring, recursive_doubling, direct, shared"
std::string algorithm_names(Collective kind);

inline constexpr int kNumCollectives = 5;

}  // namespace hpcomm
