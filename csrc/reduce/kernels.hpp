// The compiled kernels: one table per instruction set, indexed by type and operation.
#pragma once

#include <cstddef>

#include "core/dtype.hpp"

namespace hpcomm::kernels {

/// out[i] = inputs[0][i] op inputs[1][i] op …, in this order, for i < count; one rounding to the
/// element type at the end. `out` may be one of the inputs. `divisor` is used by avg alone.
/// num_inputs >= 1.
using Kernel = void (*)(std::byte* out, const std::byte* const* inputs, std::size_t num_inputs,
                        std::size_t count, int divisor);

struct Table {
  Kernel entries[kNumDTypes][kNumReduceOps];  // null: avg of integers and bool
};

/// Runs on every CPU of the architecture the library was built for.
const Table& baseline() noexcept;
/// Null where this CPU (or architecture) lacks AVX2 or F16C.
const Table* avx2() noexcept;
/// The fastest of the above; decided once.
const Table& best() noexcept;

}  // namespace hpcomm::kernels
