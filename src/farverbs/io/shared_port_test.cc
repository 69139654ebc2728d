#include "farverbs/io/shared_port.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <map>

#include "farverbs/base/byte_order.h"
#include "farverbs/io/os_clock.h"
#include "farverbs/io/os_entropy.h"
#include "farverbs/io/test_support.h"

namespace farverbs::io {
namespace {

constexpr size_t kDatagramBytes = 64;

IpAddress address(const std::string& text) { return IpAddress::parse(text).value(); }

// What a member answers to each datagram.
struct Answer {
  uint32_t id = 0;         // of the datagram
  uint8_t slot = 0;        // of the process that got it
  uint64_t forwarded = 0;  // how many datagrams it has handed to others so far

  static constexpr size_t kBytes = 16;
  void store(std::byte* place) const {
    store_be(place, id);
    store_be(place + 4, uint32_t{slot});
    store_be(place + 8, forwarded);
  }
  static Answer load(const std::byte* place) {
    return {load_be<uint32_t>(place), static_cast<uint8_t>(load_be<uint32_t>(place + 4)),
            load_be<uint64_t>(place + 8)};
  }
};

// The life of a member process: answers whatever is its own, until it is killed.
[[noreturn]] void serve(const Endpoint& shared, int ready) {
  OsEntropy entropy;
  UdpOptions options;
  options.local = shared;
  auto port = SharedPort::open(options, entropy);
  uint8_t slot = 0xff;
  if (port.ok()) {
    slot = (*port)->slot();
  } else {
    std::fprintf(stderr, "member: %s\n", port.error().message.c_str());
  }
  if (write(ready, &slot, 1) != 1 || !port.ok()) _exit(1);
  std::array<RxBurst, 8> bursts;
  for (;;) {
    wait_readable(**port, 1000);
    const size_t n = (*port)->receive(bursts);
    for (const RxBurst& b : std::span(bursts).first(n)) {
      for (size_t at = 0; at + kDatagramBytes <= b.bytes.size(); at += b.segment_size) {
        OwnedBurst reply(Answer::kBytes);
        Answer{load_be<uint32_t>(b.bytes.data() + at + 12), slot,
               (*port)->sharing().forwarded_datagrams}
            .store(reply->append(Answer::kBytes));
        TxFlow flow;
        flow.destination = b.source;
        (*port)->send(flow, *reply);
      }
    }
  }
}

// Member processes of one (address, port), and a peer that sends to them.
class Members {
 public:
  explicit Members(const std::string& text) {
    UdpOptions options;
    options.local = {address(text), 0};
    peer_ = UdpPort::open(options).value();
    // A port that is free now; the members open it one after the other.
    shared_ = UdpPort::open(options).value()->local();
  }
  ~Members() {
    while (!members_.empty()) kill_member(members_.begin()->first);
  }

  uint8_t join() {
    int ends[2];
    EXPECT_EQ(pipe(ends), 0);
    const pid_t pid = fork_child([&] { serve(shared_, ends[1]); });
    close(ends[1]);
    uint8_t slot = 0xff;
    EXPECT_EQ(read(ends[0], &slot, 1), 1);
    close(ends[0]);
    EXPECT_EQ(members_.count(slot), 0u);
    members_[slot] = pid;
    return slot;
  }
  void kill_member(uint8_t slot) {
    kill(members_.at(slot), SIGKILL);
    exit_status(members_.at(slot));
    members_.erase(slot);
    forwarded_.erase(slot);
  }
  void stop(uint8_t slot) {
    kill(members_.at(slot), SIGSTOP);
    int status;
    waitpid(members_.at(slot), &status, WUNTRACED);
  }
  void resume(uint8_t slot) { kill(members_.at(slot), SIGCONT); }
  std::vector<uint8_t> slots() const {
    std::vector<uint8_t> result;
    for (const auto& [slot, pid] : members_) result.push_back(slot);
    return result;
  }

  // Another source port, so that the kernel's hash falls elsewhere.
  void use_new_peer() {
    UdpOptions options;
    options.local = {peer_->local().address, 0};
    peer_ = UdpPort::open(options).value();
  }

  void send_to(uint8_t slot, uint32_t id) { send_to_qpn(slot, 0x77, id); }
  void send_to_qpn(uint8_t slot, uint8_t low_byte, uint32_t id) {
    OwnedBurst burst(kDatagramBytes);
    std::byte* d = burst->append(kDatagramBytes);
    std::fill_n(d, kDatagramBytes, std::byte{0});
    d[5] = std::byte{slot};
    d[7] = std::byte{low_byte};
    store_be(d + 12, id);
    TxFlow flow;
    flow.destination = shared_;
    EXPECT_EQ(peer_->send(flow, *burst), SendStatus::kSent);
  }

  // Sends to every live slot; expects that each datagram reaches the owner of its slot, once.
  // Returns how many of them had come to another process.
  size_t round(size_t per_slot = 4) {
    std::map<uint32_t, uint8_t> expected;
    for (size_t i = 0; i < per_slot; ++i) {
      for (const auto& [slot, pid] : members_) {
        expected[next_id_] = slot;
        send_to(slot, next_id_++);
      }
    }
    size_t misdelivered = 0;
    for (const auto& datagram : split(receive_datagrams(*peer_, expected.size(), 1000))) {
      EXPECT_EQ(datagram.size(), Answer::kBytes);
      const Answer answer = Answer::load(datagram.data());
      const auto found = expected.find(answer.id);
      if (found == expected.end()) {
        ADD_FAILURE() << "answer to datagram " << answer.id << " came twice, or late";
        continue;
      }
      EXPECT_EQ(answer.slot, found->second);
      expected.erase(found);
      uint64_t& seen = forwarded_[answer.slot];
      misdelivered += answer.forwarded - seen;
      seen = answer.forwarded;
    }
    EXPECT_TRUE(expected.empty()) << expected.size()
                                  << " datagrams were not answered, one for slot "
                                  << int{expected.begin()->second};
    return misdelivered;
  }

  // Whether some member took a datagram to QP1, and which; from the same source port each time.
  std::optional<uint8_t> who_manages(int patience_ms) {
    const uint32_t id = next_id_++;
    send_to_qpn(0, 1, id);
    for (;;) {
      const auto answers = receive_datagrams(*peer_, 1, patience_ms);
      if (answers.empty()) return std::nullopt;
      const Answer answer = Answer::load(answers[0].bytes.data());
      if (answer.id == id) return answer.slot;  // and not one to an earlier datagram
    }
  }

  // Until the kernel gives each member its own, which takes a repair; false after some time.
  bool becomes_right() {
    const Time end = os_now() + Duration::seconds(3);
    int quiet = 0;
    while (os_now() < end && !::testing::Test::HasFailure()) {
      // Another hash each time, lest it hides a wrong program by luck. The count that an answer
      // carries may be of before the last datagrams were handed on.
      use_new_peer();
      quiet = round() == 0 ? quiet + 1 : 0;
      if (quiet == 8) return true;
    }
    return false;
  }

  Endpoint shared() const { return shared_; }
  UdpPort& peer() { return *peer_; }

 private:
  std::unique_ptr<UdpPort> peer_;
  Endpoint shared_;
  std::map<uint8_t, pid_t> members_;
  std::map<uint8_t, uint64_t> forwarded_;
  uint32_t next_id_ = 1;
};

void expect_all_orders(const std::string& text, size_t count) {
  std::vector<size_t> order(count);
  for (size_t i = 0; i < count; ++i) order[i] = i;
  do {
    Members members(text);
    for (size_t i = 0; i < count; ++i) ASSERT_EQ(members.join(), i);
    members.round();
    for (const size_t victim : order) {
      members.kill_member(static_cast<uint8_t>(victim));
      if (!members.slots().empty()) members.round();
      std::string so_far;
      for (const size_t i : order) so_far += std::to_string(i) + (i == victim ? "*" : " ");
      ASSERT_FALSE(::testing::Test::HasFailure()) << "dying in the order " << so_far;
    }
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST(SharedPort, TwoProcessesDyingInEitherOrder) { expect_all_orders("127.0.0.1", 2); }
TEST(SharedPort, ThreeProcessesDyingInEveryOrder) { expect_all_orders("127.0.0.1", 3); }
TEST(SharedPort, FourProcessesDyingInEveryOrder) { expect_all_orders("127.0.0.1", 4); }
TEST(SharedPort, ThreeProcessesDyingInEveryOrderIpv6) { expect_all_orders("::1", 3); }

TEST(SharedPort, SteeringIsRightWithoutRepairAsLongAsNobodyLeaves) {
  Members members("127.0.0.1");
  for (size_t i = 0; i < 5; ++i) members.join();
  EXPECT_EQ(members.round(), 0u);
}

// Both directions of the trap: the last member's datagrams go to the hash, and a new member, whose
// slot is the freed one, is where the program expects another.
TEST(SharedPort, SteeringIsRepairedAfterDeathsAndJoins) {
  Members members("127.0.0.1");
  for (size_t i = 0; i < 5; ++i) members.join();
  members.kill_member(1);
  EXPECT_TRUE(members.becomes_right());
  EXPECT_EQ(members.join(), 1);
  EXPECT_TRUE(members.becomes_right());
  members.kill_member(0);
  members.kill_member(4);
  members.round();
  EXPECT_EQ(members.join(), 0);
  members.round();
  EXPECT_EQ(members.join(), 4);
  EXPECT_TRUE(members.becomes_right());
  for (const uint8_t slot : members.slots()) {
    if (slot != 3) members.kill_member(slot);
  }
  EXPECT_TRUE(members.becomes_right());
}

// A stopped member answers no probes and may be who the kernel picks for a slot that has moved; the
// first flow that falls on a live member repairs it for all.
TEST(SharedPort, StoppedMemberHoldsNobodyUp) {
  Members members("127.0.0.1");
  for (size_t i = 0; i < 4; ++i) members.join();
  members.stop(1);
  members.kill_member(0);  // member 3 moves to its index
  for (const uint8_t slot : {2, 3}) {
    bool answered = false;
    for (int i = 0; i < 100 && !answered; ++i) {
      members.use_new_peer();
      members.send_to(slot, 1'000'000);
      const auto answers = receive_datagrams(members.peer(), 1, 20);
      answered = !answers.empty();
      if (answered) {
        EXPECT_EQ(Answer::load(answers[0].bytes.data()).slot, slot);
      }
    }
    ASSERT_TRUE(answered) << "slot " << int{slot};
  }
  members.resume(1);
  members.use_new_peer();
  EXPECT_TRUE(members.becomes_right());
}

// Connections are asked for at QP1, which is no member's own: who asks again reaches another.
TEST(SharedPort, StoppedMemberHoldsNoConnectionsUp) {
  Members members("127.0.0.1");
  for (size_t i = 0; i < 3; ++i) members.join();
  for (const uint8_t stopped : {0, 1}) {
    members.stop(stopped);
    std::optional<uint8_t> who;
    for (int i = 0; i < 100 && !who; ++i) who = members.who_manages(20);
    ASSERT_TRUE(who.has_value());
    EXPECT_NE(*who, stopped);
    members.resume(stopped);
  }
}

TEST(SharedPort, NewMemberSeesWhoIsStopped) {
  Members members("127.0.0.1");
  for (size_t i = 0; i < 3; ++i) members.join();
  members.stop(0);
  members.join();
  // A quarter of the datagrams would get no answer. The new member's probes take their time.
  constexpr int kInARow = 40;
  int answered = 0;
  const Time end = os_now() + Duration::seconds(30);
  while (answered < kInARow && os_now() < end) {
    answered = members.who_manages(200) ? answered + 1 : 0;
  }
  EXPECT_EQ(answered, kInARow);
}

TEST(SharedPort, MemberWhoseDatagramsGoToAStoppedOneRepairsByAsking) {
  Members members("127.0.0.1");
  for (size_t i = 0; i < 2; ++i) members.join();
  SeededEntropy entropy(1);
  UdpOptions options;
  options.local = members.shared();
  auto port = SharedPort::open(options, entropy).value();
  ASSERT_EQ(port->slot(), 2);
  members.kill_member(0);  // this port moves to its index, and index 2 is nobody's
  members.stop(1);
  std::array<RxBurst, 8> bursts;
  const auto arrived = [&] {
    for (int i = 0; i < 50; ++i) {
      wait_readable(*port, 1);
      if (port->receive(bursts) > 0) return true;
    }
    return false;
  };
  // A flow that the kernel's hash gives to the stopped member.
  uint32_t id = 1;
  do {
    members.use_new_peer();
    members.send_to(2, id++);
  } while (arrived() && id < 1000);
  ASSERT_LT(id, 1000u);
  port->check_steering();
  bool right = false;
  for (int i = 0; i < 20 && !right; ++i) {
    arrived();  // probes and answers pass
    members.send_to(2, id++);
    right = arrived();
  }
  EXPECT_TRUE(right);
}

TEST(SharedPort, ThreeProcessesOnAVethAddress) {
  FV_EXPECT_IN_OWN_NETWORK([] {
    if (!run_command("ip link add name va type veth peer name vb 2>/dev/null && "
                     "ip address add 10.7.0.1/24 dev va && ip link set va up && "
                     "ip link set vb up")) {
      _exit(kSkippedExit);
    }
    expect_all_orders("10.7.0.1", 3);
  });
}

TEST(SharedPort, WildcardIsSharedToo) {
  Members members("0.0.0.0");
  // The peer is bound to a wildcard as well; it reaches the members over the loopback interface.
  for (size_t i = 0; i < 3; ++i) members.join();
  members.kill_member(0);
  EXPECT_TRUE(members.becomes_right());
}

TEST(SharedPort, MixedBurstIsTakenApart) {
  SeededEntropy entropy(1);
  UdpOptions options;
  options.local = {address("127.0.0.1"), 0};
  auto a = SharedPort::open(options, entropy).value();
  options.local = a->local();
  auto b = SharedPort::open(options, entropy).value();
  ASSERT_EQ(a->slot(), 0);
  ASSERT_EQ(b->slot(), 1);
  options.local.port = 0;
  auto peer = UdpPort::open(options).value();

  // Slots 0 0 1 9 0 1, then one for QP1, one too short for a QPN.
  OwnedBurst burst(4096);
  for (const uint8_t slot : {0, 0, 1, 9, 0, 1}) {
    burst.add(100);
    std::byte* d = const_cast<std::byte*>(burst->bytes().data()) + burst->bytes().size() - 100;
    d[5] = std::byte{slot};
    d[9] = std::byte{static_cast<uint8_t>(burst->count())};
  }
  burst.add(100);
  std::byte* gsi = const_cast<std::byte*>(burst->bytes().data()) + 600;
  std::fill_n(gsi, 100, std::byte{0});
  gsi[7] = std::byte{1};
  burst.add(4);
  TxFlow flow;
  flow.destination = a->local();
  flow.traffic_class = 0x2A;
  ASSERT_EQ(peer->send(flow, *burst), SendStatus::kSent);

  std::vector<Received> at_a;
  std::vector<Received> at_b;
  std::array<RxBurst, 1> one;  // little room: nothing may be lost
  for (int i = 0; i < 200; ++i) {
    for (auto& [port, log] : {std::pair(a.get(), &at_a), std::pair(b.get(), &at_b)}) {
      if (port->receive(one) == 0) continue;
      log->push_back({{one[0].bytes.begin(), one[0].bytes.end()},
                      one[0].segment_size,
                      one[0].source,
                      one[0].destination,
                      one[0].traffic_class});
    }
  }
  const auto datagrams = split(at_a);
  ASSERT_EQ(datagrams.size(), 5u);
  EXPECT_EQ(datagrams[0][9], std::byte{1});
  EXPECT_EQ(datagrams[1][9], std::byte{2});
  EXPECT_EQ(datagrams[2][9], std::byte{5});
  EXPECT_EQ(datagrams[3][7], std::byte{1});
  EXPECT_EQ(datagrams[4].size(), 4u);
  const auto handed = split(at_b);
  ASSERT_EQ(handed.size(), 2u);
  EXPECT_EQ(handed[0][9], std::byte{3});
  EXPECT_EQ(handed[1][9], std::byte{6});
  EXPECT_EQ(at_b[0].source, peer->local());
  EXPECT_EQ(at_b[0].destination, a->local());
  EXPECT_EQ(at_b[0].traffic_class, 0x2A);
  EXPECT_EQ(a->sharing().forwarded_datagrams, 2u);
  EXPECT_EQ(a->sharing().unowned_datagrams, 1u);
  EXPECT_EQ(b->sharing().handed_over_datagrams, 2u);
}

TEST(SharedPort, OwnerThatDoesNotReadDropsAndCounts) {
  SeededEntropy entropy(1);
  UdpOptions options;
  options.local = {address("127.0.0.1"), 0};
  auto a = SharedPort::open(options, entropy).value();
  options.local = a->local();
  auto b = SharedPort::open(options, entropy).value();
  options.local.port = 0;
  auto peer = UdpPort::open(options).value();
  TxFlow flow;
  flow.destination = a->local();
  std::array<RxBurst, 8> bursts;
  const size_t rounds = 3000;
  for (size_t i = 0; i < rounds; ++i) {
    OwnedBurst burst(200);  // the kernel goes by the first datagram
    burst.add(100).add(100);
    auto* d = const_cast<std::byte*>(burst->bytes().data());
    d[5] = std::byte{0};
    d[105] = std::byte{1};
    ASSERT_EQ(peer->send(flow, *burst), SendStatus::kSent);
    a->receive(bursts);
  }
  const SharingCounters c = a->sharing();
  EXPECT_GT(c.forwarded_datagrams, 0u);
  EXPECT_GT(c.overflowed_datagrams, 0u);
  EXPECT_EQ(c.forwarded_datagrams + c.overflowed_datagrams, rounds);
}

// The address's own host may ask who is where; nobody else.
TEST(SteeringRepair, AnswersOnlyThisHost) {
  SteeringProbe probe;
  probe.index = 3;
  probe.nonce = 0x1234;
  const Endpoint local{address("10.0.0.1"), 4791};
  const auto reply = SteeringRepair::answer(probe, 7, {address("10.0.0.1"), 999}, local);
  ASSERT_TRUE(reply.has_value());
  EXPECT_TRUE(reply->answer);
  EXPECT_EQ(reply->slot, 7);
  EXPECT_EQ(reply->index, 3);
  EXPECT_EQ(reply->nonce, 0x1234u);
  EXPECT_FALSE(SteeringRepair::answer(probe, 7, {address("10.0.0.2"), 999}, local).has_value());
  EXPECT_FALSE(SteeringRepair::answer(*reply, 7, {address("10.0.0.1"), 999}, local).has_value());
  const auto bytes = reply->to_bytes();
  const auto parsed = SteeringProbe::parse(bytes);
  ASSERT_TRUE(parsed.has_value());
  EXPECT_EQ(parsed->slot, 7);
  EXPECT_FALSE(SteeringProbe::parse(std::span(bytes).first(15)).has_value());
}

TEST(SteeringTable, AnIndexBelongsToOneSlot) {
  SteeringTable table;
  EXPECT_EQ(table.index_of(200), 200);
  table.put(5, 2);
  EXPECT_EQ(table.index_of(5), 2);
  table.put(7, 2);
  EXPECT_EQ(table.index_of(7), 2);
  EXPECT_EQ(table.index_of(5), 5);
  table.put(7, 7);
  EXPECT_EQ(table, SteeringTable());
}

TEST(SlotChannel, StrangersAreNotBelieved) {
  const Endpoint endpoint{address("127.0.0.1"), 1};
  auto channel = SlotChannel::claim(endpoint).value();
  const FileDescriptor fd(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const AbstractAddress name = AbstractAddress(slot_prefix(endpoint)).with_number(channel.slot());
  ASSERT_EQ(sendto(fd.get(), "garbage", 7, 0, name.generic(), name.size), 7);
  RxBurst burst;
  EXPECT_FALSE(channel.receive(burst));
  EXPECT_EQ(channel.rejected(), 1u);
  // Root may become somebody else, and send what would be right otherwise.
  if (geteuid() != 0) GTEST_SKIP() << "NOT TESTED: another user's message needs root";
  const uint8_t slot = channel.slot();
  const pid_t child = fork_child([&] {
    if (setreuid(65534, 65534) != 0) _exit(1);
    auto other = SlotChannel::claim(endpoint).value();
    const std::array<std::byte, 40> payload{};
    RxBurst forged;
    forged.bytes = payload;
    forged.segment_size = payload.size();
    _exit(other.forward(slot, forged) == Forwarding::kForwarded ? 0 : 1);
  });
  ASSERT_EQ(exit_status(child), 0);
  EXPECT_FALSE(channel.receive(burst));
  EXPECT_EQ(channel.rejected(), 2u);
}

TEST(SlotNames, AreAsDocumented) {
  const Endpoint endpoint{address("127.0.0.1"), 4791};
  EXPECT_EQ(slot_prefix(endpoint) + "3", "farverbs/127.0.0.1:4791/slot/3");
  EXPECT_EQ(service_name(endpoint, 0x010612ab), "farverbs/127.0.0.1:4791/service/00000000010612ab");
  // The longest address still leaves room.
  const Endpoint longest{address("1111:2222:3333:4444:5555:6666:7777:8888"), 65535};
  EXPECT_LT(AbstractAddress(slot_prefix(longest)).with_number(255).size,
            static_cast<socklen_t>(sizeof(sockaddr_un)));
  AbstractAddress service(service_name(longest, ~uint64_t{0}));
  EXPECT_LT(service.size, static_cast<socklen_t>(sizeof(sockaddr_un)));
}

}  // namespace
}  // namespace farverbs::io
