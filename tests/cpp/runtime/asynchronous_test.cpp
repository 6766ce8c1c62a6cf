// Asynchronous operations: order, progress without help, several communicators, owners of buffers.
#include <sys/resource.h>
#include <time.h>

#include <boost/test/unit_test.hpp>
#include <string>
#include <thread>

#include "support/communicators.hpp"
#include "support/ranks.hpp"

namespace hpcomm::testing {

BOOST_AUTO_TEST_SUITE(runtime)
BOOST_AUTO_TEST_SUITE(asynchronous)

namespace {

void wait_until_done(const Work& work) {
  const double until_s = monotonic_s() + 30;
  while (!work.done()) {
    require(monotonic_s() < until_s, work.what() + " makes no progress by itself");
    std::this_thread::yield();
  }
}

double process_cpu_s() {
  timespec used{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) + 1e-9 * static_cast<double>(used.tv_nsec);
}

}  // namespace

BOOST_AUTO_TEST_CASE(collectives_of_one_communicator_run_in_the_order_of_submission) {
  run_communicators(3, [](Communicator& comm) {
    constexpr int kOperations = 40;
    std::vector<float> values(257, 1.0F);
    std::vector<std::shared_ptr<Work>> works;
    // All on the same buffer: only in order, one after the other, do they triple it each time.
    for (int i = 0; i < kOperations / 2; ++i) works.push_back(comm.icollective(sum_of(values)));
    for (const auto& work : works) work->wait();
    float expected = 1;
    for (int i = 0; i < kOperations / 2; ++i) expected *= 3;
    for (const float value : values) require(value == expected, "got " + std::to_string(value));
    for (std::size_t i = 1; i < works.size(); ++i)
      require(works[i - 1]->completed_ns() <= works[i]->completed_ns(), "completed out of order");
  });
}

BOOST_AUTO_TEST_CASE(a_blocking_collective_queues_behind_pending_ones) {
  run_communicators(2, [](Communicator& comm) {
    std::vector<float> values(70'000, 1.0F);
    const auto first = comm.icollective(sum_of(values));
    const auto second = comm.icollective(sum_of(values));
    comm.collective(sum_of(values));
    require(first->done() && second->done(), "overtook what was submitted before");
    require(values.front() == 8.0F && values.back() == 8.0F, "wrong sum");
  });
}

BOOST_AUTO_TEST_CASE(operations_complete_without_any_call_of_the_user) {
  run_communicators(2, [](Communicator& comm) {
    std::vector<float> values(300'000, 2.0F);
    const auto collective = comm.icollective(sum_of(values));
    wait_until_done(*collective);
    require(values.back() == 4.0F, "wrong sum");
    const std::size_t nbytes = 5 << 20;  // larger than a ring
    const auto sent = pattern(nbytes, static_cast<unsigned>(comm.rank()));
    std::vector<std::byte> received(nbytes);
    const auto receive = comm.irecv(bytes_of(received), 1 - comm.rank(), 0);
    const auto send = comm.isend(bytes_of(sent), 1 - comm.rank(), 0);
    wait_until_done(*receive);
    wait_until_done(*send);
    require(received == pattern(nbytes, static_cast<unsigned>(1 - comm.rank())), "wrong bytes");
    comm.collective({});
  });
}

BOOST_AUTO_TEST_CASE(communicators_may_be_used_in_another_order_on_each_rank) {
  ThreadBoard board(2);
  run_communicators(2, [&](Communicator& first) {
    CommunicatorOptions options;
    options.name = "second";
    options.rank = first.rank();
    options.size = 2;
    const auto second = Communicator::create(options, board.exchange(first.rank()));
    for (int round = 0; round < 20; ++round) {
      std::vector<float> a(50'000, 1.0F);
      std::vector<float> b(50'000, 2.0F);
      const bool swapped = first.rank() == 1;
      const auto one = swapped ? second->icollective(sum_of(b)) : first.icollective(sum_of(a));
      const auto two = swapped ? first.icollective(sum_of(a)) : second->icollective(sum_of(b));
      wait_until_done(*one);
      wait_until_done(*two);
      one->wait();
      two->wait();
      require(a.back() == 2.0F && b.back() == 4.0F, "wrong sums");
    }
    second->close();
  });
}

BOOST_AUTO_TEST_CASE(messages_pass_while_a_collective_of_the_same_communicator_waits) {
  run_communicators(2, [](Communicator& comm) {
    std::vector<float> values(1000, 1.0F);
    std::vector<std::byte> received(64);
    if (comm.rank() == 0) {
      const auto collective = comm.icollective(sum_of(values));
      comm.send(bytes_of(pattern(64, 1)), 1, 1);
      comm.recv(bytes_of(received), 1, 2);  // rank 1 joins the collective only after this
      collective->wait();
    } else {
      comm.recv(bytes_of(received), 0, 1);
      comm.send(bytes_of(received), 0, 2);
      comm.collective(sum_of(values));
    }
    require(received == pattern(64, 1) && values[0] == 2.0F, "wrong data");
  });
}

BOOST_AUTO_TEST_CASE(a_thread_may_send_while_another_one_waits_for_a_message) {
  run_communicators(2, [](Communicator& comm) {
    std::vector<std::byte> received(32);
    std::thread receiver([&] { comm.recv(bytes_of(received), 1 - comm.rank(), 5); });
    // The peer's receiver needs this, and waits already or will.
    comm.send(bytes_of(pattern(32, 8)), 1 - comm.rank(), 5);
    receiver.join();
    require(received == pattern(32, 8), "wrong bytes");
  });
}

BOOST_AUTO_TEST_CASE(blocking_collectives_of_two_threads_are_put_in_a_row) {
  run_communicators(2, [](Communicator& comm) {
    // Which thread is first differs from rank to rank, so all their collectives are alike.
    const auto run = [&comm] {
      for (int i = 0; i < 50; ++i) {
        std::vector<float> values(2000, 1.0F);
        comm.collective(sum_of(values));
        if (values[0] != 2.0F || values[1999] != 2.0F) return false;
      }
      return true;
    };
    bool other_is_right = false;
    std::thread other([&] { other_is_right = run(); });
    const bool is_right = run();
    other.join();
    require(is_right && other_is_right, "wrong sums");
  });
}

BOOST_AUTO_TEST_CASE(what_a_work_keeps_is_released_after_it_is_complete_and_not_before) {
  run_communicators(2, [](Communicator& comm) {
    auto owner = std::make_shared<int>(1);
    const std::weak_ptr<int> watch = owner;
    std::vector<std::byte> received(16);
    auto receive = comm.irecv(bytes_of(received), 1 - comm.rank(), 0);
    receive->keep(std::move(owner));
    receive.reset();  // dropped by the user while it is pending
    require(!watch.expired(), "released too early");
    comm.collective({});
    comm.send(bytes_of(pattern(16, 1)), 1 - comm.rank(), 0);
    const double until_s = monotonic_s() + 30;
    while (comm.pending() > 0) {
      require(monotonic_s() < until_s, "the dropped receive was not completed");
      std::this_thread::yield();
    }
    require(received == pattern(16, 1), "wrong bytes");
    comm.collective({});
  });
  take_released_owners();
  BOOST_TEST(take_released_owners().empty());
}

BOOST_AUTO_TEST_CASE(an_initialised_communicator_with_nothing_to_do_uses_no_cpu) {
  run_communicators(2, [](Communicator& comm) {
    std::vector<float> values(1000, 1.0F);
    comm.icollective(sum_of(values))->wait();  // the progress thread exists
    comm.collective({});
    const double before_s = process_cpu_s();
    const timespec second{1, 0};
    nanosleep(&second, nullptr);
    const double used_s = process_cpu_s() - before_s;
    require(used_s < 0.02, "used " + std::to_string(used_s) + " s of CPU time in one idle second");
    comm.collective({});
  });
}

BOOST_AUTO_TEST_SUITE_END()
BOOST_AUTO_TEST_SUITE_END()

}  // namespace hpcomm::testing
