// Short ways to make collective calls from the body of a rank.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/algorithm.hpp"
#include "collectives/run.hpp"
#include "support/ranks.hpp"
#include "support/reference.hpp"

namespace hpcomm::testing {

inline constexpr Collective kAllCollectives[] = {Collective::barrier, Collective::broadcast,
                                                 Collective::allreduce, Collective::allgather,
                                                 Collective::reduce_scatter};

/// A buffer with bytes around it that nobody may change.
class Guarded {
 public:
  explicit Guarded(std::size_t nbytes)
      : nbytes_(nbytes), bytes_(nbytes + 2 * kMargin, kUntouched) {}
  explicit Guarded(const Bytes& content) : Guarded(content.size()) {
    copy_bytes(data(), content.data(), content.size());
  }
  std::byte* data() { return bytes_.data() + kMargin; }
  std::size_t nbytes() const { return nbytes_; }
  Buffer buffer() { return {data(), nbytes_}; }
  Bytes content() const {
    Bytes result(nbytes_);
    copy_bytes(result.data(), bytes_.data() + kMargin, nbytes_);
    return result;
  }
  bool is_intact() const {
    const auto untouched = [](std::byte b) { return b == kUntouched; };
    return std::all_of(bytes_.begin(), bytes_.begin() + kMargin, untouched) &&
           std::all_of(bytes_.end() - kMargin, bytes_.end(), untouched);
  }
  bool is_untouched() const {
    return std::all_of(bytes_.begin(), bytes_.end(), [](std::byte b) { return b == kUntouched; });
  }

 private:
  static constexpr std::ptrdiff_t kMargin = 64;
  static constexpr std::byte kUntouched{0xa5};
  std::size_t nbytes_;
  Bytes bytes_;
};

inline void call(RankScope& scope, const CollectiveRequest& request,
                 std::string_view algorithm = {}) {
  static const Selection selection;
  run_collective(scope.endpoint, selection, request, algorithm);
}

inline CollectiveRequest allreduce_request(ConstBuffer send, Buffer recv, DType dtype, ReduceOp op,
                                           Deadline deadline) {
  return {.kind = Collective::allreduce,
          .send = send,
          .recv = recv,
          .dtype = dtype,
          .op = op,
          .count = recv.nbytes / size_bytes(dtype),
          .deadline = deadline};
}

inline CollectiveRequest barrier_request(Deadline deadline) {
  return {.kind = Collective::barrier, .deadline = deadline};
}

/// An allreduce of one int32 that must yield the sum of all ranks: shows that a group is usable.
inline void require_usable(RankScope& scope, std::string_view algorithm = {}) {
  const std::int32_t mine = scope.rank + 1;
  std::int32_t sum = 0;
  call(scope,
       allreduce_request({reinterpret_cast<const std::byte*>(&mine), 4},
                         {reinterpret_cast<std::byte*>(&sum), 4}, DType::i32, ReduceOp::sum,
                         scope.patient()),
       algorithm);
  require(sum == scope.size * (scope.size + 1) / 2, "the group does not add right any more");
}

/// Inputs of all ranks and what must come out.
struct Reduction {
  DType dtype;
  ReduceOp op;
  std::size_t count;
  std::vector<Bytes> inputs;
  Bytes wanted;

  std::string label() const {
    return std::string(name_of(op)) + " of " + std::to_string(count) + " " +
           std::string(name_of(dtype));
  }
};

inline Reduction exact_reduction(DType dtype, ReduceOp op, std::size_t count, int size) {
  Reduction result{dtype, op, count, {}, {}};
  for (int rank = 0; rank < size; ++rank)
    result.inputs.push_back(exact_values(dtype, op, rank, count));
  result.wanted = expected(dtype, op, result.inputs);
  return result;
}

/// 0, 1, p-1, p, p+1, an odd number, and one that takes several chunks.
inline std::vector<std::size_t> interesting_counts(int size) {
  const std::size_t p = static_cast<std::size_t>(size);
  std::vector<std::size_t> counts = {0, 1, p - 1, p, p + 1, 37, 10007};
  std::sort(counts.begin(), counts.end());
  counts.erase(std::unique(counts.begin(), counts.end()), counts.end());
  return counts;
}

inline bool is_reducible(ReduceOp op, DType dtype) {
  return op != ReduceOp::avg || is_floating(dtype);
}

}  // namespace hpcomm::testing
