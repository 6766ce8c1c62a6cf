// Which algorithm serves a call: data, not code. The default table has a row per range of bytes;
// HPCOMM_TUNE overrides it, and an algorithm named in the call overrides both. Grammar of the
// override string:
//   rule{;rule}   rule = COLLECTIVE ":" [MIN] "-" [MAX] [":" RANKS "ranks"] ":" ALGORITHM     sizes
//   take k, m, g (1024)
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/algorithm.hpp"

namespace hpcomm {

struct SelectionRule {
  Collective kind;
  std::size_t min_bytes;
  std::size_t max_bytes;  // inclusive
  int ranks;              // 0: any
  const Algorithm* algorithm;
  std::string_view origin;  // "default" or "override"
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
  /// A table for people: collective, range of bytes, ranks, algorithm, origin.
  std::string map() const;
  const std::vector<SelectionRule>& rules() const noexcept { return rules_; }

 private:
  std::vector<SelectionRule> rules_;
};

}  // namespace hpcomm
