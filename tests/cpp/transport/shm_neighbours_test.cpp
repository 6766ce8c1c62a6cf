// Processes that map each other's memory, by every way there is.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <boost/test/unit_test.hpp>
#include <filesystem>
#include <string>
#include <thread>

#include "support/communicators.hpp"
#include "support/processes.hpp"
#include "support/ranks.hpp"
#include "transport/shm/neighbours.hpp"

namespace hpcomm::testing {

BOOST_AUTO_TEST_SUITE(transport)
BOOST_AUTO_TEST_SUITE(shm_neighbours)

namespace {

int count_in(const std::string& folder, const std::string& part_of_target) {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    std::error_code error;
    const std::string name = entry.path().filename();
    const std::string target = std::filesystem::read_symlink(entry.path(), error);
    if ((error ? name : target).find(part_of_target) != std::string::npos) ++count;
  }
  return count;
}

int names_in_dev_shm() { return count_in("/dev/shm", "hpcomm-"); }

void require_success(const std::vector<ProcessResult>& results) {
  for (std::size_t rank = 0; rank < results.size(); ++rank)
    BOOST_TEST(results[rank].code == 0,
               "rank " << rank << ": " << results[rank].text << " signal " << results[rank].signal);
}

// A ring of messages, and an allreduce over the control lines.
std::string talk(Communicator& comm) {
  const int next = (comm.rank() + 1) % comm.size();
  const int previous = (comm.rank() + comm.size() - 1) % comm.size();
  const auto sent = pattern(300'000, static_cast<unsigned>(comm.rank()));
  std::vector<std::byte> received(300'000);
  const auto work = comm.isend(bytes_of(sent), next, 1);
  comm.recv(bytes_of(received), previous, 1);
  work->wait();
  require(received == pattern(300'000, static_cast<unsigned>(previous)), "wrong bytes");
  std::vector<float> values(1000, static_cast<float>(comm.rank() + 1));
  comm.collective(sum_of(values));
  require(values[999] == static_cast<float>(comm.size() * (comm.size() + 1) / 2), "wrong sum");
  return "";
}

}  // namespace

BOOST_AUTO_TEST_CASE(
    every_route_to_a_peers_memory_gives_a_working_communicator_and_leaves_nothing_open) {
  const int before = names_in_dev_shm();
  for (const char* routes : {"proc", "socket", "named", "proc,socket,named"}) {
    const auto results = run_processes(3, [&](ProcessScope& scope) {
      CommunicatorOptions options;
      options.shm_routes = routes;
      const auto comm = make_communicator(scope, options);
      require(comm->layout().num_nodes == 1, std::string("not one node by ") + routes);
      require(comm->transport_name(0) == "shm", "not over shared memory");
      require(count_in("/proc/self/fd", "hpcomm") == 0,
              std::string("an open descriptor is left by ") + routes);
      require(names_in_dev_shm() == before, std::string("a name is left by ") + routes);
      return talk(*comm);
    });
    require_success(results);
  }
}

BOOST_AUTO_TEST_CASE(ranks_without_a_common_memory_and_without_mpi_are_told_so_on_every_rank) {
  const auto results = run_processes(2, [](ProcessScope& scope) {
    CommunicatorOptions options;
    options.ranks_per_node = 1;
    return error_text(Errc::unsupported, [&] { make_communicator(scope, options); });
  });
  require_success(results);
  BOOST_TEST(results[0].text == results[1].text);
  BOOST_TEST(results[0].text.find("mpiexec") != std::string::npos, results[0].text);
}

BOOST_AUTO_TEST_CASE(a_rank_without_memory_makes_creation_fail_with_the_same_error_everywhere) {
  const auto results = run_processes(2, [](ProcessScope& scope) {
    CommunicatorOptions options;
    if (scope.rank == 1)
      options.ring_bytes = std::size_t{1} << 46U;  // more than there are addresses
    return error_text(Errc::transport, [&] { make_communicator(scope, options); });
  });
  require_success(results);
  BOOST_TEST(results[0].text == results[1].text);
  BOOST_TEST(results[0].text.find("rank 1") != std::string::npos, results[0].text);
  BOOST_TEST(results[0].text.find("HPCOMM_RING_BYTES") != std::string::npos, results[0].text);
}

BOOST_AUTO_TEST_CASE(ranks_with_different_sizes_are_a_mismatch) {
  const auto results = run_processes(2, [](ProcessScope& scope) {
    CommunicatorOptions options;
    options.ring_bytes = scope.rank == 0 ? 8192 : 16384;
    return error_text(Errc::mismatch, [&] { make_communicator(scope, options); });
  });
  require_success(results);
  BOOST_TEST(results[0].text == results[1].text);
}

BOOST_AUTO_TEST_CASE(a_segment_with_another_nonce_is_not_mapped) {
  const shm::Geometry geometry{2, 4096, 4096};
  const shm::Segment segment = shm::Segment::create(geometry, 0, shm::make_nonce());
  std::string why_not;
  BOOST_TEST(
      !shm::Segment::map(dup(segment.descriptor()), geometry, 0, shm::make_nonce(), why_not));
  BOOST_TEST(why_not == "the memory of somebody else");
  const shm::Geometry larger{2, 4096, 8192};
  BOOST_TEST(
      !shm::Segment::map(dup(segment.descriptor()), larger, 0, segment.header().nonce, why_not));
  BOOST_TEST(why_not == "another size than announced");
}

BOOST_AUTO_TEST_CASE(killed_ranks_leave_no_name_behind) {
  const int before = names_in_dev_shm();
  for (const char* routes : {"proc", "named"}) {
    const auto results = run_processes(2, [&](ProcessScope& scope) {
      CommunicatorOptions options;
      options.shm_routes = routes;
      const auto comm = make_communicator(scope, options);
      talk(*comm);
      kill(getpid(), SIGKILL);
      return std::string();
    });
    for (const ProcessResult& result : results) BOOST_TEST(result.signal == SIGKILL);
  }
  BOOST_TEST(names_in_dev_shm() == before);
}

BOOST_AUTO_TEST_SUITE_END()
BOOST_AUTO_TEST_SUITE_END()

}  // namespace hpcomm::testing
