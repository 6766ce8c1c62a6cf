#include "reduce/reduce.hpp"

#include <boost/test/unit_test.hpp>
#include <cmath>
#include <limits>
#include <string>

#include "core/error.hpp"
#include "reduce/kernels.hpp"
#include "support/reference.hpp"

namespace hpcomm::testing {

BOOST_AUTO_TEST_SUITE(reduce)
BOOST_AUTO_TEST_SUITE(kernels_and_door)

namespace {

std::string label(DType dtype, ReduceOp op) {
  return std::string(name_of(op)) + " of " + std::string(name_of(dtype));
}

std::vector<const std::byte*> pointers(const std::vector<Bytes>& inputs) {
  std::vector<const std::byte*> result;
  for (const Bytes& input : inputs) result.push_back(input.data());
  return result;
}

std::vector<const kernels::Table*> tables() {
  std::vector<const kernels::Table*> result = {&kernels::baseline()};
  if (kernels::avx2() != nullptr) result.push_back(kernels::avx2());
  return result;
}

Bytes run(const kernels::Table& table, DType dtype, ReduceOp op, const std::vector<Bytes>& inputs) {
  Bytes out(inputs[0].size());
  table.entries[static_cast<int>(dtype)][static_cast<int>(op)](
      out.data(), pointers(inputs).data(), inputs.size(), out.size() / size_bytes(dtype),
      static_cast<int>(inputs.size()));
  return out;
}

Bytes floats(DType dtype, std::initializer_list<double> values) {
  Bytes bytes(values.size() * size_bytes(dtype));
  std::size_t i = 0;
  for (const double value : values) encode(dtype, bytes.data(), i++, value);
  return bytes;
}

constexpr DType kFloats[] = {DType::f16, DType::bf16, DType::f32, DType::f64};

}  // namespace

BOOST_AUTO_TEST_CASE(every_type_and_op_equals_the_reference_for_one_to_five_inputs) {
  for (const kernels::Table* table : tables())
    for (const DType dtype : kAllDTypes)
      for (const ReduceOp op : kAllOps) {
        if (!is_defined(op, dtype)) continue;
        for (const std::size_t count : {0UL, 1UL, 7UL, 8UL, 255UL, 256UL, 257UL, 1003UL})
          for (int ranks = 1; ranks <= 5; ++ranks) {
            std::vector<Bytes> inputs;
            for (int rank = 0; rank < ranks; ++rank)
              inputs.push_back(exact_values(dtype, op, rank, count));
            // A single input may stay as it is, but bool is normalised.
            BOOST_TEST((run(*table, dtype, op, inputs) == expected(dtype, op, inputs)),
                       label(dtype, op) << ", " << count << " elements, " << ranks << " inputs");
          }
      }
}

BOOST_AUTO_TEST_CASE(instruction_sets_agree_bit_by_bit_on_rough_floats) {
  if (kernels::avx2() == nullptr) return;
  for (const DType dtype : kFloats)
    for (const ReduceOp op : kAllOps) {
      std::vector<Bytes> inputs;
      for (int rank = 0; rank < 4; ++rank) inputs.push_back(rough_values(dtype, rank, 3001));
      BOOST_TEST(
          (run(kernels::baseline(), dtype, op, inputs) == run(*kernels::avx2(), dtype, op, inputs)),
          label(dtype, op));
    }
}

BOOST_AUTO_TEST_CASE(output_may_be_any_of_the_inputs) {
  for (const DType dtype : {DType::f32, DType::f16, DType::i64, DType::boolean})
    for (int ranks = 2; ranks <= 3; ++ranks)
      for (int target = 0; target < ranks; ++target) {
        std::vector<Bytes> inputs;
        for (int rank = 0; rank < ranks; ++rank)
          inputs.push_back(exact_values(dtype, ReduceOp::sum, rank, 999));
        const Bytes wanted = expected(dtype, ReduceOp::sum, inputs);
        Bytes& out = inputs[static_cast<std::size_t>(target)];
        hpcomm::reduce(dtype, ReduceOp::sum, out.data(), pointers(inputs), 999);
        BOOST_TEST((out == wanted), label(dtype, ReduceOp::sum) << " into input " << target);
      }
}

BOOST_AUTO_TEST_CASE(memory_of_any_alignment_is_taken) {
  for (const DType dtype : kAllDTypes) {
    const std::size_t nbytes = 501 * size_bytes(dtype);
    std::vector<Bytes> inputs = {exact_values(dtype, ReduceOp::sum, 0, 501),
                                 exact_values(dtype, ReduceOp::sum, 1, 501)};
    const Bytes wanted = expected(dtype, ReduceOp::sum, inputs);
    for (Bytes& input : inputs) input.insert(input.begin(), 3, std::byte{0});
    Bytes out(nbytes + 1);
    const std::byte* shifted[] = {inputs[0].data() + 3, inputs[1].data() + 3};
    hpcomm::reduce(dtype, ReduceOp::sum, out.data() + 1, shifted, 501);
    BOOST_TEST((Bytes(out.begin() + 1, out.end()) == wanted), label(dtype, ReduceOp::sum));
  }
}

BOOST_AUTO_TEST_CASE(short_floats_are_accumulated_wide_and_rounded_once) {
  // In float16 2048 + 1 is 2048: only a wide sum sees the ones. 2052 is a float16 again.
  const std::vector<Bytes> inputs = {floats(DType::f16, {2048}), floats(DType::f16, {1}),
                                     floats(DType::f16, {1}), floats(DType::f16, {1}),
                                     floats(DType::f16, {1})};
  for (const kernels::Table* table : tables()) {
    const Bytes sum = run(*table, DType::f16, ReduceOp::sum, inputs);
    BOOST_TEST(decode(DType::f16, sum.data(), 0) == 2052);
  }
  // The sum of two is beyond the largest float16, their mean is not.
  const std::vector<Bytes> large = {floats(DType::f16, {60000}), floats(DType::f16, {56032})};
  for (const kernels::Table* table : tables()) {
    const Bytes mean = run(*table, DType::f16, ReduceOp::avg, large);
    BOOST_TEST(decode(DType::f16, mean.data(), 0) == 58016);
  }
}

BOOST_AUTO_TEST_CASE(short_floats_equal_the_rounded_float32_sum_in_rank_order) {
  for (const DType dtype : {DType::f16, DType::bf16}) {
    std::vector<Bytes> inputs;
    for (int rank = 0; rank < 5; ++rank) inputs.push_back(rough_values(dtype, rank, 2000));
    const Bytes got = run(kernels::best(), dtype, ReduceOp::sum, inputs);
    int wrong = 0;
    for (std::size_t i = 0; i < 2000; ++i) {
      float sum = static_cast<float>(decode(dtype, inputs[0].data(), i));
      for (std::size_t rank = 1; rank < 5; ++rank)
        sum += static_cast<float>(decode(dtype, inputs[rank].data(), i));
      Bytes wanted(2);
      encode(dtype, wanted.data(), 0, static_cast<double>(sum));
      wrong += decode(dtype, wanted.data(), 0) == decode(dtype, got.data(), i) ? 0 : 1;
    }
    BOOST_TEST(wrong == 0, name_of(dtype) << ": " << wrong << " elements");
  }
}

BOOST_AUTO_TEST_CASE(nan_is_propagated_from_any_input_by_every_op) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const kernels::Table* table : tables())
    for (const DType dtype : kFloats)
      for (const ReduceOp op : kAllOps)
        for (std::size_t where = 0; where < 3; ++where) {
          std::vector<Bytes> inputs(3, floats(dtype, {1, 2, 3, 4, 5, 6, 7, 8, 9}));
          for (std::size_t i = 0; i < 9; i += 2) encode(dtype, inputs[where].data(), i, nan);
          const Bytes out = run(*table, dtype, op, inputs);
          for (std::size_t i = 0; i < 9; ++i)
            BOOST_TEST(std::isnan(decode(dtype, out.data(), i)) == (i % 2 == 0),
                       label(dtype, op) << " with NaN in input " << where << " at " << i);
        }
}

BOOST_AUTO_TEST_CASE(avg_of_integers_and_bool_is_not_defined) {
  for (const DType dtype : kAllDTypes) {
    BOOST_TEST(is_defined(ReduceOp::avg, dtype) == is_floating(dtype), name_of(dtype));
    BOOST_TEST(is_defined(ReduceOp::sum, dtype));
  }
  std::byte element{};
  const std::byte* inputs[] = {&element};
  BOOST_CHECK_THROW(hpcomm::reduce(DType::i8, ReduceOp::avg, &element, inputs, 1), Error);
}

BOOST_AUTO_TEST_SUITE_END()
BOOST_AUTO_TEST_SUITE_END()

}  // namespace hpcomm::testing
