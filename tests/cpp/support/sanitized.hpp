// Sanitizers make every load and store an order of magnitude slower: tests take fewer sizes then.
#pragma once

namespace hpcomm::testing {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kIsSanitized = true;
#else
inline constexpr bool kIsSanitized = false;
#endif

}  // namespace hpcomm::testing
