// Non-owning views of contiguous host memory.
#pragma once

#include <cstddef>

namespace hpcomm {

struct ConstBuffer {
  const std::byte* data = nullptr;
  std::size_t nbytes = 0;
};

struct Buffer {
  std::byte* data = nullptr;
  std::size_t nbytes = 0;
  operator ConstBuffer() const noexcept {
    return {data, nbytes};
  }  // NOLINT: a writable view is a readable one
  Buffer slice(std::size_t offset, std::size_t length) const noexcept {
    return {data + offset, length};
  }
};

inline ConstBuffer slice(ConstBuffer whole, std::size_t offset, std::size_t length) noexcept {
  return {whole.data + offset, length};
}

}  // namespace hpcomm
