#include "collectives/agreement.hpp"

#include <cstddef>
#include <string>

#include "collectives/algorithm.hpp"
#include "collectives/flight.hpp"
#include "collectives/patterns/dissemination.hpp"
#include "collectives/shared_phases.hpp"
#include "core/error.hpp"

namespace hpcomm {
namespace {

// Counts that differ by rank are represented by a hash with this bit, which no number of elements
// in memory has.
constexpr std::uint64_t kHashed = std::uint64_t{1} << 63U;

std::uint64_t hash_of(std::span<const std::size_t> counts) {
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (const std::size_t count : counts) {
    hash ^= count;
    hash *= 0x9e3779b97f4a7c15U;
    hash ^= hash >> 29U;
  }
  return hash | kHashed;
}

bool all_equal(std::span<const std::size_t> counts) {
  for (const std::size_t count : counts)
    if (count != counts.front()) return false;
  return true;
}

std::string algorithm_name(const Signature& signature) {
  const auto table = algorithms_of(signature.kind);
  return signature.algorithm < table.size() ? std::string(table[signature.algorithm].name)
                                            : std::string("none");
}

std::string count_text(std::uint64_t count) {
  return (count & kHashed) != 0 ? "parts of unequal lengths" : std::to_string(count);
}

/// What a rank knows about a set of ranks: the signature of the lowest of them, and the lowest one
/// whose signature differs from that. Joining two sets may count ranks twice without harm.
struct Summary {
  Signature signature;
  Signature other;
  std::int32_t rank;
  std::int32_t other_rank;  // -1: all alike
};

Summary joined(const Summary& a, const Summary& b) {
  const Summary& low = a.rank <= b.rank ? a : b;
  const Summary& high = a.rank <= b.rank ? b : a;
  Summary result = low;
  const bool same = high.signature == low.signature;
  const std::int32_t candidate = same ? high.other_rank : high.rank;
  if (candidate >= 0 && (result.other_rank < 0 || candidate < result.other_rank)) {
    result.other_rank = candidate;
    result.other = same ? high.other : high.signature;
  }
  return result;
}

void agree_by_messages(Endpoint& endpoint, const CollectiveRequest& request,
                       const Signature& signature) {
  const int rank = endpoint.rank();
  const int size = endpoint.size();
  Summary known{signature, {}, rank, -1};
  for (int round = 0; round < dissemination::num_rounds(size); ++round) {
    Summary heard{};
    Flight flight(endpoint, request, tag::kSignature);
    flight.recv(reinterpret_cast<std::byte*>(&heard), sizeof(heard),
                dissemination::from(rank, round, size));
    flight.send(reinterpret_cast<const std::byte*>(&known), sizeof(known),
                dissemination::to(rank, round, size));
    flight.wait();
    known = joined(known, heard);
  }
  if (known.other_rank >= 0)
    throw_disagreement(endpoint.name(), known.rank, known.signature, known.other_rank, known.other);
}

}  // namespace

Signature signature_of(const CollectiveRequest& request, std::uint8_t algorithm, int size) {
  Signature signature;
  signature.kind = request.kind;
  signature.algorithm = algorithm;
  if (request.kind == Collective::barrier) return signature;
  signature.dtype = request.dtype;
  if (request.kind == Collective::allreduce || request.kind == Collective::reduce_scatter)
    signature.op = request.op;
  if (request.kind == Collective::broadcast) signature.root = request.root;
  if (request.counts.empty() || static_cast<int>(request.counts.size()) != size) {
    signature.count = request.count;
  } else {
    signature.count = all_equal(request.counts) ? request.counts.front() : hash_of(request.counts);
  }
  return signature;
}

void throw_disagreement(std::string_view name, int rank, const Signature& a, int other_rank,
                        const Signature& b) {
  const auto fail = [&](const std::string& start, std::string_view asked, const std::string& of_a,
                        const std::string& of_b, std::string_view remedy) {
    detail::throw_error(Errc::mismatch, other_rank, start, ": all ranks must ", asked, "; rank ",
                        rank, " ", of_a, ", rank ", other_rank, " ", of_b, remedy);
  };
  const std::string group = "communicator '" + std::string(name) + "'";
  const std::string call = std::string(name_of(a.kind)) + " on '" + std::string(name) + "'";
  if (a.kind != b.kind)
    fail(group, "call the same collectives in the same order",
         std::string("calls ") + name_of(a.kind), std::string("calls ") + name_of(b.kind), "");
  const auto differ = [&](std::string_view what, const std::string& of_a, const std::string& of_b) {
    fail(call, std::string("pass the same ") + std::string(what), "has " + of_a, "has " + of_b, "");
  };
  if (a.dtype != b.dtype)
    differ("dtype", std::string(name_of(a.dtype)), std::string(name_of(b.dtype)));
  if (a.op != b.op) differ("op", std::string(name_of(a.op)), std::string(name_of(b.op)));
  if (a.root != b.root) differ("root", std::to_string(a.root), std::to_string(b.root));
  if (a.count != b.count) {
    if ((a.count & b.count & kHashed) != 0)
      fail(call, "pass the same counts of all ranks", "has others than", "has", "");
    differ("count", count_text(a.count), count_text(b.count));
  }
  if (a.algorithm == kRefused || b.algorithm == kRefused) {
    const int refuser = a.algorithm == kRefused ? rank : other_rank;
    throw Refusal(Errc::mismatch, refuser,
                  call + ": rank " + std::to_string(refuser) +
                      " could not take part in the call; its own error says why");
  }
  fail(call, "use the same algorithm", "uses " + algorithm_name(a), "uses " + algorithm_name(b),
       "; check the argument `algorithm` and the variable HPCOMM_TUNE");
  detail::throw_error(Errc::internal, rank, call, ": disagreement without a difference");
}

void agree(Endpoint& endpoint, const CollectiveRequest& request, const Signature& signature) {
  if (endpoint.shared() == nullptr) return agree_by_messages(endpoint, request, signature);
  SharedPhases phases(endpoint, request, signature);
  phases.advance();
}

}  // namespace hpcomm
