// How many CPUs this process may use.
#pragma once

#include <string>
#include <string_view>

namespace hpcomm {

/// The affinity mask, one bit per CPU, bytes in ascending order: to be exchanged and united.
std::string cpu_mask();
int count_cpus(std::string_view mask) noexcept;
std::string unite_masks(std::string_view a, std::string_view b);
/// CPUs that the control group's quota is worth, rounded up; 0 where there is no quota.
int cpu_quota();

}  // namespace hpcomm
