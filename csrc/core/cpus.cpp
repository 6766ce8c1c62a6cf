#include "core/cpus.hpp"

#include <sched.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <fstream>
#include <vector>

namespace hpcomm {
namespace {

constexpr std::size_t kMaskBytes = 1024;  // 8192 CPUs, the most a Linux kernel is built for

int cpus_of(double quota, double period) {
  return quota > 0 && period > 0 ? std::max(1, static_cast<int>(std::ceil(quota / period))) : 0;
}

int smaller_quota(int a, int b) { return a == 0 ? b : (b == 0 ? a : std::min(a, b)); }

int quota_v2(const std::string& folder) {
  std::ifstream file(folder + "/cpu.max");
  std::string quota;
  double period = 0;
  if (!(file >> quota >> period) || quota == "max") return 0;
  return cpus_of(std::strtod(quota.c_str(), nullptr), period);
}

int quota_v1(const std::string& folder) {
  double quota = 0;
  double period = 0;
  std::ifstream quota_file(folder + "/cpu.cfs_quota_us");
  std::ifstream period_file(folder + "/cpu.cfs_period_us");
  return quota_file >> quota && period_file >> period ? cpus_of(quota, period) : 0;
}

// A group is bound by the quotas of all groups above it.
template <class Read>
int smallest_up_to(const std::string& root, std::string path, Read read) {
  int smallest = read(root);
  while (path.size() > 1) {
    smallest = smaller_quota(smallest, read(root + path));
    path.resize(path.find_last_of('/'));
  }
  return smallest;
}

}  // namespace

std::string cpu_mask() {
  std::string mask(kMaskBytes, '\0');
  cpu_set_t* set = reinterpret_cast<cpu_set_t*>(mask.data());
  if (sched_getaffinity(0, kMaskBytes, set) != 0) return std::string(1, '\1');
  mask.resize(mask.find_last_not_of('\0') + 1);
  return mask;
}

int count_cpus(std::string_view mask) noexcept {
  int count = 0;
  for (const char byte : mask) count += std::popcount(static_cast<unsigned char>(byte));
  return count;
}

std::string unite_masks(std::string_view a, std::string_view b) {
  std::string united(std::max(a.size(), b.size()), '\0');
  for (std::size_t i = 0; i < a.size(); ++i) united[i] = a[i];
  for (std::size_t i = 0; i < b.size(); ++i) united[i] = static_cast<char>(united[i] | b[i]);
  return united;
}

int cpu_quota() {
  int quota = 0;
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    if (controllers.empty())
      quota = smaller_quota(quota, smallest_up_to("/sys/fs/cgroup", path, quota_v2));
    if (controllers == "cpu" || controllers.starts_with("cpu,") || controllers.ends_with(",cpu"))
      quota = smaller_quota(quota, smallest_up_to("/sys/fs/cgroup/cpu", path, quota_v1));
  }
  return quota;
}

}  // namespace hpcomm
