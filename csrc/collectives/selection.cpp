#include "collectives/selection.hpp"

#include <algorithm>
#include <iomanip>
#include <sstream>

#include "core/error.hpp"

namespace hpcomm {
namespace {

struct DefaultRow {
  Collective kind;
  std::string_view algorithm;
  std::size_t max_bytes = std::numeric_limits<std::size_t>::max();
  int max_ranks = std::numeric_limits<int>::max();
};

// Rows of one collective in order of preference; one that does not support the call is passed over,
// so those over shared memory come first. Without it, up to 16 ranks add by direct exchange, whose
// result depends neither on the size nor on the place in a fused buffer; beyond that the number of
// messages counts.
constexpr DefaultRow kDefaults[] = {
    {Collective::barrier, "shared"},
    {Collective::barrier, "dissemination"},
    {Collective::broadcast, "shared"},
    {Collective::broadcast, "binomial"},
    {Collective::allreduce, "shared"},
    {.kind = Collective::allreduce, .algorithm = "direct", .max_ranks = 16},
    {.kind = Collective::allreduce, .algorithm = "recursive_doubling", .max_bytes = 16 * 1024},
    {Collective::allreduce, "ring"},
    {Collective::allgather, "shared"},
    {Collective::allgather, "ring"},
    {Collective::reduce_scatter, "shared"},
    {.kind = Collective::reduce_scatter, .algorithm = "direct", .max_ranks = 16},
    {Collective::reduce_scatter, "ring"},
};

std::string bytes_text(std::size_t nbytes) {
  if (nbytes == std::numeric_limits<std::size_t>::max()) return "max";
  for (const auto& [unit, letter] : {std::pair{std::size_t{1} << 30U, "g"},
                                     {std::size_t{1} << 20U, "m"},
                                     {std::size_t{1024}, "k"}})
    if (nbytes >= unit && nbytes % unit == 0) return std::to_string(nbytes / unit) + letter;
  return std::to_string(nbytes);
}

bool covers(const SelectionRule& rule, const SelectionRule& other) {
  return rule.kind == other.kind && rule.min_bytes <= other.min_bytes &&
         other.max_bytes <= rule.max_bytes && rule.min_ranks <= other.min_ranks &&
         other.max_ranks <= rule.max_ranks;
}

/// The rules of one collective that can be chosen where memory is shared or is not: those that are
/// possible there and that no earlier one forestalls.
std::vector<SelectionRule> rules_in_force(const std::vector<SelectionRule>& rules, Collective kind,
                                          bool shared) {
  std::vector<SelectionRule> result;
  for (const SelectionRule& rule : rules)
    if (rule.kind == kind && rule.algorithm->supports({.size = rule.min_ranks, .shared = shared}) &&
        std::none_of(result.begin(), result.end(),
                     [&](const SelectionRule& earlier) { return covers(earlier, rule); }))
      result.push_back(rule);
  return result;
}

std::string ranks_text(const SelectionRule& rule) {
  if (rule.max_ranks == std::numeric_limits<int>::max())
    return rule.min_ranks <= 1 ? "any" : std::to_string(rule.min_ranks) + "-max";
  if (rule.min_ranks == rule.max_ranks) return std::to_string(rule.min_ranks);
  return std::to_string(rule.min_ranks) + "-" + std::to_string(rule.max_ranks);
}

}  // namespace

bool SelectionRule::matches(Collective asked, const Situation& situation) const noexcept {
  const std::size_t nbytes = situation.nbytes();
  return kind == asked && min_bytes <= nbytes && nbytes <= max_bytes &&
         min_ranks <= situation.size && situation.size <= max_ranks;
}

Selection::Selection(std::string_view override_text) : rules_(parse_rules(override_text)) {
  for (const DefaultRow& row : kDefaults) {
    SelectionRule rule{.kind = row.kind, .origin = "default"};
    rule.max_bytes = row.max_bytes;
    rule.max_ranks = row.max_ranks;
    rule.algorithm = find_algorithm(row.kind, row.algorithm);
    HPCOMM_CHECK(rule.algorithm != nullptr, Errc::internal, "no algorithm ", row.algorithm);
    rules_.push_back(rule);
  }
}

const Algorithm& Selection::choose(Collective kind, const Situation& situation) const {
  for (const SelectionRule& rule : rules_)
    if (rule.matches(kind, situation) && rule.algorithm->supports(situation))
      return *rule.algorithm;
  detail::throw_error(Errc::internal, -1, name_of(kind), ": no algorithm for ", situation.nbytes(),
                      " bytes over ", situation.size, " ranks");
}

const Algorithm* find_algorithm(Collective kind, std::string_view name) noexcept {
  for (const Algorithm& algorithm : algorithms_of(kind))
    if (algorithm.name == name) return &algorithm;
  return nullptr;
}

std::string algorithm_names(Collective kind) {
  std::string text;
  for (const Algorithm& algorithm : algorithms_of(kind))
    text.append(text.empty() ? "" : ", ").append(algorithm.name);
  return text;
}

const Algorithm& Selection::by_name(Collective kind, std::string_view name,
                                    const Situation& situation) {
  const Algorithm* algorithm = find_algorithm(kind, name);
  HPCOMM_CHECK(algorithm != nullptr, Errc::invalid_argument, name_of(kind),
               ": there is no algorithm '", name, "'; choose one of ", algorithm_names(kind));
  HPCOMM_CHECK(algorithm->supports(situation), Errc::unsupported, name_of(kind), ": algorithm '",
               name,
               "' needs memory that all ranks of the communicator share, and these do not; "
               "let hpcomm choose, or take one of ",
               algorithm_names(kind));
  return *algorithm;
}

std::string Selection::map() const {
  std::ostringstream text;
  text << std::left;
  for (const bool shared : {true, false}) {
    text << (shared ? "within a node, where all ranks of the communicator share memory:\n"
                    : "between nodes, or wherever they do not:\n")
         << std::setw(16) << "collective" << std::setw(16) << "bytes" << std::setw(8) << "ranks"
         << std::setw(20) << "algorithm" << std::setw(12) << "addition" << "from\n";
    for (int kind = 0; kind < kNumCollectives; ++kind)
      for (const SelectionRule& rule :
           rules_in_force(rules_, static_cast<Collective>(kind), shared))
        text << std::setw(16) << name_of(rule.kind) << std::setw(16)
             << bytes_text(rule.min_bytes) + "-" + bytes_text(rule.max_bytes) << std::setw(8)
             << ranks_text(rule) << std::setw(20) << rule.algorithm->name << std::setw(12)
             << (rule.algorithm->order == SumOrder::none ? "-" : name_of(rule.algorithm->order))
             << rule.origin << '\n';
    if (shared) text << '\n';
  }
  return text.str();
}

}  // namespace hpcomm
