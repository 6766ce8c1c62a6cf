#include "reduce/half.hpp"

#include <boost/test/unit_test.hpp>
#include <cmath>
#include <cstring>
#include <limits>

#include "support/reference.hpp"

namespace hpcomm::testing {

BOOST_AUTO_TEST_SUITE(reduce)
BOOST_AUTO_TEST_SUITE(half)

namespace {

struct Format {
  const char* name;
  int exponent_bits;
  int mantissa_bits;
  float (*to_float)(std::uint16_t) noexcept;
  std::uint16_t (*from_float)(float) noexcept;
};
constexpr Format kFormats[] = {{"float16", 5, 10, float_from_f16, f16_from_float},
                               {"bfloat16", 8, 7, float_from_bf16, bf16_from_float}};

bool rounds_right(const Format& format, float value) {
  const std::uint16_t got = format.from_float(value);
  if (std::isnan(value))
    return std::isnan(format.to_float(got)) && (got >> 15U) == (std::signbit(value) ? 1 : 0);
  return got ==
         encode_short_float(static_cast<double>(value), format.exponent_bits, format.mantissa_bits);
}

}  // namespace

BOOST_AUTO_TEST_CASE(every_pattern_becomes_the_float_of_equal_value_and_comes_back) {
  for (const Format& format : kFormats) {
    int wrong = 0;
    for (unsigned bits = 0; bits < 0x10000U; ++bits) {
      const std::uint16_t half = static_cast<std::uint16_t>(bits);
      const float value = format.to_float(half);
      const double wanted = decode_short_float(half, format.exponent_bits, format.mantissa_bits);
      if (std::isnan(wanted)) {
        wrong += std::isnan(value) && std::isnan(format.to_float(format.from_float(value))) ? 0 : 1;
      } else {
        wrong += static_cast<double>(value) == wanted && format.from_float(value) == half ? 0 : 1;
      }
    }
    BOOST_TEST(wrong == 0, format.name << ": " << wrong << " patterns");
  }
}

BOOST_AUTO_TEST_CASE(floats_between_two_neighbours_round_to_nearest_even) {
  for (const Format& format : kFormats) {
    int wrong = 0;
    for (unsigned bits = 0; bits < 0x7fffU; ++bits) {
      const float low = format.to_float(static_cast<std::uint16_t>(bits));
      const float high = format.to_float(static_cast<std::uint16_t>(bits + 1));
      if (!std::isfinite(low) || !std::isfinite(high)) continue;
      const float middle = low + (high - low) / 2;
      for (const float value : {middle, std::nextafter(middle, low), std::nextafter(middle, high)})
        wrong += (rounds_right(format, value) ? 0 : 1) + (rounds_right(format, -value) ? 0 : 1);
    }
    BOOST_TEST(wrong == 0, format.name << ": " << wrong << " values");
  }
}

BOOST_AUTO_TEST_CASE(any_float_rounds_as_the_reference_does) {
  for (const Format& format : kFormats) {
    int wrong = 0;
    for (std::uint64_t i = 0; i < 200'000; ++i) {
      const std::uint32_t bits = static_cast<std::uint32_t>(mixed(1, 2, i));
      float value = 0;
      std::memcpy(&value, &bits, sizeof(value));
      wrong += rounds_right(format, value) ? 0 : 1;
    }
    BOOST_TEST(wrong == 0, format.name << ": " << wrong << " values");
  }
}

BOOST_AUTO_TEST_CASE(overflow_becomes_infinity) {
  BOOST_TEST(f16_from_float(65519.996F) == 0x7bff);
  BOOST_TEST(f16_from_float(65520.0F) == 0x7c00);
  BOOST_TEST(f16_from_float(-1e30F) == 0xfc00);
  BOOST_TEST(bf16_from_float(std::numeric_limits<float>::max()) == 0x7f80);
}

BOOST_AUTO_TEST_SUITE_END()
BOOST_AUTO_TEST_SUITE_END()

}  // namespace hpcomm::testing
