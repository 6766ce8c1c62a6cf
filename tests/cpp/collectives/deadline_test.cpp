// Ranks that do not come, leave, or fail.
#include <boost/test/unit_test.hpp>
#include <functional>
#include <latch>

#include "collectives/agreement.hpp"
#include "support/calls.hpp"
#include "support/runs.hpp"
#include "transport/failures.hpp"

namespace hpcomm::testing {

BOOST_AUTO_TEST_SUITE(collectives)
BOOST_AUTO_TEST_SUITE(deadlines)

namespace {

constexpr std::size_t kNBytes = 60'000;

/// Runs `action` and stays until all that `done` counts did the same, so that nobody is seen to
/// leave.
void act_and_stay(std::latch& done, const std::function<void()>& action) {
  try {
    action();
  } catch (...) {
    done.count_down();
    throw;
  }
  done.arrive_and_wait();
}

CollectiveRequest request_of(Collective kind, RankScope& scope, Guarded& send, Guarded& recv,
                             double timeout_s) {
  const std::size_t p = static_cast<std::size_t>(scope.size);
  CollectiveRequest request{.kind = kind,
                            .send = send.buffer(),
                            .recv = recv.buffer(),
                            .count = kNBytes,
                            .root = kind == Collective::broadcast ? 0 : -1,
                            .deadline = scope.in(timeout_s)};
  if (kind == Collective::barrier) request.count = 0;
  if (kind == Collective::allgather || kind == Collective::reduce_scatter) request.count /= p;
  return request;
}

void require_contains(const std::string& text, const std::string& part) {
  require(text.find(part) != std::string::npos, "'" + text + "' lacks '" + part + "'");
}

std::string what_of(Collective kind) {
  return kind == Collective::barrier
             ? std::string("barrier on communicator 'world'")
             : std::string(name_of(kind)) + " of " + std::to_string(kNBytes) + " bytes";
}

}  // namespace

BOOST_AUTO_TEST_CASE(over_shared_memory_all_missing_ranks_are_named) {
  for (const Collective kind : kAllCollectives) {
    std::latch given_up(2);
    HPCOMM_TEST_RUNS(run_ranks(4, [&](RankScope& scope) {
      if (scope.rank == 1 || scope.rank == 3) return given_up.wait();
      act_and_stay(given_up, [&] {
        Guarded send(kNBytes);
        Guarded recv(kNBytes);
        const std::string text = error_text(
            Errc::timeout, [&] { call(scope, request_of(kind, scope, send, recv, 0.05)); });
        require_contains(text, "ranks 1, 3");
        require_contains(text, what_of(kind));
        require_contains(text, "rank " + std::to_string(scope.rank) + " waited ");
        require(recv.is_untouched(), "the receive buffer was touched");
      });
    }));
  }
}

BOOST_AUTO_TEST_CASE(over_messages_somebody_names_the_missing_rank) {
  for (const Collective kind : kAllCollectives) {
    std::latch given_up(2);
    std::vector<std::string> texts(3);
    RunOptions options;
    options.world.shared_memory = false;
    const auto body = [&](RankScope& scope) {
      if (scope.rank == 1) return given_up.wait();
      act_and_stay(given_up, [&] {
        Guarded send(kNBytes);
        Guarded recv(kNBytes);
        texts[static_cast<std::size_t>(scope.rank)] = error_text(
            Errc::timeout, [&] { call(scope, request_of(kind, scope, send, recv, 0.05)); });
      });
    };
    HPCOMM_TEST_RUNS(run_ranks(3, body, options));
    for (const std::string& text : {texts[0], texts[2]}) {
      BOOST_TEST(text.find(what_of(kind)) != std::string::npos, text);
    }
    const bool named = texts[0].find("for rank 1") != std::string::npos ||
                       texts[2].find("for rank 1") != std::string::npos;
    BOOST_TEST(named, texts[0] << " / " << texts[2]);
  }
}

// Every algorithm by itself, so that the wait is for data, and buffers are gone right afterwards.
BOOST_AUTO_TEST_CASE(a_rank_that_stops_in_the_middle_times_out_the_others) {
  for (const Collective kind : kAllCollectives)
    for (const Algorithm& algorithm : algorithms_of(kind))
      for (const int size : {2, 3, 5}) {
        const int absent = kind == Collective::broadcast ? 0 : size - 1;
        std::atomic<int> timeouts{0};
        std::latch given_up(size - 1);
        HPCOMM_TEST_RUNS(run_ranks(size, [&](RankScope& scope) {
          if (scope.rank == absent) return given_up.wait();
          act_and_stay(given_up, [&] {
            Guarded send(kNBytes);
            Guarded recv(kNBytes);
            const CollectiveRequest request = request_of(kind, scope, send, recv, 0.03);
            try {
              algorithm.run(scope.endpoint, request, signature_of(request, 0, size));
            } catch (const Error& error) {
              require(error.code() == Errc::timeout, error.what());
              ++timeouts;
            }
          });
        }));
        BOOST_TEST(timeouts >= 1, name_of(kind) << " " << algorithm.name << " on " << size);
      }
}

BOOST_AUTO_TEST_CASE(a_rank_that_left_ends_the_wait_long_before_the_deadline) {
  for (const bool shared : {true, false})
    for (const Collective kind : kAllCollectives) {
      RunOptions options;
      options.world.shared_memory = shared;
      const auto body = [&](RankScope& scope) {
        if (scope.rank == 1) return;
        Guarded send(kNBytes);
        Guarded recv(kNBytes);
        try {
          call(scope, request_of(kind, scope, send, recv, 60));
          require(false, "the collective completed without rank 1");
        } catch (const Error& error) {
          // Whoever does not wait for rank 1 itself learns it from the one who does.
          require(error.code() == Errc::peer_dead && error.rank() == 1, error.what());
          require_contains(error.what(), "rank 1 has left");
          scope.endpoint.announce_failure(failure_of(error, scope.rank));
        }
      };
      HPCOMM_TEST_RUNS(run_ranks(3, body, options));
    }
}

BOOST_AUTO_TEST_CASE(a_failure_announced_by_a_peer_ends_the_wait_with_its_text) {
  for (const bool shared : {true, false}) {
    RunOptions options;
    options.world.shared_memory = shared;
    std::latch heard(2);
    const auto body = [&](RankScope& scope) {
      if (scope.rank == 2) {
        scope.endpoint.announce_failure({Errc::internal, 2, "out of luck"});
        return heard.wait();
      }
      act_and_stay(heard, [&] {
        Guarded send(kNBytes);
        Guarded recv(kNBytes);
        const std::string text = error_text(Errc::peer_aborted, [&] {
          call(scope, request_of(Collective::allreduce, scope, send, recv, 60));
        });
        require_contains(text, "rank 2 failed: out of luck");
      });
    };
    HPCOMM_TEST_RUNS(run_ranks(3, body, options));
  }
}

BOOST_AUTO_TEST_CASE(the_harness_reports_the_first_failing_rank) {
  std::string text;
  try {
    run_ranks(3, [](RankScope& scope) {
      if (scope.rank == 1) throw std::runtime_error("broken on purpose");
      call(scope, barrier_request(scope.patient()));
    });
  } catch (const RankFailure& failure) {
    text = failure.what();
    BOOST_TEST(failure.rank() == 1);
  }
  BOOST_TEST(text == "rank 1: broken on purpose");
}

BOOST_AUTO_TEST_CASE(the_harness_ends_runs_that_hang) {
  RunOptions options;
  options.limit_s = 0.2;
  std::string text;
  try {
    std::latch never(1);
    run_ranks(
        2,
        [&](RankScope& scope) {
          if (scope.rank == 1) {
            std::byte nothing{};
            Endpoint::Handle handle = scope.endpoint.irecv({&nothing, 1}, 0, 3);
            scope.endpoint.wait(handle, scope.patient(), "a message nobody sends");
          } else {
            call(scope, barrier_request(scope.patient()));
          }
        },
        options);
  } catch (const std::exception& failure) {
    text = failure.what();
  }
  BOOST_TEST(text.find("watchdog") != std::string::npos, text);
}

BOOST_AUTO_TEST_SUITE_END()
BOOST_AUTO_TEST_SUITE_END()

}  // namespace hpcomm::testing
