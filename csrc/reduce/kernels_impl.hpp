// The kernels themselves. Included by one file per instruction set, which defines
// HPCOMM_KERNEL_NAMESPACE (so that the linker cannot mix them up) and opens the instruction set by
// a pragma. No include guard, on purpose.

namespace hpcomm::kernels::HPCOMM_KERNEL_NAMESPACE {

// Elements that are kept in a local array between inputs: two of these stay in the first-level
// cache and on the stack.
inline constexpr std::size_t kBlock = 256;

template <class E>
inline void load_block(const std::byte* data, std::size_t begin, std::size_t n,
                       typename E::Wide* wide) {
  for (std::size_t i = 0; i < n; ++i) wide[i] = E::load(data, begin + i);
}

template <class E>
inline void store_block(std::byte* data, std::size_t begin, std::size_t n,
                        const typename E::Wide* wide) {
  for (std::size_t i = 0; i < n; ++i) E::store(data, begin + i, wide[i]);
}

#if defined(HPCOMM_KERNELS_HAVE_F16C)
template <>
inline void load_block<elements::Float16>(const std::byte* data, std::size_t begin, std::size_t n,
                                          float* wide) {
  const std::byte* from = data + begin * 2;
  std::size_t i = 0;
  for (; i + 8 <= n; i += 8) {
    const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i * 2));
    _mm256_storeu_ps(wide + i, _mm256_cvtph_ps(halves));
  }
  for (; i < n; ++i) wide[i] = elements::Float16::load(from, i);
}

template <>
inline void store_block<elements::Float16>(std::byte* data, std::size_t begin, std::size_t n,
                                           const float* wide) {
  std::byte* to = data + begin * 2;
  std::size_t i = 0;
  for (; i + 8 <= n; i += 8) {
    const __m128i halves = _mm256_cvtps_ph(_mm256_loadu_ps(wide + i), _MM_FROUND_TO_NEAREST_INT);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + i * 2), halves);
  }
  for (; i < n; ++i) elements::Float16::store(to, i, wide[i]);
}
#endif

template <class E, class Op>
inline void add_block(const std::byte* data, std::size_t begin, std::size_t n,
                      typename E::Wide* sums) {
  if constexpr (E::kConverts) {
    alignas(64) typename E::Wide next[kBlock];
    load_block<E>(data, begin, n, next);
    for (std::size_t i = 0; i < n; ++i) sums[i] = Op::apply(sums[i], next[i]);
  } else {
    for (std::size_t i = 0; i < n; ++i) sums[i] = Op::apply(sums[i], E::load(data, begin + i));
  }
}

template <bool Average, class T>
inline T finish(T value, T divisor) {
  if constexpr (Average) return value / divisor;
  return value;
}

// Types that are reduced as they lie in memory, two inputs: no detour over a local array.
template <class E, class Op, bool Average>
void reduce_pair(std::byte* out, const std::byte* a, const std::byte* b, std::size_t count,
                 int divisor) {
  using Wide = typename E::Wide;
  const Wide by = static_cast<Wide>(divisor);
  // `out` may be a or b, never overlap them partially, so no iteration depends on another.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC ivdep
#endif
  for (std::size_t i = 0; i < count; ++i)
    E::store(out, i, finish<Average>(Op::apply(E::load(a, i), E::load(b, i)), by));
}

template <class E, class Op, bool Average>
void reduce_all(std::byte* out, const std::byte* const* inputs, std::size_t num_inputs,
                std::size_t count, int divisor) {
  using Wide = typename E::Wide;
  if constexpr (!E::kConverts) {
    if (num_inputs == 2)
      return reduce_pair<E, Op, Average>(out, inputs[0], inputs[1], count, divisor);
  }
  const Wide by = static_cast<Wide>(divisor);
  alignas(64) Wide sums[kBlock];
  for (std::size_t begin = 0; begin < count; begin += kBlock) {
    const std::size_t n = std::min(kBlock, count - begin);
    load_block<E>(inputs[0], begin, n, sums);
    for (std::size_t input = 1; input < num_inputs; ++input) {
      add_block<E, Op>(inputs[input], begin, n, sums);
    }
    if constexpr (Average) {
      for (std::size_t i = 0; i < n; ++i) sums[i] = finish<Average>(sums[i], by);
    }
    store_block<E>(out, begin, n, sums);
  }
}

template <class E>
constexpr void fill_row(Kernel (&row)[kNumReduceOps]) {
  row[static_cast<int>(ReduceOp::sum)] = reduce_all<E, elements::Sum, false>;
  row[static_cast<int>(ReduceOp::prod)] = reduce_all<E, elements::Prod, false>;
  row[static_cast<int>(ReduceOp::min)] = reduce_all<E, elements::Min, false>;
  row[static_cast<int>(ReduceOp::max)] = reduce_all<E, elements::Max, false>;
  if constexpr (std::is_floating_point_v<typename E::Wide>)
    row[static_cast<int>(ReduceOp::avg)] = reduce_all<E, elements::Sum, true>;
}

constexpr Table make_table() {
  Table table{};
  const auto row = [&table](DType dtype) -> Kernel(&)[kNumReduceOps] {
    return table.entries[static_cast<int>(dtype)];
  };
  fill_row<elements::Float16>(row(DType::f16));
  fill_row<elements::BFloat16>(row(DType::bf16));
  fill_row<elements::Plain<float>>(row(DType::f32));
  fill_row<elements::Plain<double>>(row(DType::f64));
  fill_row<elements::Plain<std::int8_t>>(row(DType::i8));
  fill_row<elements::Plain<std::uint8_t>>(row(DType::u8));
  fill_row<elements::Plain<std::int16_t>>(row(DType::i16));
  fill_row<elements::Plain<std::uint16_t>>(row(DType::u16));
  fill_row<elements::Plain<std::int32_t>>(row(DType::i32));
  fill_row<elements::Plain<std::uint32_t>>(row(DType::u32));
  fill_row<elements::Plain<std::int64_t>>(row(DType::i64));
  fill_row<elements::Plain<std::uint64_t>>(row(DType::u64));
  fill_row<elements::Boolean>(row(DType::boolean));
  return table;
}

}  // namespace hpcomm::kernels::HPCOMM_KERNEL_NAMESPACE
