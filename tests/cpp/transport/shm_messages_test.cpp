// Point-to-point messages over shared memory, ranks as threads.
#include <boost/test/unit_test.hpp>
#include <string>
#include <vector>

#include "support/communicators.hpp"
#include "support/ranks.hpp"
#include "transport/tag.hpp"

namespace hpcomm::testing {

BOOST_AUTO_TEST_SUITE(transport)
BOOST_AUTO_TEST_SUITE(shm_messages)

namespace {

CommunicatorOptions small_rings() {
  CommunicatorOptions options;
  options.ring_bytes = 4096;
  options.timeout_s = 60;
  return options;
}

// Around everything that matters to a ring of 4096 bytes with headers of 16.
const std::vector<std::size_t> kSizes = {0,    1,    2,    15,   16,   17,      1000,
                                         2032, 2048, 4063, 4064, 4079, 4080,    4081,
                                         4095, 4096, 4097, 8191, 8192, 100'003, 1'048'577};

}  // namespace

BOOST_AUTO_TEST_CASE(messages_of_any_size_arrive_whole_in_both_directions) {
  run_communicators(
      2,
      [](Communicator& comm) {
        const int peer = 1 - comm.rank();
        for (const std::size_t nbytes : kSizes) {
          for (unsigned round = 0; round < 5; ++round) {
            const auto sent = pattern(nbytes, round + static_cast<unsigned>(comm.rank()));
            std::vector<std::byte> received(nbytes);
            const auto work = comm.isend(bytes_of(sent), peer, 7);
            comm.recv(bytes_of(received), peer, 7);
            work->wait();
            require(received == pattern(nbytes, round + static_cast<unsigned>(peer)),
                    "wrong bytes in a message of " + std::to_string(nbytes));
          }
        }
      },
      small_rings());
}

BOOST_AUTO_TEST_CASE(a_rank_can_send_to_itself) {
  run_communicators(
      1,
      [](Communicator& comm) {
        for (const std::size_t nbytes : kSizes) {
          const auto sent = pattern(nbytes, 3);
          std::vector<std::byte> received(nbytes);
          const auto send = comm.isend(bytes_of(sent), 0, 1);
          const auto receive = comm.irecv(bytes_of(received), 0, 1);
          send->wait();
          receive->wait();
          require(received == sent, "wrong bytes");
        }
      },
      small_rings());
}

BOOST_AUTO_TEST_CASE(receives_in_another_order_of_tags_than_the_sends_get_their_own_message) {
  run_communicators(
      2,
      [](Communicator& comm) {
        constexpr unsigned kMessages = 12;
        const auto nbytes_of = [](unsigned tag) { return std::size_t{700} * tag; };
        if (comm.rank() == 0) {
          std::vector<std::vector<std::byte>> data;
          std::vector<std::shared_ptr<Work>> works;
          for (unsigned tag = 0; tag < kMessages; ++tag)
            data.push_back(pattern(nbytes_of(tag), tag));
          for (unsigned tag = 0; tag < kMessages; ++tag)
            works.push_back(comm.isend(bytes_of(data[tag]), 1, tag));
          for (const auto& work : works) work->wait();
        } else {
          for (unsigned tag = kMessages; tag-- > 0;) {
            std::vector<std::byte> received(nbytes_of(tag));
            comm.recv(bytes_of(received), 0, tag);
            require(received == pattern(nbytes_of(tag), tag),
                    "tag " + std::to_string(tag) + " got another's bytes");
          }
        }
      },
      small_rings());
}

BOOST_AUTO_TEST_CASE(messages_of_one_tag_keep_their_order_even_if_some_were_put_aside) {
  run_communicators(
      2,
      [](Communicator& comm) {
        const std::size_t nbytes = 3000;
        if (comm.rank() == 0) {
          for (unsigned i = 0; i < 4; ++i) comm.isend({}, 1, 9)->wait();
          std::vector<std::vector<std::byte>> data;
          std::vector<std::shared_ptr<Work>> works;
          for (unsigned i = 0; i < 6; ++i) data.push_back(pattern(nbytes, i));
          for (unsigned i = 0; i < 6; ++i)
            works.push_back(comm.isend(bytes_of(data[i]), 1, i == 3 ? 2U : 1U));
          for (const auto& work : works) work->wait();
        } else {
          std::vector<std::byte> received(nbytes);
          comm.recv(bytes_of(received), 0, 2);
          require(received == pattern(nbytes, 3), "tag 2");
          for (const unsigned i : {0U, 1U, 2U, 4U, 5U}) {
            comm.recv(bytes_of(received), 0, 1);
            require(received == pattern(nbytes, i), "tag 1, message " + std::to_string(i));
          }
          for (unsigned i = 0; i < 4; ++i) comm.recv({}, 0, 9);
        }
      },
      small_rings());
}

BOOST_AUTO_TEST_CASE(
    a_message_that_is_still_arriving_when_its_receive_is_posted_is_continued_in_place) {
  run_communicators(
      2,
      [](Communicator& comm) {
        const std::size_t large = 60'000;
        if (comm.rank() == 0) {
          const auto first = pattern(large, 1);
          const auto second = pattern(10, 2);
          const auto a = comm.isend(bytes_of(first), 1, 1);
          const auto b = comm.isend(bytes_of(second), 1, 2);
          a->wait();
          b->wait();
        } else {
          std::vector<std::byte> first(large);
          std::vector<std::byte> second(10);
          // The second tag is asked for while the first message fills the ring: it begins to go
          // aside.
          const auto b = comm.irecv(bytes_of(second), 0, 2);
          for (int i = 0; i < 3; ++i) b->test();
          comm.recv(bytes_of(first), 0, 1);
          b->wait();
          require(first == pattern(large, 1) && second == pattern(10, 2), "wrong bytes");
        }
      },
      small_rings());
}

BOOST_AUTO_TEST_CASE(a_message_of_another_length_is_a_mismatch_that_names_both_and_spoils_nothing) {
  run_communicators(
      2,
      [](Communicator& comm) {
        for (const std::size_t nbytes : {std::size_t{0}, std::size_t{8}, std::size_t{40'000}}) {
          if (comm.rank() == 0) {
            const auto wrong = pattern(nbytes, 1);
            const auto right = pattern(100, 2);
            comm.send(bytes_of(wrong), 1, 4);
            comm.send(bytes_of(right), 1, 4);
          } else {
            std::vector<std::byte> received(100, std::byte{0x5a});
            const std::string text =
                error_text(Errc::mismatch, [&] { comm.recv(bytes_of(received), 0, 4); });
            require(text.find("100 bytes") != std::string::npos &&
                        text.find(std::to_string(nbytes)) != std::string::npos &&
                        text.find("rank 0") != std::string::npos,
                    "text: " + text);
            require(received == std::vector<std::byte>(100, std::byte{0x5a}),
                    "the buffer was touched");
            comm.recv(bytes_of(received), 0, 4);
            require(received == pattern(100, 2), "the next message is damaged");
            require(!comm.is_broken(), "the communicator must stay usable");
          }
        }
      },
      small_rings());
}

BOOST_AUTO_TEST_CASE(probe_tells_the_length_of_the_next_message_without_taking_it) {
  run_communicators(
      2,
      [](Communicator& comm) {
        if (comm.rank() == 0) {
          for (const std::size_t nbytes : {std::size_t{5}, std::size_t{0}, std::size_t{50'000}})
            comm.send(bytes_of(pattern(nbytes, 1)), 1, tag::kObject);
          comm.send(bytes_of(pattern(3, 1)), 1, 1);
        } else {
          for (const std::size_t nbytes : {std::size_t{5}, std::size_t{0}, std::size_t{50'000}}) {
            require(comm.probe(0, tag::kObject).nbytes == nbytes, "first probe");
            require(comm.probe(0, tag::kObject).nbytes == nbytes, "second probe");
            std::vector<std::byte> received(nbytes);
            comm.recv(bytes_of(received), 0, tag::kObject);
            require(received == pattern(nbytes, 1), "wrong bytes");
          }
          std::vector<std::byte> last(3);
          comm.recv(bytes_of(last), 0, 1);
        }
      },
      small_rings());
}

BOOST_AUTO_TEST_CASE(many_ranks_that_all_send_to_all_get_everything) {
  run_communicators(
      5,
      [](Communicator& comm) {
        const std::size_t nbytes = 20'000;
        std::vector<std::vector<std::byte>> out;
        std::vector<std::vector<std::byte>> in;
        std::vector<std::shared_ptr<Work>> works;
        for (int peer = 0; peer < comm.size(); ++peer) {
          out.push_back(pattern(nbytes, static_cast<unsigned>(10 * comm.rank() + peer)));
          in.emplace_back(nbytes);
        }
        for (int peer = 0; peer < comm.size(); ++peer) {
          const auto at = static_cast<std::size_t>(peer);
          works.push_back(comm.irecv(bytes_of(in[at]), peer, 3));
          works.push_back(comm.isend(bytes_of(out[at]), peer, 3));
        }
        for (const auto& work : works) work->wait();
        for (int peer = 0; peer < comm.size(); ++peer)
          require(in[static_cast<std::size_t>(peer)] ==
                      pattern(nbytes, static_cast<unsigned>(10 * peer + comm.rank())),
                  "wrong bytes from rank " + std::to_string(peer));
      },
      small_rings());
}

BOOST_AUTO_TEST_CASE(bad_addresses_are_refused_with_the_range_and_the_communicator_stays_usable) {
  run_communicators(1, [](Communicator& comm) {
    for (const int peer : {-1, 1}) {
      const std::string text = error_text(Errc::invalid_argument, [&] { comm.send({}, peer, 0); });
      require(text.find("ranks 0 to 0") != std::string::npos, text);
    }
    const std::string text =
        error_text(Errc::invalid_argument, [&] { comm.send({}, 0, tag::kUserLimit); });
    require(text.find("16383") != std::string::npos, text);
    require(!comm.is_broken(), "must stay usable");
  });
}

BOOST_AUTO_TEST_SUITE_END()
BOOST_AUTO_TEST_SUITE_END()

}  // namespace hpcomm::testing
