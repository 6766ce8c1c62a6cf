// The MPI transport over a fake MPI, for both widths of handles; ranks are threads.
#include "transport/mpi/transport.hpp"

#include <dlfcn.h>
#include <unistd.h>

#include <boost/test/unit_test.hpp>
#include <filesystem>
#include <fstream>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "support/communicators.hpp"
#include "support/ranks.hpp"
#include "transport/endpoint.hpp"
#include "transport/tag.hpp"

namespace hpcomm::testing {

BOOST_AUTO_TEST_SUITE(transport)
BOOST_AUTO_TEST_SUITE(mpi_transport)

namespace {

constexpr std::size_t kChunk = 64;
constexpr std::size_t kEager = 40;

struct FakeMpi {
  explicit FakeMpi(bool pointers)
      : path(pointers ? HPCOMM_FAKE_MPI_POINTER : HPCOMM_FAKE_MPI_INT),
        has_pointers(pointers),
        library(dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    if (library == nullptr) throw std::runtime_error(dlerror());
    begin = reinterpret_cast<decltype(begin)>(dlsym(library, "fake_mpi_begin"));
    comm = reinterpret_cast<decltype(comm)>(dlsym(library, "fake_mpi_comm"));
    fail_next_send =
        reinterpret_cast<decltype(fail_next_send)>(dlsym(library, "fake_mpi_fail_next_send"));
    leftovers = reinterpret_cast<decltype(leftovers)>(dlsym(library, "fake_mpi_leftovers"));
  }

  mpi::Binding binding(int rank) const {
    mpi::Binding result;
    result.library_path = path;
    result.pointer_handles = has_pointers;
    result.comm = comm(rank);
    result.any_source = -2;
    result.max_error_string = 512;
    result.chunk_limit = kChunk;
    result.description = "Fake MPI 1.0";
    return result;
  }

  std::string path;
  bool has_pointers;
  void* library;
  void (*begin)(int, std::size_t, int) = nullptr;
  std::uint64_t (*comm)(int) = nullptr;
  void (*fail_next_send)(int) = nullptr;
  int (*leftovers)() = nullptr;
};

using Body = std::function<void(Endpoint&, const FakeMpi&)>;

// Each rank on a thread, with an endpoint whose peers are all reached over the fake MPI; for both
// widths, with and without probes that overlook messages.
void run(int size, const Body& body) {
  for (const bool pointers : {false, true}) {
    const FakeMpi fake(pointers);
    for (const int blindness : {0, 60}) {
      fake.begin(size, kEager, blindness);
      std::vector<std::string> failures(static_cast<std::size_t>(size));
      std::vector<std::thread> threads;
      for (int rank = 0; rank < size; ++rank) {
        threads.emplace_back([&, rank] {
          try {
            std::vector<std::unique_ptr<Transport>> transports;
            transports.push_back(mpi::make_transport(fake.binding(rank), 77, rank, size, "world"));
            Endpoint endpoint(rank, size, "world", std::move(transports), nullptr,
                              default_surroundings());
            body(endpoint, fake);
          } catch (const std::exception& error) {
            failures[static_cast<std::size_t>(rank)] = error.what();
          }
        });
      }
      for (std::thread& thread : threads) thread.join();
      for (int rank = 0; rank < size; ++rank)
        BOOST_TEST(failures[static_cast<std::size_t>(rank)] == "",
                   "rank " << rank << ": " << failures[static_cast<std::size_t>(rank)]);
    }
  }
}

Deadline patient() { return Deadline::after(default_surroundings(), 30); }

void send(Endpoint& endpoint, const std::vector<std::byte>& data, int peer, Tag tag) {
  Endpoint::Handle handle = endpoint.isend(bytes_of(data), peer, tag);
  endpoint.wait(handle, patient(), "send");
}

std::vector<std::byte> receive(Endpoint& endpoint, std::size_t nbytes, int peer, Tag tag) {
  std::vector<std::byte> data(nbytes);
  Endpoint::Handle handle = endpoint.irecv(bytes_of(data), peer, tag);
  endpoint.wait(handle, patient(), "receive");
  return data;
}

const std::vector<std::size_t> kSizes = {
    0, 1, 39, 41, kChunk - 1, kChunk, kChunk + 1, 2 * kChunk - 1, 2 * kChunk, 2 * kChunk + 1, 1003};

}  // namespace

BOOST_AUTO_TEST_CASE(messages_around_the_chunk_limit_arrive_whole_in_order_of_posting) {
  run(2, [](Endpoint& endpoint, const FakeMpi&) {
    const int peer = 1 - endpoint.rank();
    std::vector<std::vector<std::byte>> out;
    std::vector<std::vector<std::byte>> in;
    std::vector<Endpoint::Handle> handles;
    for (unsigned i = 0; i < kSizes.size(); ++i) {
      out.push_back(pattern(kSizes[i], i));
      in.emplace_back(kSizes[i]);
    }
    for (std::size_t i = 0; i < kSizes.size(); ++i)
      handles.push_back(endpoint.irecv(bytes_of(in[i]), peer, 3));
    for (std::size_t i = 0; i < kSizes.size(); ++i)
      handles.push_back(endpoint.isend(bytes_of(out[i]), peer, 3));
    endpoint.wait_all(handles, patient(), "exchange");
    require(in == out, "wrong bytes");
  });
}

BOOST_AUTO_TEST_CASE(long_messages_of_several_tags_keep_apart) {
  run(2, [](Endpoint& endpoint, const FakeMpi&) {
    if (endpoint.rank() == 0) {
      std::vector<std::vector<std::byte>> out;
      std::vector<Endpoint::Handle> handles;
      for (unsigned tag = 0; tag < 4; ++tag) out.push_back(pattern(200 + 50 * tag, tag));
      for (unsigned tag = 0; tag < 4; ++tag)
        handles.push_back(endpoint.isend(bytes_of(out[tag]), 1, tag));
      endpoint.wait_all(handles, patient(), "sends");
    } else {
      for (const unsigned tag : {2U, 3U, 0U, 1U})
        require(receive(endpoint, 200 + 50 * tag, 0, tag) == pattern(200 + 50 * tag, tag),
                "tag " + std::to_string(tag));
    }
  });
}

BOOST_AUTO_TEST_CASE(a_message_of_another_length_names_both_and_the_next_one_is_whole) {
  for (const std::size_t sent : {std::size_t{0}, std::size_t{20}, kChunk, std::size_t{500}}) {
    for (const std::size_t expected : {std::size_t{10}, std::size_t{300}}) {
      run(2, [=](Endpoint& endpoint, const FakeMpi&) {
        if (endpoint.rank() == 0) {
          send(endpoint, pattern(sent, 1), 1, 2);
          send(endpoint, pattern(expected, 2), 1, 2);
          return;
        }
        const std::string text =
            error_text(Errc::mismatch, [&] { receive(endpoint, expected, 0, 2); });
        require(text.find(std::to_string(sent) + " bytes") != std::string::npos &&
                    text.find(std::to_string(expected) + " bytes") != std::string::npos,
                text);
        require(receive(endpoint, expected, 0, 2) == pattern(expected, 2),
                "the next message is damaged");
      });
    }
  }
}

BOOST_AUTO_TEST_CASE(probe_tells_the_whole_length_and_takes_nothing) {
  run(2, [](Endpoint& endpoint, const FakeMpi&) {
    for (const std::size_t nbytes : kSizes) {
      if (endpoint.rank() == 0) {
        send(endpoint, pattern(nbytes, 1), 1, tag::kObject);
        continue;
      }
      for (int round = 0; round < 2; ++round) {
        std::optional<std::size_t> found;
        const int peers[] = {0};
        endpoint.wait_until([&] { return (found = endpoint.iprobe(0, tag::kObject)).has_value(); },
                            peers, [](int) { return false; }, patient(), "probe");
        require(*found == nbytes,
                "probed " + std::to_string(*found) + " of " + std::to_string(nbytes));
      }
      require(receive(endpoint, nbytes, 0, tag::kObject) == pattern(nbytes, 1), "wrong bytes");
    }
  });
}

BOOST_AUTO_TEST_CASE(a_cancelled_receive_leaves_its_message_to_the_next_one) {
  run(2, [](Endpoint& endpoint, const FakeMpi&) {
    if (endpoint.rank() == 0) {
      receive(endpoint, 1, 1, 9);
      send(endpoint, pattern(100, 1), 1, 2);
      return;
    }
    std::vector<std::byte> never(100);
    Endpoint::Handle handle = endpoint.irecv(bytes_of(never), 0, 2);
    endpoint.cancel(handle);
    send(endpoint, pattern(1, 1), 0, 9);
    require(receive(endpoint, 100, 0, 2) == pattern(100, 1), "wrong bytes");
    require(never == std::vector<std::byte>(100), "a cancelled receive was filled");
  });
}

BOOST_AUTO_TEST_CASE(a_failure_is_heard_by_every_waiting_rank_with_its_text_and_origin) {
  for (const bool is_death : {false, true})
    run(3, [&](Endpoint& endpoint, const FakeMpi&) {
      if (endpoint.rank() == 2) {
        endpoint.announce_failure(
            {is_death ? Errc::peer_dead : Errc::timeout, 1, "no more electricity"});
        return;
      }
      const std::string text = error_text(is_death ? Errc::peer_dead : Errc::peer_aborted,
                                          [&] { receive(endpoint, 8, 1 - endpoint.rank(), 0); });
      require(text == (is_death ? "no more electricity" : "rank 1 failed: no more electricity"),
              text);
    });
}

BOOST_AUTO_TEST_CASE(a_rank_that_leaves_is_named_by_those_it_talked_to) {
  run(2, [](Endpoint& endpoint, const FakeMpi&) {
    if (endpoint.rank() == 0) {
      send(endpoint, pattern(5, 1), 1, 0);
      endpoint.close();
      return;
    }
    require(receive(endpoint, 5, 0, 0) == pattern(5, 1), "wrong bytes");
    const std::string text = error_text(Errc::peer_aborted, [&] { receive(endpoint, 5, 0, 0); });
    require(text.find("rank 0 closed") != std::string::npos, text);
  });
}

BOOST_AUTO_TEST_CASE(control_messages_of_an_earlier_communicator_are_ignored) {
  const FakeMpi fake(true);
  fake.begin(2, kEager, 0);
  {
    const auto earlier = mpi::make_transport(fake.binding(0), 1, 0, 2, "earlier");
    earlier->announce_failure({Errc::timeout, 0, "long ago"});
  }
  const auto later = mpi::make_transport(fake.binding(1), 2, 1, 2, "later");
  BOOST_CHECK_NO_THROW(later->check_announcements());
  BOOST_CHECK_NO_THROW(later->check_peer(0));
}

BOOST_AUTO_TEST_CASE(a_peer_whose_end_its_supervisor_noted_is_dead_but_its_messages_count) {
  const auto folder =
      std::filesystem::temp_directory_path() / ("hpcomm-mpi-test-" + std::to_string(getpid()));
  for (const char* name : {"end.7", "done.7"}) {
    std::filesystem::create_directory(folder);
    const FakeMpi fake(false);
    fake.begin(2, kEager, 0);
    mpi::Binding binding = fake.binding(0);
    binding.session_folder = folder.string();
    binding.job_ranks = {3, 7};
    const auto mine = mpi::make_transport(binding, 5, 0, 2, "pair");
    const auto theirs = mpi::make_transport(fake.binding(1), 5, 1, 2, "pair");
    BOOST_CHECK_NO_THROW(mine->check_peer(1));
    std::vector<std::byte> sent = pattern(5, 1);
    std::vector<std::byte> received(5);
    BOOST_TEST(theirs->test(theirs->isend(bytes_of(sent), 0, 0)));
    std::ofstream(folder / name) << "{}";
    const Ticket ticket = mine->irecv(bytes_of(received), 1, 0);
    BOOST_CHECK_NO_THROW(mine->check_peer(1));
    BOOST_TEST(mine->test(ticket));
    BOOST_TEST((received == sent));
    const std::string text = error_text(Errc::peer_dead, [&] { mine->check_peer(1); });
    BOOST_TEST(text.find("rank 1 of communicator 'pair' died") != std::string::npos, text);
    std::filesystem::remove_all(folder);
  }
}

BOOST_AUTO_TEST_CASE(an_error_of_mpi_carries_its_own_text_and_both_ranks) {
  run(2, [](Endpoint& endpoint, const FakeMpi& fake) {
    if (endpoint.rank() == 1) return;
    fake.fail_next_send(0);
    const std::string text = error_text(Errc::transport, [&] { endpoint.isend({}, 1, 0); });
    for (const char* part :
         {"MPI_Isend", "ranks 0 and 1", "'world'", "Fake MPI 1.0", "told to fail"})
      require(text.find(part) != std::string::npos, text);
  });
}

BOOST_AUTO_TEST_CASE(a_library_that_is_not_loaded_or_is_no_mpi_is_refused_with_the_remedy) {
  mpi::Binding binding;
  binding.library_path = "/nowhere/MPI.so";
  std::string text =
      error_text(Errc::transport, [&] { mpi::make_transport(binding, 0, 0, 2, "world"); });
  BOOST_TEST(text.find("import mpi4py") != std::string::npos, text);
  binding = FakeMpi(false).binding(0);
  binding.chunk_limit = std::size_t{1} << 40U;
  text =
      error_text(Errc::invalid_argument, [&] { mpi::make_transport(binding, 0, 0, 2, "world"); });
  BOOST_TEST(text.find("HPCOMM_CHUNK_LIMIT") != std::string::npos, text);
}

BOOST_AUTO_TEST_SUITE_END()
BOOST_AUTO_TEST_SUITE_END()

}  // namespace hpcomm::testing
