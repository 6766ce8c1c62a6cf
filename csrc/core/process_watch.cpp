#include "core/process_watch.hpp"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif

namespace hpcomm {
namespace {

struct ProcessStatus {
  char state = 0;  // 0: no such process
  std::uint64_t start_time = 0;
};

ProcessStatus read_status(pid_t pid) noexcept {
  char path[64];
  std::snprintf(path, sizeof path, "/proc/%d/stat", static_cast<int>(pid));
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return {};
  char text[2048];
  const ssize_t length = read(fd, text, sizeof text - 1);
  ::close(fd);
  if (length <= 0) return {};
  text[length] = '\0';
  // The second field, the command in parentheses, may itself hold spaces and parentheses.
  const char* after_command = std::strrchr(text, ')');
  if (after_command == nullptr) return {};
  ProcessStatus status;
  unsigned long long start = 0;
  const int fields = std::sscanf(
      after_command + 1,
      " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu",
      &status.state, &start);
  if (fields != 2) return {};
  status.start_time = start;
  return status;
}

bool runs(const ProcessStatus& status) noexcept {
  return status.state != 0 && status.state != 'Z' && status.state != 'X' && status.state != 'x';
}

}  // namespace

std::uint64_t process_start_time(pid_t pid) { return read_status(pid).start_time; }

std::shared_ptr<ProcessWatch> ProcessWatch::of(pid_t pid, std::uint64_t start_time) {
  // Leaked, so that communicators may outlive the static objects of this file.
  static auto* mutex = new std::mutex;
  static auto* watches = new std::map<std::pair<pid_t, std::uint64_t>, std::weak_ptr<ProcessWatch>>;
  const std::lock_guard lock(*mutex);
  std::weak_ptr<ProcessWatch>& known = (*watches)[{pid, start_time}];
  std::shared_ptr<ProcessWatch> watch = known.lock();
  if (watch == nullptr) {
    watch = std::make_shared<ProcessWatch>(pid, start_time);
    known = watch;
  }
  return watch;
}

ProcessWatch::ProcessWatch(pid_t pid, std::uint64_t start_time)
    : pid_(pid),
      start_time_(start_time),
      visible_(process_start_time(pid) == start_time && start_time != 0) {
  if (visible_ && pid_ != getpid()) pidfd_ = static_cast<int>(syscall(SYS_pidfd_open, pid_, 0U));
}

ProcessWatch::~ProcessWatch() {
  if (pidfd_ >= 0) ::close(pidfd_);
}

bool ProcessWatch::alive() const noexcept {
  if (!visible_ || pid_ == getpid()) return true;
  if (pidfd_ >= 0) {
    pollfd entry{pidfd_, POLLIN, 0};
    return poll(&entry, 1, 0) <=
           0;  // readable: the process has ended, even if nobody waited for it yet
  }
  const ProcessStatus status = read_status(pid_);
  return runs(status) && status.start_time == start_time_;
}

}  // namespace hpcomm
