#include <array>
#include <boost/test/unit_test.hpp>
#include <latch>
#include <string>

#include "support/ranks.hpp"
#include "support/runs.hpp"
#include "transport/loopback/transport.hpp"

namespace hpcomm::testing {

BOOST_AUTO_TEST_SUITE(transport)
BOOST_AUTO_TEST_SUITE(loopback_medium)

namespace {

/// Both ends of a pair of transports, driven by one thread: every order of events is possible.
struct Pair {
  explicit Pair(loopback::Options options = {})
      : world(loopback::World::create(2, options)),
        ends{std::move(world->transports(0).front()), std::move(world->transports(1).front())} {}
  Transport& end(int rank) { return *ends[static_cast<std::size_t>(rank)]; }
  std::shared_ptr<loopback::World> world;
  std::array<std::unique_ptr<Transport>, 2> ends;
};

loopback::Options with_eager_bytes(std::size_t nbytes) {
  loopback::Options options;
  options.eager_bytes = nbytes;
  return options;
}

ConstBuffer view(const std::string& text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

Buffer room(std::string& text) { return {reinterpret_cast<std::byte*>(text.data()), text.size()}; }

}  // namespace

BOOST_AUTO_TEST_CASE(messages_match_by_tag_in_the_order_of_posting) {
  for (const std::size_t eager_bytes : {0UL, 1024UL})
    for (const bool receives_first : {false, true}) {
      Pair pair(with_eager_bytes(eager_bytes));
      const std::string first = "one", second = "two", other = "six";
      std::string a = "---", b = "---", c = "---";
      Ticket receives[3] = {};
      const auto post_receives = [&] {
        receives[0] = pair.end(1).irecv(room(c), 0, 9);
        receives[1] = pair.end(1).irecv(room(a), 0, 7);
        receives[2] = pair.end(1).irecv(room(b), 0, 7);
      };
      if (receives_first) post_receives();
      const Ticket sends[] = {pair.end(0).isend(view(first), 1, 7),
                              pair.end(0).isend(view(second), 1, 7),
                              pair.end(0).isend(view(other), 1, 9)};
      if (!receives_first) post_receives();
      BOOST_TEST(pair.end(1).test(receives[2]));
      BOOST_TEST(pair.end(1).test(receives[0]));
      BOOST_TEST(pair.end(1).test(receives[1]));
      BOOST_TEST(a == "one");
      BOOST_TEST(b == "two");
      BOOST_TEST(c == "six");
      for (const Ticket send : sends) BOOST_TEST(pair.end(0).test(send));
    }
}

BOOST_AUTO_TEST_CASE(a_long_send_is_complete_when_it_was_received_and_a_short_one_at_once) {
  Pair pair(with_eager_bytes(4));
  const std::string word = "word", sentence = "sentence";
  const Ticket brief = pair.end(0).isend(view(word), 1, 0);
  const Ticket lengthy = pair.end(0).isend(view(sentence), 1, 0);
  BOOST_TEST(pair.end(0).test(brief));
  BOOST_TEST(!pair.end(0).test(lengthy));
  std::string in_word = "----", in_sentence = "--------";
  BOOST_TEST(pair.end(1).test(pair.end(1).irecv(room(in_word), 0, 0)));
  BOOST_TEST(!pair.end(0).test(lengthy));
  BOOST_TEST(pair.end(1).test(pair.end(1).irecv(room(in_sentence), 0, 0)));
  BOOST_TEST(pair.end(0).test(lengthy));
  BOOST_TEST(in_sentence == sentence);
}

BOOST_AUTO_TEST_CASE(another_length_is_a_mismatch_for_the_receiver_alone) {
  for (const std::size_t eager_bytes : {0UL, 1024UL}) {
    Pair pair(with_eager_bytes(eager_bytes));
    const std::string sent = "four", next = "next";
    std::string got = "-----", got_next = "----";
    const Ticket send = pair.end(0).isend(view(sent), 1, 3);
    const Ticket receive = pair.end(1).irecv(room(got), 0, 3);
    const std::string text = error_text(Errc::mismatch, [&] { pair.end(1).test(receive); });
    BOOST_TEST(text.find("receive of 5 bytes from rank 0 (tag 3): rank 0 sent 4 bytes") !=
               std::string::npos);
    BOOST_TEST(got == "-----");
    BOOST_TEST(pair.end(0).test(send));
    pair.end(0).isend(view(next), 1, 3);
    BOOST_TEST(pair.end(1).test(pair.end(1).irecv(room(got_next), 0, 3)));
    BOOST_TEST(got_next == next);
  }
}

BOOST_AUTO_TEST_CASE(empty_messages_are_messages) {
  Pair pair;
  const Ticket receive = pair.end(1).irecv({}, 0, 1);
  BOOST_TEST(!pair.end(1).test(receive));
  pair.end(0).isend({}, 1, 1);
  BOOST_TEST(pair.end(1).test(receive));
}

BOOST_AUTO_TEST_CASE(a_cancelled_receive_leaves_the_message_to_the_next_one) {
  Pair pair;
  std::string given_up = "--", taken = "--";
  const Ticket cancelled = pair.end(1).irecv(room(given_up), 0, 1);
  pair.end(1).cancel(cancelled);
  const std::string sent = "ok";
  pair.end(0).isend(view(sent), 1, 1);
  BOOST_TEST(pair.end(1).test(pair.end(1).irecv(room(taken), 0, 1)));
  BOOST_TEST(given_up == "--");
  BOOST_TEST(taken == "ok");
}

BOOST_AUTO_TEST_CASE(a_cancelled_send_is_never_received) {
  Pair pair(with_eager_bytes(0));
  auto gone = std::make_unique<std::string>("gone");
  const std::string kept = "kept";
  pair.end(0).cancel(pair.end(0).isend(view(*gone), 1, 1));
  gone.reset();
  BOOST_TEST(!pair.end(1).iprobe(0, 1).has_value());
  pair.end(0).isend(view(kept), 1, 1);
  std::string got = "----";
  BOOST_TEST(pair.end(1).test(pair.end(1).irecv(room(got), 0, 1)));
  BOOST_TEST(got == kept);
}

BOOST_AUTO_TEST_CASE(a_transport_that_goes_takes_its_unreceived_sends_along) {
  Pair pair(with_eager_bytes(0));
  {
    const std::string text = "text";
    pair.end(0).isend(view(text), 1, 1);
    pair.ends[0].reset();
  }
  std::string got = "----";
  BOOST_TEST(!pair.end(1).test(pair.end(1).irecv(room(got), 0, 1)));
}

BOOST_AUTO_TEST_CASE(a_probe_sees_the_oldest_message_that_no_receive_took) {
  Pair pair;
  BOOST_TEST(!pair.end(1).iprobe(0, 1).has_value());
  const std::string first = "first", second = "2nd";
  pair.end(0).isend(view(first), 1, 1);
  pair.end(0).isend(view(second), 1, 1);
  BOOST_TEST(pair.end(1).iprobe(0, 1).value() == 5U);
  BOOST_TEST(pair.end(1).iprobe(0, 1).value() == 5U);
  BOOST_TEST(!pair.end(1).iprobe(0, 2).has_value());
  std::string got = "-----";
  BOOST_TEST(pair.end(1).test(pair.end(1).irecv(room(got), 0, 1)));
  BOOST_TEST(pair.end(1).iprobe(0, 1).value() == 3U);
}

BOOST_AUTO_TEST_CASE(delays_reorder_tags_but_never_messages_of_one_tag) {
  int overtakes = 0;
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    loopback::Options options;
    options.max_delay_s = 1e-3;
    options.seed = seed;
    Pair pair(options);
    std::vector<std::string> texts;
    for (int i = 0; i < 10; ++i) texts.push_back(std::to_string(i));
    for (int i = 0; i < 10; ++i)
      pair.end(0).isend(view(texts[static_cast<std::size_t>(i)]), 1, static_cast<Tag>(i % 2));
    std::vector<Ticket> tickets;
    std::vector<std::string> got(10, "-");
    for (int i = 0; i < 10; ++i)
      tickets.push_back(
          pair.end(1).irecv(room(got[static_cast<std::size_t>(i)]), 0, static_cast<Tag>(i % 2)));
    std::vector<int> order;
    while (order.size() < 10)
      for (std::size_t i = 0; i < 10; ++i)
        if (tickets[i] != 0 && pair.end(1).test(tickets[i])) {
          order.push_back(static_cast<int>(i));
          tickets[i] = 0;
        }
    for (std::size_t i = 0; i < 10; ++i) BOOST_TEST(got[i] == texts[i]);
    overtakes += std::is_sorted(order.begin(), order.end()) ? 0 : 1;
  }
  BOOST_TEST(overtakes > 0);
}

BOOST_AUTO_TEST_CASE(a_rank_may_send_to_itself) {
  Pair pair;
  const std::string sent = "self";
  std::string got = "----";
  BOOST_TEST(pair.end(0).reaches(0));
  const Ticket receive = pair.end(0).irecv(room(got), 0, 1);
  const Ticket send = pair.end(0).isend(view(sent), 0, 1);
  BOOST_TEST(pair.end(0).test(receive));
  BOOST_TEST(pair.end(0).test(send));
  BOOST_TEST(got == sent);
}

BOOST_AUTO_TEST_CASE(who_left_or_failed_is_told_to_those_who_wait) {
  Pair pair;
  pair.end(0).check_peer(1);
  pair.end(0).check_announcements();
  pair.end(1).close();
  const std::string left = error_text(Errc::peer_dead, [&] { pair.end(0).check_peer(1); });
  BOOST_TEST(left.find("rank 1 has left") != std::string::npos, left);
  pair.end(1).announce_failure({Errc::timeout, 1, "too slow"});
  pair.end(1).announce_failure({Errc::internal, 1, "not the first"});
  const std::string failed =
      error_text(Errc::peer_aborted, [&] { pair.end(0).check_announcements(); });
  BOOST_TEST(failed == "rank 1 failed: too slow");
}

BOOST_AUTO_TEST_CASE(pretended_nodes_share_no_memory_and_use_another_medium) {
  loopback::Options options;
  options.ranks_per_node = 2;
  const auto world = loopback::World::create(5, options);
  BOOST_TEST(world->shared() == nullptr);
  Endpoint endpoint = world->endpoint(2, "world", default_surroundings());
  BOOST_TEST(endpoint.transport_to(3).name() == "loopback");
  BOOST_TEST(endpoint.transport_to(1).name() == "loopback-network");
  BOOST_TEST(endpoint.transport_to(4).name() == "loopback-network");
  options.ranks_per_node = 5;
  BOOST_TEST(loopback::World::create(5, options)->shared() != nullptr);
}

BOOST_AUTO_TEST_CASE(slots_are_aligned_separate_and_large_enough_for_all_ranks) {
  loopback::Options options;
  options.slot_bytes = 10;
  const std::shared_ptr<SharedGroup> shared = loopback::World::create(3, options)->shared();
  SharedGroup& group = *shared;
  BOOST_TEST(group.slot_bytes() == 192U);
  std::vector<std::byte*> slots;
  for (int rank = 0; rank < 3; ++rank)
    for (int index = 0; index < SharedGroup::kSlots; ++index)
      slots.push_back(group.slot(rank, index));
  for (std::size_t i = 0; i < slots.size(); ++i) {
    BOOST_TEST(reinterpret_cast<std::uintptr_t>(slots[i]) % 64 == 0U);
    if (i > 0) BOOST_TEST(slots[i] - slots[i - 1] >= 192);
  }
}

BOOST_AUTO_TEST_CASE(threads_exchange_messages_of_all_lengths_both_ways) {
  HPCOMM_TEST_RUNS(run_ranks(2, [](RankScope& scope) {
    const int peer = 1 - scope.rank;
    for (std::size_t length = 0; length < 5000; length = length * 3 / 2 + 1) {
      const std::string out(length, static_cast<char>('a' + scope.rank));
      std::string in(length, '-');
      Endpoint::Handle handles[] = {scope.endpoint.isend(view(out), peer, 1),
                                    scope.endpoint.irecv(room(in), peer, 1)};
      scope.endpoint.wait_all(handles, scope.patient(), "an exchange");
      require(in == std::string(length, static_cast<char>('a' + peer)), "damaged message");
    }
    require(scope.endpoint.counters().messages_sent > 10, "sends are counted");
  }));
}

BOOST_AUTO_TEST_CASE(a_cancel_races_with_the_receiver_without_harm) {
  RunOptions options;
  options.world.eager_bytes = 0;
  const auto body = [](RankScope& scope) {
    for (int round = 0; round < 300; ++round) {
      std::byte token{};
      Endpoint::Handle turn = scope.rank == 0 ? scope.endpoint.isend({&token, 1}, 1, 2)
                                              : scope.endpoint.irecv({&token, 1}, 0, 2);
      if (scope.rank == 0) {
        auto text = std::make_unique<std::string>(1000, 'x');
        Endpoint::Handle send = scope.endpoint.isend(view(*text), 1, 1);
        scope.endpoint.wait(turn, scope.patient(), "a token");
        scope.endpoint.cancel(send);
      } else {
        std::string got(1000, '-');
        Endpoint::Handle receive = scope.endpoint.irecv(room(got), 0, 1);
        scope.endpoint.wait(turn, scope.patient(), "a token");
        const bool complete = scope.endpoint.test(receive);
        scope.endpoint.cancel(receive);
        require(got == std::string(1000, complete ? 'x' : '-'), "half a message");
      }
    }
  };
  HPCOMM_TEST_RUNS(run_ranks(2, body, options));
}

BOOST_AUTO_TEST_SUITE_END()
BOOST_AUTO_TEST_SUITE_END()

}  // namespace hpcomm::testing
