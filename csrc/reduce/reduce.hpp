// Element-wise reduction of contiguous host memory: the only place of the core where numbers are
// added. Semantics per type: elements.hpp.
#pragma once

#include <cstddef>
#include <span>

#include "core/dtype.hpp"

namespace hpcomm {

/// False for avg of integers and bool, which has no single meaning: users take sum, or a float.
bool is_defined(ReduceOp op, DType dtype) noexcept;

/// The operation that combines partial results of `op`: sum for avg (divide once, in the last
/// step), else `op`.
constexpr ReduceOp partial_of(ReduceOp op) noexcept {
  return op == ReduceOp::avg ? ReduceOp::sum : op;
}

/// out[i] = inputs[0][i] op inputs[1][i] op …, in the order given, for `count` elements. float16
/// and bfloat16 are accumulated in float32 and rounded once; avg divides the wide sum by `divisor`
/// before that rounding. `out` may be one of the inputs, never overlap one partially. Any
/// alignment. `inputs` is not empty; is_defined(op, dtype).
void reduce(DType dtype, ReduceOp op, std::byte* out, std::span<const std::byte* const> inputs,
            std::size_t count, int divisor = 1);

}  // namespace hpcomm
