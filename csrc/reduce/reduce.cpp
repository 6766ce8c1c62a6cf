#include "reduce/reduce.hpp"

#include "core/error.hpp"
#include "reduce/kernels.hpp"

namespace hpcomm {

namespace kernels {

const Table& best() noexcept {
  static const Table& table = avx2() != nullptr ? *avx2() : baseline();
  return table;
}

}  // namespace kernels

bool is_defined(ReduceOp op, DType dtype) noexcept {
  return op != ReduceOp::avg || is_floating(dtype);
}

void reduce(DType dtype, ReduceOp op, std::byte* out, std::span<const std::byte* const> inputs,
            std::size_t count, int divisor) {
  HPCOMM_CHECK(!inputs.empty() && is_defined(op, dtype), Errc::internal, "reduce: no kernel for ",
               name_of(op), " of ", inputs.size(), " inputs of ", name_of(dtype));
  if (count == 0) return;
  const kernels::Kernel kernel =
      kernels::best().entries[static_cast<int>(dtype)][static_cast<int>(op)];
  kernel(out, inputs.data(), inputs.size(), count, divisor);
}

}  // namespace hpcomm
