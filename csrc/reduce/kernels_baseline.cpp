#include <algorithm>
#include <type_traits>

#include "reduce/elements.hpp"
#include "reduce/kernels.hpp"

#define HPCOMM_KERNEL_NAMESPACE baseline_isa
#include "reduce/kernels_impl.hpp"

namespace hpcomm::kernels {

const Table& baseline() noexcept {
  static constexpr Table table = baseline_isa::make_table();
  return table;
}

}  // namespace hpcomm::kernels
