// Runs ranks as processes of this machine (forked), for what threads cannot show: mappings between
// processes, deaths.
#pragma once

#include <sys/types.h>

#include <boost/test/unit_test.hpp>
#include <functional>
#include <string>
#include <vector>

#include "runtime/communicator.hpp"

namespace hpcomm::testing {

/// What a forked rank may use.
struct ProcessScope {
  int rank;
  int size;
  Exchange exchange;  // among all ranks of this run
};

struct ProcessResult {
  bool exited = false;  // by itself
  int code = -1;        // 0 unless the body threw
  int signal = 0;       // that ended it
  std::string text;     // what the body returned, or "error: " and what it threw
};

/// Forks `size` children that run `body`, and waits for all; kills them after `limit_s`. Nothing is
/// left behind.
std::vector<ProcessResult> run_processes(int size,
                                         const std::function<std::string(ProcessScope&)>& body,
                                         double limit_s = 60);

/// Precondition of cases whose forked ranks start threads: the thread sanitizer loses its bearings
/// then.
boost::test_tools::assertion_result forked_ranks_may_start_threads(boost::unit_test::test_unit_id);

/// A communicator of all ranks of the run.
std::shared_ptr<Communicator> make_communicator(ProcessScope& scope,
                                                CommunicatorOptions options = {});

}  // namespace hpcomm::testing
