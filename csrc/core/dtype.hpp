// Element types and reduction operations that cross the wire.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace hpcomm {

enum class DType : std::uint8_t {
  f16,
  bf16,
  f32,
  f64,
  i8,
  u8,
  i16,
  u16,
  i32,
  u32,
  i64,
  u64,
  boolean
};
inline constexpr int kNumDTypes = 13;

enum class ReduceOp : std::uint8_t { sum, avg, min, max, prod };
inline constexpr int kNumReduceOps = 5;

constexpr std::size_t size_bytes(DType dtype) noexcept {
  switch (dtype) {
    case DType::i8:
    case DType::u8:
    case DType::boolean:
      return 1;
    case DType::f16:
    case DType::bf16:
    case DType::i16:
    case DType::u16:
      return 2;
    case DType::f32:
    case DType::i32:
    case DType::u32:
      return 4;
    case DType::f64:
    case DType::i64:
    case DType::u64:
      return 8;
  }
  return 0;
}

constexpr bool is_floating(DType dtype) noexcept {
  return dtype == DType::f16 || dtype == DType::bf16 || dtype == DType::f32 || dtype == DType::f64;
}

constexpr std::string_view name_of(DType dtype) noexcept {
  constexpr std::string_view names[] = {"float16", "bfloat16", "float32", "float64", "int8",
                                        "uint8",   "int16",    "uint16",  "int32",   "uint32",
                                        "int64",   "uint64",   "bool"};
  return names[static_cast<int>(dtype)];
}

constexpr std::string_view name_of(ReduceOp op) noexcept {
  constexpr std::string_view names[] = {"sum", "avg", "min", "max", "prod"};
  return names[static_cast<int>(op)];
}

}  // namespace hpcomm
