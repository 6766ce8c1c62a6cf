// float16 and bfloat16 as bit patterns: to float exactly, from float rounded to nearest even. NaN
// stays NaN.
#pragma once

#include <bit>
#include <cstdint>

#include "core/host_device.hpp"

namespace hpcomm {

HPCOMM_HOST_DEVICE constexpr float float_from_f16(std::uint16_t half) noexcept {
  constexpr std::uint32_t kExponent = 0x7c00U << 13U;
  std::uint32_t bits = (half & 0x7fffU) << 13U;
  const std::uint32_t exponent = bits & kExponent;
  bits += (127U - 15U) << 23U;
  bits += exponent == kExponent ? (128U - 16U) << 23U : 0U;  // infinity and NaN
  // A subnormal gets the smallest normal exponent, which is then subtracted as a number: no float
  // subnormal occurs, so the result does not depend on a thread that flushes those to zero.
  const float normal = std::bit_cast<float>(bits);
  const float subnormal =
      std::bit_cast<float>(bits + (1U << 23U)) - std::bit_cast<float>((127U - 14U) << 23U);
  const std::uint32_t magnitude = std::bit_cast<std::uint32_t>(exponent == 0 ? subnormal : normal);
  return std::bit_cast<float>(magnitude | (static_cast<std::uint32_t>(half & 0x8000U) << 16U));
}

HPCOMM_HOST_DEVICE constexpr std::uint16_t f16_from_float(float value) noexcept {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16U) & 0x8000U;
  const std::uint32_t magnitude = bits & 0x7fffffffU;
  // Adding 0.5 leaves a subnormal half in the low bits, rounded to nearest even by the addition
  // itself.
  const float shifted = std::bit_cast<float>(magnitude) + 0.5F;
  const std::uint32_t subnormal =
      std::bit_cast<std::uint32_t>(shifted) - std::bit_cast<std::uint32_t>(0.5F);
  const std::uint32_t odd = (magnitude >> 13U) & 1U;
  const std::uint32_t normal = (magnitude - ((127U - 15U) << 23U) + 0xfffU + odd) >> 13U;
  std::uint32_t half = magnitude < (113U << 23U) ? subnormal : normal;
  half = magnitude >= 0x477ff000U ? 0x7c00U : half;  // from 65520 on: infinity
  half = magnitude > 0x7f800000U ? 0x7e00U | ((magnitude >> 13U) & 0x3ffU) : half;
  return static_cast<std::uint16_t>(half | sign);
}

HPCOMM_HOST_DEVICE constexpr float float_from_bf16(std::uint16_t half) noexcept {
  return std::bit_cast<float>(static_cast<std::uint32_t>(half) << 16U);
}

HPCOMM_HOST_DEVICE constexpr std::uint16_t bf16_from_float(float value) noexcept {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = (bits + 0x7fffU + ((bits >> 16U) & 1U)) >> 16U;
  const std::uint32_t nan = (bits >> 16U) | 0x40U;
  return static_cast<std::uint16_t>((bits & 0x7fffffffU) > 0x7f800000U ? nan : rounded);
}

}  // namespace hpcomm
