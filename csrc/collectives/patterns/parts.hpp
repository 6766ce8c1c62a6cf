// How a vector of elements is divided among ranks: pure arithmetic, safe beyond 2^31 elements.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

namespace hpcomm {

class Parts {
 public:
  /// `total` elements over `size` ranks; the first total % size parts are one element longer.
  static Parts even(std::size_t total, int size) {
    const std::size_t ranks = static_cast<std::size_t>(size);
    return Parts(size, total / ranks, total % ranks);
  }
  /// `each` elements per rank.
  static Parts uniform(std::size_t each, int size) { return Parts(size, each, 0); }
  /// As given, one count per rank.
  static Parts of_counts(std::span<const std::size_t> counts) {
    Parts parts(static_cast<int>(counts.size()), 0, 0);
    parts.offsets_.assign(1, 0);
    for (const std::size_t count : counts) parts.offsets_.push_back(parts.offsets_.back() + count);
    return parts;
  }

  int size() const noexcept { return size_; }
  std::size_t offset(int part) const noexcept {
    const std::size_t i = static_cast<std::size_t>(part);
    return offsets_.empty() ? i * base_ + std::min(i, longer_) : offsets_[i];
  }
  std::size_t count(int part) const noexcept { return offset(part + 1) - offset(part); }
  std::size_t total() const noexcept { return offset(size_); }
  std::size_t largest() const noexcept {
    if (offsets_.empty()) return base_ + (longer_ > 0 ? 1 : 0);
    std::size_t result = 0;
    for (int part = 0; part < size_; ++part) result = std::max(result, count(part));
    return result;
  }

 private:
  Parts(int size, std::size_t base, std::size_t longer)
      : size_(size), base_(base), longer_(longer) {}

  int size_;
  std::size_t base_;
  std::size_t longer_;                // so many parts have base_ + 1 elements
  std::vector<std::size_t> offsets_;  // in use where counts were given; size_ + 1 of them
};

/// A window [begin, begin + count) of the elements of some part, cut to what the part has.
struct Window {
  std::size_t begin;
  std::size_t count;
};

constexpr Window window_of(std::size_t index, std::size_t length, std::size_t total) noexcept {
  const std::size_t begin = std::min(index * length, total);
  return {begin, std::min(length, total - begin)};
}

/// Windows of `length` that cover `total`; at least one, so that empty vectors take part.
constexpr std::size_t num_windows(std::size_t length, std::size_t total) noexcept {
  return total == 0 ? 1 : (total - 1) / length + 1;
}

}  // namespace hpcomm
