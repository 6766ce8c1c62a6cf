#include "support/reference.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <type_traits>

namespace hpcomm::testing {
namespace {

template <class T>
T get(const std::byte* data, std::size_t index) {
  T value;
  std::memcpy(&value, data + index * sizeof(T), sizeof(T));
  return value;
}

template <class T>
void put(std::byte* data, std::size_t index, T value) {
  std::memcpy(data + index * sizeof(T), &value, sizeof(T));
}

double reduced(ReduceOp op, double a, double b) {
  switch (op) {
    case ReduceOp::min:
      return std::isnan(a) || std::isnan(b) ? std::nan("") : std::min(a, b);
    case ReduceOp::max:
      return std::isnan(a) || std::isnan(b) ? std::nan("") : std::max(a, b);
    case ReduceOp::prod:
      return a * b;
    default:
      return a + b;
  }
}

/// Works modulo 2^64, whose low bits are those of the narrower type.
template <class T>
void reduce_integer(ReduceOp op, std::span<const Bytes> inputs, std::size_t i, Bytes& out) {
  T low = get<T>(inputs[0].data(), i);
  T high = low;
  std::uint64_t sum = static_cast<std::uint64_t>(low);
  std::uint64_t product = sum;
  for (const Bytes& input : inputs.subspan(1)) {
    const T value = get<T>(input.data(), i);
    low = std::min(low, value);
    high = std::max(high, value);
    sum += static_cast<std::uint64_t>(value);
    product *= static_cast<std::uint64_t>(value);
  }
  const T results[] = {static_cast<T>(sum), T{}, low, high, static_cast<T>(product)};
  put<T>(out.data(), i, results[static_cast<int>(op)]);
}

void reduce_bool(ReduceOp op, std::span<const Bytes> inputs, std::size_t i, Bytes& out) {
  const auto truth = [i](const Bytes& input) { return input[i] != std::byte{0}; };
  const bool any = std::any_of(inputs.begin(), inputs.end(), truth);
  const bool all = std::all_of(inputs.begin(), inputs.end(), truth);
  out[i] = static_cast<std::byte>(op == ReduceOp::sum || op == ReduceOp::max ? any : all);
}

template <class F>
void visit_integer(DType dtype, F&& f) {
  switch (dtype) {
    case DType::i8:
      return f(std::int8_t{});
    case DType::u8:
      return f(std::uint8_t{});
    case DType::i16:
      return f(std::int16_t{});
    case DType::u16:
      return f(std::uint16_t{});
    case DType::i32:
      return f(std::int32_t{});
    case DType::u32:
      return f(std::uint32_t{});
    case DType::i64:
      return f(std::int64_t{});
    case DType::u64:
      return f(std::uint64_t{});
    default:
      return;
  }
}

}  // namespace

double decode_short_float(std::uint16_t bits, int exponent_bits, int mantissa_bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = (bits >> mantissa_bits) & ((1 << exponent_bits) - 1);
  const int mantissa = bits & ((1 << mantissa_bits) - 1);
  const double sign = (bits & 0x8000) != 0 ? -1.0 : 1.0;
  if (exponent == (1 << exponent_bits) - 1)
    return mantissa != 0 ? std::nan("") : sign * std::numeric_limits<double>::infinity();
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - mantissa_bits);
  return sign * std::ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);
}

std::uint16_t encode_short_float(double value, int exponent_bits, int mantissa_bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int top = (1 << exponent_bits) - 1;
  const int sign = std::signbit(value) ? 0x8000 : 0;
  const double magnitude = std::abs(value);
  if (std::isnan(value))
    return static_cast<std::uint16_t>(sign | (top << mantissa_bits) | (1 << (mantissa_bits - 1)));
  const bool has_exponent = magnitude > 0 && std::isfinite(magnitude);
  const int exponent = has_exponent ? std::max(std::ilogb(magnitude), 1 - bias) : 1 - bias;
  // In units of the last place; a carry makes the exponent one larger all by itself.
  const double units = std::nearbyint(std::ldexp(magnitude, mantissa_bits - exponent));
  const double bits = units + std::ldexp(exponent + bias - 1, mantissa_bits);
  const double infinity = std::ldexp(top, mantissa_bits);
  return static_cast<std::uint16_t>(sign | static_cast<int>(std::min(bits, infinity)));
}

double decode(DType dtype, const std::byte* data, std::size_t index) {
  switch (dtype) {
    case DType::f16:
      return decode_short_float(get<std::uint16_t>(data, index), 5, 10);
    case DType::bf16:
      return decode_short_float(get<std::uint16_t>(data, index), 8, 7);
    case DType::f32:
      return static_cast<double>(get<float>(data, index));
    default:
      return get<double>(data, index);
  }
}

void encode(DType dtype, std::byte* data, std::size_t index, double value) {
  switch (dtype) {
    case DType::f16:
      return put(data, index, encode_short_float(value, 5, 10));
    case DType::bf16:
      return put(data, index, encode_short_float(value, 8, 7));
    case DType::f32:
      return put(data, index, static_cast<float>(value));
    default:
      return put(data, index, value);
  }
}

std::uint64_t mixed(std::uint64_t seed, std::uint64_t rank, std::uint64_t index) noexcept {
  std::uint64_t x = seed * 0x9e3779b97f4a7c15U + rank * 0xbf58476d1ce4e5b9U + index + 1;
  x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27U)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31U);
}

Bytes any_bytes(int rank, std::size_t nbytes) {
  // Made once: tests ask for them again and again.
  static const std::vector<Bytes> by_rank = [] {
    std::vector<Bytes> all(8, Bytes(512 * 1024));
    for (std::size_t of = 0; of < all.size(); ++of)
      for (std::size_t i = 0; i < all[of].size(); ++i)
        all[of][i] = static_cast<std::byte>(mixed(11, of, i));
    return all;
  }();
  const Bytes& bytes = by_rank.at(static_cast<std::size_t>(rank));
  if (nbytes > bytes.size()) throw std::out_of_range("any_bytes");
  return Bytes(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(nbytes));
}

Bytes exact_values(DType dtype, ReduceOp op, int rank, std::size_t count) {
  Bytes bytes(count * size_bytes(dtype));
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t noise =
        mixed(static_cast<std::uint64_t>(op), static_cast<std::uint64_t>(rank), i);
    if (is_floating(dtype)) {
      constexpr double kFactors[] = {1, -1, 2, -2, 0.5, -0.5};
      const double value =
          op == ReduceOp::prod ? kFactors[noise % 6] : static_cast<double>(noise % 41) - 20;
      encode(dtype, bytes.data(), i, value);
    } else if (dtype == DType::boolean) {
      // Two of three are true, and true is any byte but zero.
      bytes[i] = static_cast<std::byte>(noise % 3 == 0 ? 0 : 1 + noise % 254);
    } else {
      visit_integer(dtype, [&]<class T>(T) { put<T>(bytes.data(), i, static_cast<T>(noise)); });
    }
  }
  return bytes;
}

Bytes rough_values(DType dtype, int rank, std::size_t count, std::uint64_t seed) {
  Bytes bytes(count * size_bytes(dtype));
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t noise = mixed(seed + 100, static_cast<std::uint64_t>(rank), i);
    const double mantissa = 1 + std::ldexp(static_cast<double>(noise >> 16U), -48);
    const double value = std::ldexp(mantissa, static_cast<int>(noise % 17) - 8);
    encode(dtype, bytes.data(), i, (noise & 0x8000U) != 0 ? -value : value);
  }
  return bytes;
}

Bytes expected(DType dtype, ReduceOp op, std::span<const Bytes> inputs) {
  Bytes out(inputs[0].size());
  const std::size_t count = out.size() / size_bytes(dtype);
  for (std::size_t i = 0; i < count; ++i) {
    if (dtype == DType::boolean) {
      reduce_bool(op, inputs, i, out);
    } else if (!is_floating(dtype)) {
      visit_integer(dtype, [&]<class T>(T) { reduce_integer<T>(op, inputs, i, out); });
    } else {
      double value = decode(dtype, inputs[0].data(), i);
      for (const Bytes& input : inputs.subspan(1))
        value = reduced(op, value, decode(dtype, input.data(), i));
      if (op == ReduceOp::avg) value /= static_cast<double>(inputs.size());
      encode(dtype, out.data(), i, value);
    }
  }
  return out;
}

}  // namespace hpcomm::testing
