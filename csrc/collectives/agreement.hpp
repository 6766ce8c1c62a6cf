// All ranks learn whether they all do the same, before any of them touches a buffer. A disagreement
// is the same Error(mismatch) on every rank and leaves nothing behind, so the group stays usable.
#pragma once

#include <cstdint>
#include <string_view>

#include "collectives/request.hpp"
#include "core/error.hpp"
#include "transport/endpoint.hpp"

namespace hpcomm {

/// In place of the index of an algorithm: this rank cannot do what it was asked to and will throw
/// an error of its own.
inline constexpr std::uint8_t kRefused = 255;

/// Fields that mean nothing for the kind are set alike on all ranks.
Signature signature_of(const CollectiveRequest& request, std::uint8_t algorithm, int size);

/// The disagreement is nothing but that a rank refused.
class Refusal : public Error {
 public:
  using Error::Error;
};

/// Throws Error(mismatch) or Refusal about the lower of two ranks and one that differs from it.
/// `name` is the communicator's.
[[noreturn]] void throw_disagreement(std::string_view name, int rank, const Signature& signature,
                                     int other_rank, const Signature& other);

/// Compares the signatures of all ranks by whatever connects them: shared memory in one phase, else
/// messages in ceil(log2 p) rounds of 40 bytes.
void agree(Endpoint& endpoint, const CollectiveRequest& request, const Signature& signature);

}  // namespace hpcomm
