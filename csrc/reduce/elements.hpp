// One element of each type: how it lies in memory, in which type it is reduced, and the operations.
//
// Semantics, the same in every algorithm:
//   integers   sum and prod wrap around; min and max as usual
//   floats     min and max propagate NaN; float16 and bfloat16 are reduced in float32 and rounded
//   once per kernel avg        sum, then divided in the wide type, for floats only bool       any
//   non-zero byte is true; sum and max are "or", prod and min are "and"; results are 0 or 1
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "core/host_device.hpp"
#include "reduce/half.hpp"

namespace hpcomm::elements {

// Memory may be unaligned for its type (a view into a byte stream), so it is only touched by
// memcpy, which compiles to plain, vectorisable loads and stores.
template <class T>
HPCOMM_HOST_DEVICE inline T load_raw(const std::byte* data, std::size_t index) noexcept {
  T value;
  std::memcpy(&value, data + index * sizeof(T), sizeof(T));
  return value;
}

template <class T>
HPCOMM_HOST_DEVICE inline void store_raw(std::byte* data, std::size_t index, T value) noexcept {
  std::memcpy(data + index * sizeof(T), &value, sizeof(T));
}

/// Stored and reduced in the same type.
template <class T>
struct Plain {
  using Storage = T;
  using Wide = T;
  static constexpr bool kConverts = false;
  HPCOMM_HOST_DEVICE static Wide load(const std::byte* data, std::size_t i) {
    return load_raw<T>(data, i);
  }
  HPCOMM_HOST_DEVICE static void store(std::byte* data, std::size_t i, Wide v) {
    store_raw<T>(data, i, v);
  }
};

struct Float16 {
  using Storage = std::uint16_t;
  using Wide = float;
  static constexpr bool kConverts = true;
  HPCOMM_HOST_DEVICE static Wide load(const std::byte* data, std::size_t i) {
    return float_from_f16(load_raw<Storage>(data, i));
  }
  HPCOMM_HOST_DEVICE static void store(std::byte* data, std::size_t i, Wide v) {
    store_raw<Storage>(data, i, f16_from_float(v));
  }
};

struct BFloat16 {
  using Storage = std::uint16_t;
  using Wide = float;
  static constexpr bool kConverts = true;
  HPCOMM_HOST_DEVICE static Wide load(const std::byte* data, std::size_t i) {
    return float_from_bf16(load_raw<Storage>(data, i));
  }
  HPCOMM_HOST_DEVICE static void store(std::byte* data, std::size_t i, Wide v) {
    store_raw<Storage>(data, i, bf16_from_float(v));
  }
};

struct Boolean {
  using Storage = std::uint8_t;
  using Wide = bool;
  static constexpr bool kConverts = false;
  HPCOMM_HOST_DEVICE static Wide load(const std::byte* data, std::size_t i) {
    return load_raw<Storage>(data, i) != 0;
  }
  HPCOMM_HOST_DEVICE static void store(std::byte* data, std::size_t i, Wide v) {
    store_raw<Storage>(data, i, static_cast<Storage>(v));
  }
};

// Signed overflow is undefined and small unsigned types promote to int, so integers are reduced in
// an unsigned type that is at least as wide as unsigned int; the narrowing back keeps the low bits.
template <class T>
using Modular = std::make_unsigned_t<decltype(T{} + 0U)>;

struct Sum {
  template <class T>
  HPCOMM_HOST_DEVICE static T apply(T a, T b) noexcept {
    if constexpr (std::is_same_v<T, bool>) {
      return static_cast<bool>(a | b);
    } else if constexpr (std::is_integral_v<T>) {
      return static_cast<T>(static_cast<Modular<T>>(a) + static_cast<Modular<T>>(b));
    } else {
      return a + b;
    }
  }
};

struct Prod {
  template <class T>
  HPCOMM_HOST_DEVICE static T apply(T a, T b) noexcept {
    if constexpr (std::is_same_v<T, bool>) {
      return static_cast<bool>(a & b);
    } else if constexpr (std::is_integral_v<T>) {
      return static_cast<T>(static_cast<Modular<T>>(a) * static_cast<Modular<T>>(b));
    } else {
      return a * b;
    }
  }
};

/// Only a float can be unequal to itself.
template <class T>
HPCOMM_HOST_DEVICE inline bool is_nan(T value) noexcept {
  if constexpr (std::is_floating_point_v<T>) return value != value;
  return false;
}

struct Min {
  template <class T>
  HPCOMM_HOST_DEVICE static T apply(T a, T b) noexcept {
    return (b < a) | is_nan(b) ? b : a;  // a NaN in b wins; a NaN in a compares false and stays
  }
};

struct Max {
  template <class T>
  HPCOMM_HOST_DEVICE static T apply(T a, T b) noexcept {
    return (a < b) | is_nan(b) ? b : a;
  }
};

}  // namespace hpcomm::elements
