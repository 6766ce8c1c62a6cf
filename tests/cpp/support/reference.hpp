// What collectives must yield, computed in another way than the library does: element by element,
// in double or in 64-bit integers, with its own conversion of short floats.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/dtype.hpp"

namespace hpcomm::testing {

using Bytes = std::vector<std::byte>;

inline constexpr DType kAllDTypes[] = {
    DType::f16, DType::bf16, DType::f32, DType::f64, DType::i8,  DType::u8,     DType::i16,
    DType::u16, DType::i32,  DType::u32, DType::i64, DType::u64, DType::boolean};
inline constexpr ReduceOp kAllOps[] = {ReduceOp::sum, ReduceOp::avg, ReduceOp::min, ReduceOp::max,
                                       ReduceOp::prod};

/// A float16 or bfloat16 from its bits, and the nearest one (ties to even) to a number.
double decode_short_float(std::uint16_t bits, int exponent_bits, int mantissa_bits);
std::uint16_t encode_short_float(double value, int exponent_bits, int mantissa_bits);
double decode(DType dtype, const std::byte* data, std::size_t index);
void encode(DType dtype, std::byte* data, std::size_t index, double value);

/// A well mixed number that depends on all arguments.
std::uint64_t mixed(std::uint64_t seed, std::uint64_t rank, std::uint64_t index) noexcept;

/// `count` elements of `rank`: of integers any value, of bool any byte; of floats numbers whose
/// sums and products over up to five ranks are exact in every format, so that results can be
/// compared bit by bit.
Bytes exact_values(DType dtype, ReduceOp op, int rank, std::size_t count);
/// Floats of all magnitudes from 2^-8 to 2^8, both signs, which sums do have to round.
Bytes rough_values(DType dtype, int rank, std::size_t count, std::uint64_t seed = 0);
/// Bytes without meaning, for collectives that only move them.
Bytes any_bytes(int rank, std::size_t nbytes);

/// Reduction over the ranks' vectors, in rank order.
Bytes expected(DType dtype, ReduceOp op, std::span<const Bytes> inputs);

}  // namespace hpcomm::testing
