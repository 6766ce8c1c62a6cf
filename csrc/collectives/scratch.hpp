// Temporary memory of one call, aligned to cache lines, not initialised.
#pragma once

#include <cstddef>
#include <memory>
#include <new>

namespace hpcomm {

class Scratch {
 public:
  explicit Scratch(std::size_t nbytes)
      : data_(static_cast<std::byte*>(::operator new(nbytes, kAlignment))) {}
  std::byte* data() noexcept { return data_.get(); }

 private:
  static constexpr std::align_val_t kAlignment{64};
  struct Free {
    void operator()(std::byte* data) const noexcept { ::operator delete(data, kAlignment); }
  };
  std::unique_ptr<std::byte, Free> data_;
};

}  // namespace hpcomm
