// Whether another process of this machine still runs.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>

namespace hpcomm {

/// Start time of a process in clock ticks since boot; 0 if there is no such process. With the pid
/// it names a process once and for all, while a pid alone may be used again.
std::uint64_t process_start_time(pid_t pid);

/// Shared by all who watch the same process; thread-safe.
class ProcessWatch {
 public:
  static std::shared_ptr<ProcessWatch> of(pid_t pid, std::uint64_t start_time);
  ProcessWatch(pid_t pid, std::uint64_t start_time);
  ~ProcessWatch();
  ProcessWatch(const ProcessWatch&) = delete;
  ProcessWatch& operator=(const ProcessWatch&) = delete;

  /// False once the process has ended, reaped or not. One system call.
  bool alive() const noexcept;
  pid_t pid() const noexcept { return pid_; }

 private:
  pid_t pid_;
  std::uint64_t start_time_;
  bool visible_;  // false where the pid cannot be seen from here (other pid namespace): then always
                  // "alive"
  int pidfd_ = -1;  // -1: not supported, /proc is read instead
};

}  // namespace hpcomm
