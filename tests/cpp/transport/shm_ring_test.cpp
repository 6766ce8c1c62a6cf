#include "transport/shm/ring.hpp"

#include <boost/test/unit_test.hpp>
#include <cstring>
#include <thread>
#include <vector>

#include "support/communicators.hpp"

namespace hpcomm::testing {

BOOST_AUTO_TEST_SUITE(transport)
BOOST_AUTO_TEST_SUITE(shm_ring)

namespace {

constexpr std::size_t kCapacity = 4096;

struct Ring {
  shm::RingLines lines;
  std::vector<std::byte> data = std::vector<std::byte>(kCapacity);
  shm::RingProducer producer{lines, data.data(), kCapacity};
  shm::RingConsumer consumer{lines, data.data(), kCapacity};
};

}  // namespace

BOOST_AUTO_TEST_CASE(an_empty_ring_offers_all_its_bytes_and_a_full_one_none) {
  Ring ring;
  BOOST_TEST(ring.producer.free_bytes(1) == kCapacity);
  BOOST_TEST(ring.consumer.available() == 0U);
  const std::vector<std::byte> bytes = pattern(kCapacity, 1);
  ring.producer.put(bytes.data(), kCapacity);
  BOOST_TEST(ring.consumer.available() == 0U);  // not before it is published
  ring.producer.publish();
  BOOST_TEST(ring.producer.free_bytes(1) == 0U);
  BOOST_TEST(ring.consumer.available() == kCapacity);
}

BOOST_AUTO_TEST_CASE(bytes_that_wrap_around_the_end_come_out_in_order) {
  Ring ring;
  for (const std::size_t nbytes :
       {std::size_t{1}, std::size_t{1000}, kCapacity - 1, kCapacity, std::size_t{17}}) {
    for (unsigned round = 0; round < 9; ++round) {
      const std::vector<std::byte> in = pattern(nbytes, round);
      std::vector<std::byte> out(nbytes);
      BOOST_TEST(ring.producer.free_bytes(nbytes) >= nbytes);
      ring.producer.put(in.data(), nbytes);
      ring.producer.publish();
      BOOST_TEST(ring.consumer.available() == nbytes);
      ring.consumer.take(out.data(), nbytes);
      ring.consumer.release();
      BOOST_TEST(in == out);
    }
  }
}

BOOST_AUTO_TEST_CASE(dropped_and_skipped_bytes_leave_the_rest_in_place) {
  Ring ring;
  const std::vector<std::byte> in = pattern(64, 5);
  ring.producer.put(in.data(), 10);
  ring.producer.skip(6);
  ring.producer.put(in.data() + 10, 54);
  ring.producer.publish();
  std::vector<std::byte> out(64);
  ring.consumer.take(nullptr, 16);
  ring.consumer.take(out.data(), 54);
  BOOST_TEST(std::memcmp(out.data(), in.data() + 10, 54) == 0);
}

BOOST_AUTO_TEST_CASE(a_producer_and_a_consumer_at_different_speed_lose_nothing) {
  Ring ring;
  constexpr std::size_t kTotal = 400'000;
  const std::vector<std::byte> in = pattern(kTotal, 9);
  std::vector<std::byte> out(kTotal);
  std::thread sender([&] {
    std::size_t piece = 1;
    for (std::size_t at = 0; at < kTotal;) {
      const std::size_t now = std::min({piece, kTotal - at, ring.producer.free_bytes(piece)});
      ring.producer.put(in.data() + at, now);
      ring.producer.publish();
      at += now;
      piece = piece % 777 + 1;
      if (now == 0) std::this_thread::yield();
    }
  });
  for (std::size_t at = 0; at < kTotal;) {
    const std::size_t now = std::min(ring.consumer.available(), kTotal - at);
    ring.consumer.take(out.data() + at, now);
    ring.consumer.release();
    at += now;
    if (now == 0) std::this_thread::yield();
  }
  sender.join();
  BOOST_TEST((in == out));
}

BOOST_AUTO_TEST_SUITE_END()
BOOST_AUTO_TEST_SUITE_END()

}  // namespace hpcomm::testing
