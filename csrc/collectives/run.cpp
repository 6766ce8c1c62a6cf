#include "collectives/run.hpp"

#include <optional>

#include "collectives/agreement.hpp"
#include "collectives/check_request.hpp"
#include "core/error.hpp"

namespace hpcomm {
namespace {

std::uint8_t index_of(Collective kind, const Algorithm& algorithm) {
  return static_cast<std::uint8_t>(&algorithm - algorithms_of(kind).data());
}

const Algorithm& pick(Endpoint& endpoint, const Selection& selection,
                      const CollectiveRequest& request, std::string_view name) {
  check_request(request, endpoint.rank(), endpoint.size(), endpoint.name());
  const Situation situation{.size = endpoint.size(),
                            .count = total_count(request, endpoint.size()),
                            .dtype = request.dtype,
                            .op = request.op,
                            .shared = endpoint.shared() != nullptr};
  return name.empty() ? selection.choose(request.kind, situation)
                      : Selection::by_name(request.kind, name, situation);
}

/// This rank cannot take part: the others learn it instead of waiting for their deadline. If the
/// ranks disagree about more than that, this rank gets the same error as they.
void refuse(Endpoint& endpoint, const CollectiveRequest& request) {
  try {
    agree(endpoint, request, signature_of(request, kRefused, endpoint.size()));
  } catch (const Refusal&) {
    return;
  }
}

}  // namespace

void run_collective(Endpoint& endpoint, const Selection& selection,
                    const CollectiveRequest& request, std::string_view name) {
  const Algorithm* algorithm = nullptr;
  std::optional<Error> own_error;
  try {
    algorithm = &pick(endpoint, selection, request, name);
  } catch (const Error& error) {
    own_error = error;
  }
  if (own_error) {
    refuse(endpoint, request);
    throw *own_error;
  }
  const Signature signature =
      signature_of(request, index_of(request.kind, *algorithm), endpoint.size());
  if (!algorithm->agrees_itself) agree(endpoint, request, signature);
  algorithm->run(endpoint, request, signature);
}

}  // namespace hpcomm
