// FarArrivals and FarSent: what one end says of the packets that came is what the other end learns.
// docs/far-transport.md sections 3, 5 and 6.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "farverbs/base/prng.h"
#include "farverbs/proto/far_arrivals.h"
#include "farverbs/proto/far_sent.h"

namespace farverbs::proto {
namespace {

constexpr PacketNumber kFirst = (uint64_t{1} << 32) + 0xFF'FFF0;  // the PSN wraps early
constexpr Time kStart = Time::from_ns(1'000'000'000);
Time at_us(int64_t us) { return kStart + Duration::microseconds(us); }

struct Told {
  wire::FarAck header;
  std::vector<std::byte> ranges;
  PacketNumber greatest = 0;
  FarAcknowledged decoded() const {
    FarAcknowledged told;
    told.greatest = greatest;
    told.first_range = header.first_range;
    told.ranges = ranges;
    told.delay = Duration::microseconds(header.delay_us);
    return told;
  }
};

Told tell(FarArrivals& arrivals, Time now) {
  Told told;
  const size_t planned = arrivals.plan();
  told.ranges.resize(planned * wire::FarRange::kSize);
  told.greatest = arrivals.greatest();
  arrivals.write(now, told.header, planned, told.ranges.data());
  return told;
}

struct Sender {
  FarSent sent;
  Feedback feedback;
  std::set<uint32_t> acked;  // FarPacket::offset, which counts packets here
  std::vector<uint32_t> lost;
  uint32_t count = 0;

  Sender() { sent.start(kFirst, 7); }
  // Gives the packet's number.
  PacketNumber send(Time now) {
    FarPacket packet;
    packet.sent = now;
    packet.offset = count++;
    packet.bytes = 1'000;
    packet.content = FarContent::kData;
    const PacketNumber number = sent.next();
    sent.add(packet, FlightMark{});
    return number;
  }
  bool take(Time now, const Told& told) {
    return sent.on_acknowledge(
        now, told.decoded(), feedback, [&](const FarPacket& p) { acked.insert(p.offset); },
        [&](const FarPacket& p) { lost.push_back(p.offset); });
  }
};

wire::FarBase often() {
  wire::FarBase base;
  base.ack_ratio = 6;
  base.ack_delay = 10;
  return base;
}

TEST(FarNumbers, ExtendToTheNearest) {
  for (const PacketNumber reference : {kFirst, kFirst + (uint64_t{1} << 39) + 5}) {
    for (const int64_t distance :
         {int64_t{0}, int64_t{1}, int64_t{-1}, (int64_t{1} << 39) - 1, -(int64_t{1} << 39)}) {
      const PacketNumber number = reference + static_cast<uint64_t>(distance);
      EXPECT_EQ(extend_far_number(static_cast<uint16_t>(number >> 24), Psn(number), reference),
                number);
    }
  }
}

TEST(FarArrivals, AcknowledgesEveryFewPacketsAndAtOnceWhenSomethingIsMissing) {
  FarArrivals arrivals;
  arrivals.start(kFirst);
  wire::FarBase base;
  base.ack_ratio = 2;
  base.ack_delay = 5;  // 512 us
  for (uint64_t i = 0; i < 3; ++i) arrivals.add(at_us(0), kFirst + i, base, false, false);
  EXPECT_FALSE(arrivals.owed_now());
  EXPECT_EQ(arrivals.deadline(), at_us(512));
  arrivals.add(at_us(1), kFirst + 3, base, false, false);
  EXPECT_TRUE(arrivals.owed_now());  // the fourth
  tell(arrivals, at_us(1));
  EXPECT_FALSE(arrivals.owed_now());
  EXPECT_TRUE(arrivals.deadline().is_never());
  arrivals.add(at_us(2), kFirst + 5, base, false, false);
  EXPECT_TRUE(arrivals.owed_now());  // one is missing
  tell(arrivals, at_us(2));
  arrivals.add(at_us(3), kFirst + 4, base, false, false);
  EXPECT_TRUE(arrivals.owed_now());  // it came late
  tell(arrivals, at_us(3));
  arrivals.add(at_us(4), kFirst + 6, base, true, false);
  EXPECT_TRUE(arrivals.owed_now());  // AckReq
  tell(arrivals, at_us(4));
  arrivals.add(at_us(5), kFirst + 7, base, false, true);
  EXPECT_TRUE(arrivals.owed_now());  // marks begin
  EXPECT_EQ(tell(arrivals, at_us(5)).header.congestion_marks, 1u);
  arrivals.add(at_us(6), kFirst + 8, base, false, true);
  EXPECT_FALSE(arrivals.owed_now());
  arrivals.on_timer(at_us(6 + 512));
  EXPECT_TRUE(arrivals.owed_now());
  EXPECT_EQ(tell(arrivals, at_us(6 + 512)).header.delay_us, 512u);
}

TEST(FarArrivals, KnowsWhatItHasSeen) {
  FarArrivals arrivals;
  arrivals.start(kFirst);
  for (const uint64_t i : {0u, 1u, 5u, 3u}) {
    EXPECT_FALSE(arrivals.seen(kFirst + i));
    arrivals.add(kStart, kFirst + i, often(), false, false);
    EXPECT_TRUE(arrivals.seen(kFirst + i));
  }
  EXPECT_FALSE(arrivals.seen(kFirst + 2));
  EXPECT_FALSE(arrivals.seen(kFirst + 4));
  EXPECT_FALSE(arrivals.plausible(kFirst - 1));
}

TEST(FarArrivals, ForgetsTheOldestOfTooManyRanges) {
  FarArrivals arrivals;
  arrivals.start(kFirst);
  const uint64_t most = 10'000;
  for (uint64_t i = 0; i < most; ++i) arrivals.add(kStart, kFirst + 2 * i, often(), false, false);
  EXPECT_TRUE(arrivals.seen(kFirst + 1)) << "nobody knows any more";
  EXPECT_FALSE(arrivals.seen(kFirst + 2 * most - 3));
  EXPECT_LE(arrivals.plan(), 255u);
}

TEST(FarArrivals, AChangeIsToldTwelveTimesAndLongCountsAreContinued) {
  FarArrivals arrivals;
  arrivals.start(kFirst);
  Sender sender;
  std::vector<PacketNumber> numbers;
  for (uint32_t i = 0; i < 400'000; ++i) numbers.push_back(sender.send(kStart));
  std::vector<bool> arrives(numbers.size(), true);
  for (size_t i = 100; i < 200'000; ++i) arrives[i] = false;
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (arrives[i]) arrivals.add(at_us(10), numbers[i], often(), false, false);
  }
  Told told;
  for (int i = 0; i < 12; ++i) {
    told = tell(arrivals, at_us(10));
    EXPECT_GE(told.ranges.size(), 3 * wire::FarRange::kSize);  // the gap alone takes three
  }
  EXPECT_TRUE(tell(arrivals, at_us(10)).ranges.size() == 0);
  ASSERT_TRUE(sender.take(at_us(20), told));
  EXPECT_EQ(sender.acked.size(), 200'100u);
}

TEST(FarSent, RefusesAcknowledgementsOfWhatWasNeverSent) {
  Sender sender;
  PacketNumber last = 0;
  for (int i = 0; i < 20'000; ++i) last = sender.send(kStart);
  Told told;
  told.header.first_range = 1;
  told.greatest = last + 1;
  EXPECT_FALSE(sender.take(at_us(10), told));
  told.greatest = kFirst - 1;
  EXPECT_FALSE(sender.take(at_us(10), told));
  told.greatest = last;
  told.header.first_range = static_cast<uint32_t>(last - kFirst + 2);  // begins before the first
  EXPECT_FALSE(sender.take(at_us(10), told));
  told.header.first_range = 0;
  EXPECT_FALSE(sender.take(at_us(10), told));
  // An optimist claims everything, and with it the numbers that were skipped.
  told.header.first_range = static_cast<uint32_t>(last - kFirst + 1);
  EXPECT_FALSE(sender.take(at_us(10), told));
  EXPECT_TRUE(sender.acked.empty());
  EXPECT_EQ(sender.feedback.acked_bytes, 0u);
  EXPECT_GT(last - kFirst, 20'000u) << "no number was skipped";
}

TEST(FarSent, ALossIsFoundWhenALaterPacketArrivedLongEnoughAgo) {
  Sender sender;
  FarArrivals arrivals;
  arrivals.start(kFirst);
  const int64_t rtt = 100'000;
  const PacketNumber first = sender.send(at_us(0));
  arrivals.add(at_us(rtt / 2), first, often(), true, false);
  ASSERT_TRUE(sender.take(at_us(rtt), tell(arrivals, at_us(rtt / 2))));
  EXPECT_EQ(sender.sent.smoothed_rtt(), Duration::microseconds(rtt));
  sender.send(at_us(rtt));  // lost
  const PacketNumber third = sender.send(at_us(rtt));
  arrivals.add(at_us(rtt * 3 / 2), third, often(), true, false);
  ASSERT_TRUE(sender.take(at_us(2 * rtt), tell(arrivals, at_us(rtt * 3 / 2))));
  EXPECT_TRUE(sender.lost.empty()) << "it may be late";
  // A quarter of the round trip later it is not.
  EXPECT_EQ(sender.sent.loss_deadline(), at_us(2 * rtt + rtt / 4));
  sender.sent.detect_lost(at_us(2 * rtt + rtt / 4),
                          [&](const FarPacket& p) { sender.lost.push_back(p.offset); });
  EXPECT_EQ(sender.lost, std::vector<uint32_t>{1});
  EXPECT_EQ(sender.sent.in_flight(), 0u);
  // It arrives after all: the loss was none, and the window grows.
  arrivals.add(at_us(2 * rtt), third - 1, often(), true, false);
  sender.feedback = {};
  ASSERT_TRUE(sender.take(at_us(5 * rtt / 2), tell(arrivals, at_us(2 * rtt))));
  EXPECT_EQ(sender.feedback.spurious_bytes, 1'000u);
  EXPECT_EQ(sender.feedback.acked_bytes, 0u);
  sender.send(at_us(3 * rtt));
  const PacketNumber fifth = sender.send(at_us(3 * rtt));
  arrivals.add(at_us(rtt * 7 / 2), fifth, often(), true, false);
  ASSERT_TRUE(sender.take(at_us(4 * rtt), tell(arrivals, at_us(rtt * 7 / 2))));
  EXPECT_EQ(sender.sent.loss_deadline(), at_us(4 * rtt + rtt / 2));
}

TEST(FarSent, AbsurdDelaysDoNotMakeTheRoundTripShorterThanTheLeast) {
  Sender sender;
  Told told;
  told.greatest = sender.send(at_us(0));
  told.header.first_range = 1;
  told.header.delay_us = 0xFFFF'FFFF;
  ASSERT_TRUE(sender.take(at_us(1'000), told));
  EXPECT_EQ(sender.feedback.rtt, Duration::microseconds(1'000));
}

// Whatever is lost and however late the rest comes: what was told is what arrived.
TEST(FarSent, LearnsExactlyWhatArrived) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Prng prng(seed);
    Sender sender;
    FarArrivals arrivals;
    arrivals.start(kFirst);
    std::set<uint32_t> arrived;
    std::vector<std::pair<PacketNumber, uint32_t>> wire;
    int64_t now = 0;
    for (int round = 0; round < 400; ++round, now += 500) {
      const auto burst = 1 + prng.next() % 40;
      for (uint64_t i = 0; i < burst; ++i) {
        const uint32_t offset = sender.count;
        wire.emplace_back(sender.send(at_us(now)), offset);
      }
      for (size_t i = 1; i < wire.size(); ++i) {
        if (prng.next() % 20 == 0) std::swap(wire[i - 1], wire[i]);
      }
      const size_t deliver = prng.next() % (wire.size() + 1);
      for (size_t i = 0; i < deliver; ++i) {
        if (prng.next() % 10 == 0) continue;  // lost
        arrived.insert(wire[i].second);
        arrivals.add(at_us(now), wire[i].first, often(), false, false);
      }
      wire.erase(wire.begin(), wire.begin() + static_cast<ptrdiff_t>(deliver));
      if (!arrivals.any()) continue;
      const Told told = tell(arrivals, at_us(now));
      if (prng.next() % 4 != 0) {  // acknowledgements get lost as well
        ASSERT_TRUE(sender.take(at_us(now + 100), told)) << "seed " << seed;
      }
    }
    ASSERT_TRUE(
        std::includes(arrived.begin(), arrived.end(), sender.acked.begin(), sender.acked.end()))
        << "seed " << seed;
    // Nothing of the last rounds may be missing; earlier ones may have been forgotten when twelve
    // acknowledgements in a row were lost.
    EXPECT_GT(sender.acked.size(), arrived.size() * 99 / 100) << "seed " << seed;
  }
}

}  // namespace
}  // namespace farverbs::proto
