#include "support/communicators.hpp"

#include <condition_variable>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <thread>
#include <utility>

namespace hpcomm::testing {

struct ThreadBoard::Inside {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::string> messages;
  std::vector<std::string> gathered;
  int arrived = 0;
  unsigned round = 0;
  bool given_up = false;
};

ThreadBoard::ThreadBoard(int size) : inside_(std::make_shared<Inside>()) {
  inside_->messages.resize(static_cast<std::size_t>(size));
}

ThreadBoard::~ThreadBoard() = default;

void ThreadBoard::give_up() {
  const std::lock_guard lock(inside_->mutex);
  inside_->given_up = true;
  inside_->changed.notify_all();
}

Exchange ThreadBoard::exchange(int rank) {
  return [inside = inside_, rank](const std::string& message) {
    std::unique_lock lock(inside->mutex);
    inside->messages[static_cast<std::size_t>(rank)] = message;
    const unsigned round = inside->round;
    if (++inside->arrived == static_cast<int>(inside->messages.size())) {
      inside->arrived = 0;
      inside->gathered = inside->messages;
      ++inside->round;
      inside->changed.notify_all();
    }
    inside->changed.wait(lock, [&] { return inside->round != round || inside->given_up; });
    if (inside->round == round) throw std::runtime_error("another rank failed before the exchange");
    return inside->gathered;
  };
}

void run_communicators(int size, const std::function<void(Communicator&)>& body,
                       const CommunicatorOptions& options) {
  ThreadBoard board(size);
  std::mutex mutex;
  std::optional<std::string> failure;
  const auto run_rank = [&](int rank) {
    std::shared_ptr<Communicator> communicator;
    try {
      CommunicatorOptions own = options;
      own.rank = rank;
      own.size = size;
      communicator = Communicator::create(own, board.exchange(rank));
      body(*communicator);
      communicator->close();
    } catch (const std::exception& error) {
      {
        const std::lock_guard lock(mutex);
        if (!failure) failure = "rank " + std::to_string(rank) + ": " + error.what();
      }
      board.give_up();
      if (communicator) communicator->abort(error.what());
    }
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) threads.emplace_back(run_rank, rank);
  for (std::thread& thread : threads) thread.join();
  if (failure) throw std::runtime_error(*failure);
}

std::vector<std::byte> pattern(std::size_t nbytes, unsigned seed) {
  std::vector<std::byte> data(nbytes);
  for (std::size_t i = 0; i < nbytes; ++i)
    data[i] = static_cast<std::byte>((i * 131 + i / 251 + seed * 17) & 255U);
  return data;
}

CollectiveRequest sum_of(std::vector<float>& values) {
  CollectiveRequest request;
  request.kind = Collective::allreduce;
  request.dtype = DType::f32;
  request.op = ReduceOp::sum;
  request.count = values.size();
  request.recv = {reinterpret_cast<std::byte*>(values.data()), values.size() * sizeof(float)};
  request.send = request.recv;
  return request;
}

}  // namespace hpcomm::testing
