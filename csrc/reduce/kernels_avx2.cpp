// The same kernels for x86-64 CPUs with AVX2 and F16C. The headers are included before the pragma,
// so that no inline function of the library gets compiled for this instruction set and then chosen
// by the linker for every CPU.
#include <algorithm>
#include <type_traits>

#include "reduce/elements.hpp"
#include "reduce/kernels.hpp"

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#include <immintrin.h>

// No FMA: contraction would round differently from the baseline.
#pragma GCC push_options
#pragma GCC target("avx2,f16c")
#define HPCOMM_KERNEL_NAMESPACE avx2_isa
#define HPCOMM_KERNELS_HAVE_F16C 1
#include "reduce/kernels_impl.hpp"
#pragma GCC pop_options

namespace hpcomm::kernels {

const Table* avx2() noexcept {
  static constexpr Table table = avx2_isa::make_table();
  static const bool has_both = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c");
  return has_both ? &table : nullptr;
}

}  // namespace hpcomm::kernels

#else

namespace hpcomm::kernels {

const Table* avx2() noexcept { return nullptr; }

}  // namespace hpcomm::kernels

#endif
