// Enough of MPI for the core's transport, among threads of one process: matching in order, eager
// and rendezvous messages, errors. Compiled once per width of handles, as a library that is found
// at run time like a real MPI.
#include "fake_mpi/fake_mpi.hpp"

#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <vector>

#define FAKE_MPI_API extern "C" __attribute__((visibility("default")))

namespace {

using Handle = FAKE_MPI_HANDLE;

constexpr int kAnySource = -2;
constexpr int kErrTruncate = 15;
constexpr int kErrOther = 16;

struct Request {
  bool is_receive = false;
  bool complete = false;
  int error = 0;
  void* data = nullptr;
  std::size_t count = 0;
  int from = 0;
  int tag = 0;
};

struct Message {
  int from = 0;
  int tag = 0;
  std::vector<char> eager;
  const void* source = nullptr;  // not eager: still the sender's
  std::size_t count = 0;
  std::shared_ptr<Request> send;
};

struct Rank {
  std::deque<Message> arrived;
  std::deque<std::shared_ptr<Request>> posted;
  bool fails_next_send = false;
};

struct World {
  std::mutex mutex;
  std::vector<Rank> ranks;
  std::map<std::uintptr_t, std::shared_ptr<Request>> requests;
  std::uintptr_t last_request = 0;
  std::size_t eager_bytes = 0;
  int blindness = 0;
  std::mt19937 random{7};
};
World world;

// Handles have high bits set, as real ones may.
constexpr std::uintptr_t kCommBase = sizeof(Handle) == 4 ? 0x84000000U : 0x7f0012340000U;

std::uintptr_t bits(Handle handle) {
  std::uintptr_t value = 0;
  std::memcpy(&value, &handle, sizeof handle);
  return value;
}
Handle handle_of(std::uintptr_t value) {
  Handle handle{};
  std::memcpy(&handle, &value, sizeof handle);
  return handle;
}
std::size_t rank_of(Handle comm) { return bits(comm) - kCommBase; }

bool matches(int wanted_from, int wanted_tag, const Message& message) {
  return (wanted_from == kAnySource || wanted_from == message.from) && wanted_tag == message.tag;
}

void deliver(Request& receive, Message& message) {
  if (message.count > receive.count) {
    receive.error = kErrTruncate;
  } else if (message.count > 0) {
    std::memcpy(receive.data, message.source != nullptr ? message.source : message.eager.data(),
                message.count);
  }
  receive.complete = true;
  message.send->complete = true;
}

Handle remember(std::shared_ptr<Request> request) {
  const std::uintptr_t number = ++world.last_request;
  world.requests[number] = std::move(request);
  return handle_of(number);
}

}  // namespace

FAKE_MPI_API void fake_mpi_begin(int size, std::size_t eager_bytes, int blindness) {
  const std::lock_guard lock(world.mutex);
  world.ranks = std::vector<Rank>(static_cast<std::size_t>(size));
  world.requests.clear();
  world.eager_bytes = eager_bytes;
  world.blindness = blindness;
}

FAKE_MPI_API std::uint64_t fake_mpi_comm(int rank) {
  return kCommBase + static_cast<std::uint64_t>(rank);
}

FAKE_MPI_API void fake_mpi_fail_next_send(int rank) {
  const std::lock_guard lock(world.mutex);
  world.ranks[static_cast<std::size_t>(rank)].fails_next_send = true;
}

FAKE_MPI_API int fake_mpi_leftovers() {
  const std::lock_guard lock(world.mutex);
  std::size_t left = 0;
  for (const Rank& rank : world.ranks) left += rank.arrived.size() + rank.posted.size();
  return static_cast<int>(left);
}

FAKE_MPI_API int MPI_Isend(const void* data, int count, Handle, int to, int tag, Handle comm,
                           Handle* request) {
  const std::lock_guard lock(world.mutex);
  Rank& own = world.ranks[rank_of(comm)];
  if (own.fails_next_send) {
    own.fails_next_send = false;
    return kErrOther;
  }
  Message message;
  message.from = static_cast<int>(rank_of(comm));
  message.tag = tag;
  message.count = static_cast<std::size_t>(count);
  message.send = std::make_shared<Request>();
  *request = remember(message.send);
  Rank& target = world.ranks[static_cast<std::size_t>(to)];
  message.source = data;
  const auto waiting = std::find_if(
      target.posted.begin(), target.posted.end(),
      [&](const auto& receive) { return matches(receive->from, receive->tag, message); });
  if (waiting != target.posted.end()) {
    deliver(**waiting, message);
    target.posted.erase(waiting);
    return 0;
  }
  if (message.count <= world.eager_bytes) {
    message.eager.assign(static_cast<const char*>(data), static_cast<const char*>(data) + count);
    message.source = nullptr;
    message.send->complete = true;
  }
  target.arrived.push_back(std::move(message));
  return 0;
}

FAKE_MPI_API int MPI_Irecv(void* data, int count, Handle, int from, int tag, Handle comm,
                           Handle* request) {
  const std::lock_guard lock(world.mutex);
  auto receive = std::make_shared<Request>();
  receive->is_receive = true;
  receive->data = data;
  receive->count = static_cast<std::size_t>(count);
  receive->from = from;
  receive->tag = tag;
  *request = remember(receive);
  Rank& own = world.ranks[rank_of(comm)];
  const auto here =
      std::find_if(own.arrived.begin(), own.arrived.end(),
                   [&](const Message& message) { return matches(from, tag, message); });
  if (here == own.arrived.end()) {
    own.posted.push_back(std::move(receive));
    return 0;
  }
  deliver(*receive, *here);
  own.arrived.erase(here);
  return 0;
}

FAKE_MPI_API int MPI_Test(Handle* request, int* flag, void*) {
  const std::lock_guard lock(world.mutex);
  const auto found = world.requests.find(bits(*request));
  if (found == world.requests.end()) return kErrOther;
  *flag = found->second->complete ? 1 : 0;
  if (!found->second->complete) return 0;
  const int error = found->second->error;
  world.requests.erase(found);
  *request = handle_of(0);
  return error;
}

FAKE_MPI_API int MPI_Iprobe(int from, int tag, Handle comm, int* flag, void* status) {
  const std::lock_guard lock(world.mutex);
  *flag = 0;
  if (static_cast<int>(world.random() % 100) < world.blindness) return 0;
  const Rank& own = world.ranks[rank_of(comm)];
  const auto here =
      std::find_if(own.arrived.begin(), own.arrived.end(),
                   [&](const Message& message) { return matches(from, tag, message); });
  if (here == own.arrived.end()) return 0;
  *flag = 1;
  std::memcpy(static_cast<char*>(status) + 24, &here->count,
              sizeof here->count);  // anywhere: only MPI reads it
  return 0;
}

FAKE_MPI_API int MPI_Get_count(const void* status, Handle, int* count) {
  std::size_t bytes = 0;
  std::memcpy(&bytes, static_cast<const char*>(status) + 24, sizeof bytes);
  *count = static_cast<int>(bytes);
  return 0;
}

FAKE_MPI_API int MPI_Cancel(Handle*) { return 0; }

FAKE_MPI_API int MPI_Request_free(Handle* request) {
  const std::lock_guard lock(world.mutex);
  world.requests.erase(bits(*request));
  *request = handle_of(0);
  return 0;
}

FAKE_MPI_API int MPI_Error_string(int code, char* text, int* length) {
  const char* message =
      code == kErrTruncate ? "the fake MPI truncated a message" : "the fake MPI was told to fail";
  std::strcpy(text, message);
  *length = static_cast<int>(std::strlen(message));
  return 0;
}

FAKE_MPI_API int MPI_Comm_set_errhandler(Handle, Handle) { return 0; }

FAKE_MPI_API int MPI_Finalized(int* flag) {
  *flag = 0;
  return 0;
}
