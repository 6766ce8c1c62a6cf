#include "support/processes.hpp"

#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <stdexcept>
#include <utility>

#include "core/surroundings.hpp"

namespace hpcomm::testing {
namespace {

constexpr int kMaxRanks = 8;
constexpr std::size_t kMessageBytes = 16 * 1024;

// Anonymous shared memory that the children inherit.
struct Board {
  std::atomic<int> arrived{0};
  std::atomic<unsigned> round{0};
  std::size_t lengths[kMaxRanks]{};
  char messages[kMaxRanks][kMessageBytes]{};
  char results[kMaxRanks][kMessageBytes]{};
};

void barrier(Board& board, int size) {
  const unsigned round = board.round.load();
  if (board.arrived.fetch_add(1) + 1 == size) {
    board.arrived.store(0);
    board.round.fetch_add(1);
    return;
  }
  while (board.round.load() == round) sched_yield();
}

std::vector<std::string> allgather(Board& board, int rank, int size, const std::string& message) {
  if (message.size() > kMessageBytes)
    throw std::length_error("message too long for the test's board");
  board.lengths[rank] = message.size();
  std::memcpy(board.messages[rank], message.data(), message.size());
  barrier(board, size);
  std::vector<std::string> all;
  for (int peer = 0; peer < size; ++peer)
    all.emplace_back(board.messages[peer], board.lengths[peer]);
  barrier(board, size);
  return all;
}

[[noreturn]] void run_child(Board& board, int rank, int size,
                            const std::function<std::string(ProcessScope&)>& body) {
  int code = 0;
  std::string text;
  try {
    ProcessScope scope{rank, size, [&board, rank, size](const std::string& message) {
                         return allgather(board, rank, size, message);
                       }};
    text = body(scope);
    Communicator::shutdown_all();
  } catch (const std::exception& error) {
    code = 1;
    text = std::string("error: ") + error.what();
  }
  std::snprintf(board.results[rank], kMessageBytes, "%s", text.c_str());
  _exit(code);  // no destructors of the parent's objects
}

}  // namespace

std::vector<ProcessResult> run_processes(int size,
                                         const std::function<std::string(ProcessScope&)>& body,
                                         double limit_s) {
  void* memory =
      mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  auto* board = new (memory) Board;
  std::vector<pid_t> children;
  for (int rank = 0; rank < size; ++rank) {
    const pid_t child = fork();
    if (child == 0) run_child(*board, rank, size, body);
    children.push_back(child);
  }
  const double until_s = monotonic_s() + limit_s;
  std::vector<ProcessResult> results(children.size());
  for (std::size_t rank = 0; rank < children.size(); ++rank) {
    int status = 0;
    while (waitpid(children[rank], &status, WNOHANG) == 0) {
      if (monotonic_s() > until_s) {
        kill(children[rank], SIGKILL);
        waitpid(children[rank], &status, 0);
        break;
      }
      usleep(500);
    }
    ProcessResult& result = results[rank];
    result.exited = WIFEXITED(status);
    if (result.exited) result.code = WEXITSTATUS(status);
    if (WIFSIGNALED(status)) result.signal = WTERMSIG(status);
    result.text = board->results[rank];
  }
  munmap(memory, sizeof(Board));
  return results;
}

boost::test_tools::assertion_result forked_ranks_may_start_threads(boost::unit_test::test_unit_id) {
#if defined(__SANITIZE_THREAD__)
  boost::test_tools::assertion_result skipped(false);
  skipped.message() << "the thread sanitizer does not support new threads after a fork";
  return skipped;
#else
  return true;
#endif
}

std::shared_ptr<Communicator> make_communicator(ProcessScope& scope, CommunicatorOptions options) {
  options.rank = scope.rank;
  options.size = scope.size;
  return Communicator::create(std::move(options), scope.exchange);
}

}  // namespace hpcomm::testing
