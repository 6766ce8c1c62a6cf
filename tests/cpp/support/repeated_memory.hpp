// Buffers longer than the memory behind them: one small block mapped again and again.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <stdexcept>

#include "core/buffer.hpp"

namespace hpcomm::testing {

/// `nbytes` of addresses whose content repeats every kPeriod bytes, since it is the same memory.
class RepeatedMemory {
 public:
  static constexpr std::size_t kPeriod = std::size_t{1} << 21U;

  explicit RepeatedMemory(std::size_t nbytes)
      : nbytes_(nbytes), mapped_((nbytes + kPeriod - 1) / kPeriod * kPeriod) {
    const int file = memfd_create("repeated", 0);
    void* base =
        mmap(nullptr, mapped_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    bool ok = file >= 0 && ftruncate(file, kPeriod) == 0 && base != MAP_FAILED;
    data_ = static_cast<std::byte*>(base);
    for (std::size_t at = 0; ok && at < mapped_; at += kPeriod)
      ok = mmap(data_ + at, kPeriod, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | MAP_POPULATE,
                file, 0) != MAP_FAILED;
    if (file >= 0) close(file);
    if (!ok) throw std::runtime_error("could not map memory repeatedly");
  }
  ~RepeatedMemory() { munmap(data_, mapped_); }
  RepeatedMemory(const RepeatedMemory&) = delete;
  RepeatedMemory& operator=(const RepeatedMemory&) = delete;

  std::byte* data() { return data_; }
  Buffer buffer() { return {data_, nbytes_}; }

 private:
  std::size_t nbytes_;
  std::size_t mapped_;
  std::byte* data_ = nullptr;
};

}  // namespace hpcomm::testing
