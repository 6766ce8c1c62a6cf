// What a rank learns when another one is late, fails, leaves, dies or is a forked child.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <boost/test/unit_test.hpp>
#include <string>
#include <thread>

#include "support/communicators.hpp"
#include "support/processes.hpp"
#include "support/ranks.hpp"

namespace hpcomm::testing {

BOOST_AUTO_TEST_SUITE(runtime)
BOOST_AUTO_TEST_SUITE(failures)

namespace {

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

void require_in(const std::string& text, std::initializer_list<const char*> parts) {
  for (const char* part : parts)
    require(has(text, part), std::string("'") + part + "' is missing in: " + text);
}

void require_success(const std::vector<ProcessResult>& results, std::initializer_list<int> ranks) {
  for (const int rank : ranks) {
    const ProcessResult& result = results[static_cast<std::size_t>(rank)];
    BOOST_TEST(result.code == 0,
               "rank " << rank << ": " << result.text << ", signal " << result.signal);
  }
}

// Calls `action`, which must end within two seconds with an Error of `code`.
std::string error_soon(Errc code, const std::function<void()>& action) {
  const double begun_s = monotonic_s();
  const std::string text = error_text(code, action);
  require(monotonic_s() - begun_s < 2,
          "took " + std::to_string(monotonic_s() - begun_s) + " s: " + text);
  return text;
}

}  // namespace

BOOST_AUTO_TEST_CASE(
    a_timeout_names_the_operation_the_ranks_and_the_seconds_and_breaks_the_communicator) {
  run_communicators(3, [](Communicator& comm) {
    std::vector<std::byte> buffer(48);
    if (comm.rank() == 0) {
      const std::string text =
          error_text(Errc::timeout, [&] { comm.recv(bytes_of(buffer), 2, 11, 0.3); });
      require_in(text, {"receive of 48 bytes", "rank 2", "tag 11", "rank 0", "0.3", "'world'",
                        "timeout_s"});
      require(comm.is_broken(), "must be broken");
      require_in(error_text(Errc::broken, [&] { comm.send(bytes_of(buffer), 1, 0); }),
                 {"any more", "receive of 48 bytes"});
    } else {
      // The others are told by the failed rank, long before their own deadline.
      require_in(error_soon(Errc::peer_aborted,
                            [&] { comm.recv(bytes_of(buffer), 3 - comm.rank(), 0, 30); }),
                 {"rank 0 failed", "receive of 48 bytes"});
    }
  });
}

BOOST_AUTO_TEST_CASE(a_collective_that_a_rank_never_joins_times_out_and_names_it) {
  run_communicators(3, [](Communicator& comm) {
    std::vector<float> values(64, 1.0F);
    if (comm.rank() == 1) {
      std::vector<std::byte> buffer(1);
      error_text(Errc::peer_aborted, [&] { comm.recv(bytes_of(buffer), 1, 0, 30); });
      return;
    }
    try {
      comm.collective(sum_of(values), {}, 0.4);
      require(false, "must not succeed");
    } catch (const Error& error) {
      // Whoever is first says timeout; the other is told.
      require(error.code() == Errc::timeout || error.code() == Errc::peer_aborted, error.what());
      require_in(error.what(), {"allreduce of 256 bytes", "rank 1"});
    }
  });
}

BOOST_AUTO_TEST_CASE(waiting_for_an_asynchronous_collective_ends_after_the_waits_own_timeout) {
  run_communicators(2, [](Communicator& comm) {
    std::vector<float> values(64, 1.0F);
    if (comm.rank() == 1) {
      std::vector<std::byte> buffer(1);
      error_text(Errc::peer_aborted, [&] { comm.recv(bytes_of(buffer), 1, 0, 30); });
      return;
    }
    const auto work = comm.icollective(sum_of(values));
    while (comm.pending() > 0 &&
           monotonic_s() - 1e-9 * static_cast<double>(work->submitted_ns()) < 0.05)
      std::this_thread::yield();  // the progress thread has begun it
    require_in(error_text(Errc::timeout, [&] { work->wait(0.3); }),
               {"allreduce of 256 bytes", "rank 1"});
    error_text(Errc::timeout, [&] { work->wait(); });  // the same error again
    require(work->error() != nullptr && work->done(), "must be complete with an error");
  });
}

BOOST_AUTO_TEST_CASE(a_receive_that_was_given_up_no_longer_touches_its_buffer) {
  run_communicators(2, [](Communicator& comm) {
    std::vector<std::byte> buffer(16);
    if (comm.rank() == 0) {
      const auto work = comm.irecv(bytes_of(buffer), 1, 0);
      error_text(Errc::timeout, [&] { work->wait(0.1); });
    } else {
      error_text(Errc::peer_aborted, [&] { comm.recv(bytes_of(buffer), 1, 9, 30); });
    }
  });
}

BOOST_AUTO_TEST_CASE(an_abort_reaches_every_rank_with_its_text_also_through_others) {
  run_communicators(4, [](Communicator& comm) {
    std::vector<std::byte> buffer(8);
    if (comm.rank() == 2) {
      comm.abort("ValueError: no such layer");
      require_in(comm.broken_reason(), {"no such layer"});
      return;
    }
    const std::string text = error_soon(
        Errc::peer_aborted, [&] { comm.recv(bytes_of(buffer), (comm.rank() + 1) % 4, 0, 30); });
    require_in(text, {"rank 2 failed: ValueError: no such layer"});
    require(text.find("failed") == text.rfind("failed"),
            "the first failure wins and is told once: " + text);
    require_in(error_text(Errc::broken, [&] { comm.collective({}); }),
               {"rank 2 failed: ValueError"});
  });
}

BOOST_AUTO_TEST_CASE(pending_operations_fail_with_the_communicator) {
  run_communicators(2, [](Communicator& comm) {
    std::vector<std::byte> buffer(8);
    if (comm.rank() == 0) {
      const auto receive = comm.irecv(bytes_of(buffer), 1, 0);
      std::vector<float> values(8);
      const auto collective = comm.icollective(sum_of(values));
      const double begun_s = monotonic_s();
      while (!receive->test() || !collective->test()) {
        require(monotonic_s() < begun_s + 2, "nobody noticed");
        std::this_thread::yield();
      }
      require(receive->error() != nullptr && collective->error() != nullptr, "must fail");
    } else {
      comm.abort("gone mad");
    }
  });
}

BOOST_AUTO_TEST_CASE(a_rank_that_closes_while_others_wait_for_it_is_named) {
  run_communicators(2, [](Communicator& comm) {
    std::vector<std::byte> buffer(8);
    if (comm.rank() == 0) {
      comm.send(bytes_of(buffer), 1, 0);
      require(comm.close(), "the first close() closes");
      require(!comm.close(), "the second one has nothing to do");
      require_in(error_text(Errc::broken, [&] { comm.send(bytes_of(buffer), 1, 0); }),
                 {"was closed"});
      return;
    }
    require_in(error_soon(Errc::peer_aborted,
                          [&] {
                            comm.recv(bytes_of(buffer), 0,
                                      0);  // sent before the close: still counts
                            comm.recv(bytes_of(buffer), 0, 0, 30);
                          }),
               {"rank 0 closed", "'world'"});
  });
}

BOOST_AUTO_TEST_CASE(close_gives_up_pending_receives_and_lets_sends_complete) {
  run_communicators(2, [](Communicator& comm) {
    const std::size_t nbytes = 3 << 20;
    if (comm.rank() == 0) {
      std::vector<std::byte> never(8);
      const auto data = pattern(nbytes, 4);
      const auto send = comm.isend(bytes_of(data), 1, 0);
      const auto receive = comm.irecv(bytes_of(never), 1, 0);
      comm.close(30);
      send->wait();
      error_text(Errc::broken, [&] { receive->wait(); });
    } else {
      std::vector<std::byte> received(nbytes);
      comm.recv(bytes_of(received), 0, 0);
      require(received == pattern(nbytes, 4), "wrong bytes");
    }
  });
}

BOOST_AUTO_TEST_CASE(the_death_of_a_peer_is_noticed_in_messages_and_collectives,
                     *boost::unit_test::precondition(forked_ranks_may_start_threads)) {
  for (const int kind : {0, 1, 2}) {
    const auto results = run_processes(
        3,
        [&](ProcessScope& scope) {
          const auto comm = make_communicator(scope);
          comm->collective({});
          if (scope.rank == 1) kill(getpid(), SIGKILL);
          std::vector<std::byte> buffer(8);
          std::vector<float> values(100'000);
          // A dead process that nobody has waited for yet is a zombie: its parent waits for rank 0
          // first.
          try {
            if (kind == 0) comm->recv(bytes_of(buffer), 1, 0, 30);
            if (kind == 1) comm->collective(sum_of(values), {}, 30);
            if (kind == 2) comm->icollective(sum_of(values), {}, 30)->wait();
          } catch (const Error& error) {
            // The second survivor may be told by the first.
            require(error.code() == Errc::peer_dead, error.what());
            require(error.rank() == 1, "blames rank " + std::to_string(error.rank()));
            require_in(error.what(), {"rank 1", "died"});
            return std::string("noticed");
          }
          return std::string("nothing noticed");
        },
        20);
    require_success(results, {0, 2});
    BOOST_TEST(results[0].text == "noticed");
    BOOST_TEST(results[2].text == "noticed");
  }
}

BOOST_AUTO_TEST_CASE(a_death_is_one_too_for_ranks_that_wait_for_another_survivor) {
  const auto results = run_processes(3, [](ProcessScope& scope) {
    const auto comm = make_communicator(scope);
    CommunicatorOptions options;
    options.name = "other";
    const auto other = make_communicator(scope, options);
    if (scope.rank == 1) kill(getpid(), SIGKILL);
    std::vector<std::byte> buffer(8);
    // Rank 0 waits for the dead one, rank 2 for rank 0.
    const int awaited = scope.rank == 0 ? 1 : 0;
    const auto waits = [&](Communicator& on) {
      try {
        on.recv(bytes_of(buffer), awaited, 0, 30);
      } catch (const Error& error) {
        require(error.code() == Errc::peer_dead, error.what());
        require(error.rank() == 1, "blames rank " + std::to_string(error.rank()));
        require_in(error.what(), {"rank 1 of communicator", "died"});
        require(!has(error.what(), "failed"), error.what());
        return;
      }
      require(false, "nothing noticed");
    };
    waits(*comm);
    require_in(comm->broken_reason(), {"failed: rank 1 of communicator 'world' died"});
    // The other communicator hears of it as well, with the right rank.
    if (scope.rank == 0) {
      other->abort("out of luck", Communicator::Cause::lost_rank);
      require_in(other->broken_reason(), {"failed: rank 1 of communicator 'other' died"});
    } else {
      waits(*other);
    }
    return std::string();
  });
  require_success(results, {0, 2});
}

BOOST_AUTO_TEST_CASE(a_communicator_whose_ranks_all_live_ends_with_the_death_of_another_rank) {
  run_communicators(2, [](Communicator& comm) {
    std::vector<std::byte> buffer(8);
    const std::string death = "rank 7 of communicator 'all' died";
    if (comm.rank() == 0) {
      comm.abort(death, Communicator::Cause::lost_rank);
      return;
    }
    try {
      comm.recv(bytes_of(buffer), 0, 0, 30);
      require(false, "must not succeed");
    } catch (const Error& error) {
      require(error.code() == Errc::peer_dead && error.rank() == -1, error.what());
      require(error.what() == death, error.what());
    }
    require_in(comm.broken_reason(), {"failed: rank 7 of communicator 'all' died"});
  });
}

BOOST_AUTO_TEST_CASE(a_stopped_process_is_not_dead) {
  const auto results = run_processes(2, [](ProcessScope& scope) {
    const auto comm = make_communicator(scope);
    std::vector<std::byte> buffer(8);
    if (scope.rank == 0) {
      error_text(Errc::timeout, [&] { comm->recv(bytes_of(buffer), 1, 0, 0.5); });
    } else {
      error_text(Errc::peer_aborted, [&] { comm->recv(bytes_of(buffer), 1, 0, 30); });
    }
    return std::string();
  });
  require_success(results, {0, 1});
}

BOOST_AUTO_TEST_CASE(a_forked_child_gets_an_error_from_every_call_and_harms_nobody,
                     *boost::unit_test::precondition(forked_ranks_may_start_threads)) {
  const auto results = run_processes(2, [](ProcessScope& scope) {
    auto comm = make_communicator(scope);
    std::vector<float> values(8, 1.0F);
    comm->icollective(sum_of(values))->wait();
    std::vector<std::byte> pending_buffer(4);
    auto pending = comm->irecv(bytes_of(pending_buffer), 1 - scope.rank, 3);
    int ends[2];
    require(pipe(ends) == 0, "pipe");
    const pid_t child = fork();
    if (child == 0) {
      std::string text;
      try {
        std::vector<std::byte> buffer(8);
        for (const auto& call : std::initializer_list<std::function<void()>>{
                 [&] { comm->send(bytes_of(buffer), 0, 0); },
                 [&] { comm->recv(bytes_of(buffer), 0, 0); },
                 [&] { comm->isend(bytes_of(buffer), 0, 0); }, [&] { comm->collective({}); },
                 [&] { comm->icollective({}); }, [&] { comm->probe(0, 0); },
                 [&] { pending->wait(); }, [&] { pending->test(); }})
          text = error_text(Errc::broken, call);
        require_in(text, {"fork", "spawn", "rank"});
        comm->abort("must not be heard");
        require(!comm->close(), "a child closes nothing");
        Communicator::abort_all("must not be heard");
        Communicator::shutdown_all();
        pending.reset();
        comm.reset();
        text = "ok";
      } catch (const std::exception& error) {
        text = error.what();
      }
      static_cast<void>(!write(ends[1], text.data(), text.size()));
      _exit(0);
    }
    char text[1000];
    const ssize_t length = read(ends[0], text, sizeof text);
    int status = 0;
    waitpid(child, &status, 0);
    require(std::string(text, static_cast<std::size_t>(std::max<ssize_t>(length, 0))) == "ok",
            std::string(text, static_cast<std::size_t>(std::max<ssize_t>(length, 0))));
    require(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the child crashed");
    comm->collective({});  // a message before the other one forks would complete its receive
    comm->send(bytes_of(pattern(4, 1)), 1 - scope.rank, 3);
    pending->wait();
    require(pending_buffer == pattern(4, 1), "wrong bytes");
    comm->collective(sum_of(values));
    require(values[0] == 4.0F, "wrong sum");
    return std::string();
  });
  require_success(results, {0, 1});
}

BOOST_AUTO_TEST_CASE(an_interrupt_ends_a_wait_and_is_told_to_the_peers) {
  const auto results = run_processes(2, [](ProcessScope& scope) {
    const auto comm = make_communicator(scope);
    std::vector<std::byte> buffer(8);
    if (scope.rank == 1) {
      require_in(error_soon(Errc::peer_aborted, [&] { comm->recv(bytes_of(buffer), 0, 0, 30); }),
                 {"rank 0 failed", "Ctrl-C"});
      return std::string();
    }
    const double interrupt_at_s = monotonic_s() + 0.2;
    set_interrupt_hook([&] {
      if (monotonic_s() > interrupt_at_s) throw Error(Errc::interrupted, 0, "Ctrl-C");
    });
    error_soon(Errc::interrupted, [&] { comm->recv(bytes_of(buffer), 1, 0, 30); });
    return std::string();
  });
  require_success(results, {0, 1});
}

BOOST_AUTO_TEST_CASE(shutdown_with_live_requests_ends_them,
                     *boost::unit_test::precondition(forked_ranks_may_start_threads)) {
  const auto results = run_processes(2, [](ProcessScope& scope) {
    const auto comm = make_communicator(scope);
    std::vector<std::byte> buffer(8);
    std::vector<float> values(8);
    const auto receive = comm->irecv(bytes_of(buffer), 1 - scope.rank, 0);
    const auto collective = scope.rank == 0 ? comm->icollective(sum_of(values)) : nullptr;
    Communicator::shutdown_all();
    require(receive->done() && receive->error() != nullptr, "the receive is still pending");
    require(collective == nullptr || (collective->done() && collective->error() != nullptr),
            "the collective is still pending");
    return std::string();
  });
  require_success(results, {0, 1});
}

BOOST_AUTO_TEST_SUITE_END()
BOOST_AUTO_TEST_SUITE_END()

}  // namespace hpcomm::testing
