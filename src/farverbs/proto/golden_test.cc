// A kernel's RoCE stack as the peer: its captured packets drive one of our QPs, and what ours says
// must be what the kernel's other side said. Requester: the same requests give the same packets.
// Responder: the same packets give the same answers. tests/captures tells how they were recorded.
#include <deque>
#include <utility>

#include "farverbs/proto/proto_testing.h"
#include "farverbs/wire/frame.h"
#include "farverbs/wire/pcap.h"

namespace farverbs::proto {
namespace {

using namespace testing;

constexpr size_t kRegion = 1 << 20;

struct Recorded {
  bool from_client;
  Bytes bytes;
  wire::PacketView view() const { return *wire::parse(bytes); }
};

// The RC packets of a capture, in order. The client is the side that sends the first request.
std::vector<Recorded> load(const std::string& name) {
  std::vector<Recorded> packets;
  auto reader =
      wire::PcapReader::open(std::string(FARVERBS_SOURCE_DIR "/tests/captures/") + name + ".pcap");
  EXPECT_TRUE(reader.ok()) << reader.error().message;
  Endpoint client;
  for (;;) {
    auto next = reader.value().next();
    EXPECT_TRUE(next.ok());
    if (!next.ok() || !next.value().has_value()) return packets;
    const wire::Frame frame = wire::dissect(next.value()->link, next.value()->data);
    if (frame.kind != wire::FrameKind::roce_v2) continue;
    const auto parsed = wire::parse(frame.packet);
    if (!parsed || parsed->info->service != wire::Service::rc) continue;
    if (packets.empty()) client = frame.source();
    packets.push_back({frame.source().address == client.address,
                       Bytes(frame.packet.begin(), frame.packet.end())});
  }
}

// The recording program's memory: byte i is (i * 7 + 1) mod 251, on the passive side 1 more.
void fill_as_recorded(Side& side, unsigned plus) {
  for (size_t i = 0; i < kRegion; ++i) {
    side.bytes()[i] = static_cast<std::byte>((i * 7 + 1 + plus) % 251);
  }
}

uint64_t region_of(const std::vector<Recorded>& packets) {
  uint64_t lowest = ~uint64_t{0};
  for (const Recorded& p : packets) {
    const wire::PacketView view = p.view();
    if (!p.from_client) continue;
    if (view.has(wire::Extension::reth) && view.reth().length > 0) {
      lowest = std::min(lowest, view.reth().address);
    }
    if (view.has(wire::Extension::atomic_eth)) {
      lowest = std::min(lowest, view.atomic_eth().address);
    }
  }
  return lowest == ~uint64_t{0} ? 4096 : lowest & ~uint64_t{4095};
}

// --- Our responder, the kernel's requester
// ---------------------------------------------------------

struct ResponderCase {
  const char* name;
  model::PathMtu mtu = model::PathMtu::k1024;
  uint32_t dropped_psn = ~0u;  // the kernel's responder did not see it the first time
};
void PrintTo(const ResponderCase& c, std::ostream* out) { *out << c.name; }

// What must agree. A replayed READ may begin with FIRST or MIDDLE; credits are each side's own.
std::string essence(const wire::PacketView& view) {
  using wire::OpKind;
  std::string text = std::to_string(view.bth.psn.value());
  switch (view.info->kind) {
    case OpKind::ack: {
      const wire::Syndrome s(view.aeth().syndrome);
      text += s.kind() == wire::SyndromeKind::ack ? " ack" : " nak " + std::to_string(s.byte());
      text += " msn " + std::to_string(view.aeth().msn);
      break;
    }
    case OpKind::read_response: {
      text += " read response ";
      for (const std::byte b : view.payload()) text += std::to_string(static_cast<int>(b)) + ",";
      break;
    }
    case OpKind::atomic_ack:
      text += " original " + std::to_string(view.atomic_ack_eth().original);
      break;
    default:
      text += " unexpected";
  }
  return text;
}

class GoldenResponder : public ::testing::TestWithParam<ResponderCase> {};
TEST_P(GoldenResponder, AnswersAsTheKernelDid) {
  const ResponderCase& c = GetParam();
  const auto recorded = load(c.name);
  ASSERT_FALSE(recorded.empty());
  Options options;
  options.mtu = c.mtu;
  options.receive_psn = recorded[0].view().bth.psn.value();
  options.dest_rd_atomic = 16;
  options.memory_bytes = kRegion;
  Scripted s(options);
  fill_as_recorded(s.a, 1);
  const uint64_t base = region_of(recorded);
  const auto region = s.a.table.register_region(1, s.a.bytes(), kRegion, base, kAllAccess).value();
  std::vector<Bytes> elsewhere(64, Bytes(200'000));
  for (Bytes& buffer : elsewhere) {
    const auto entry =
        s.a.table.register_region(1, buffer.data(), buffer.size(),
                                  reinterpret_cast<uint64_t>(buffer.data()), model::kLocalWrite);
    const model::ScatterGatherElement e{reinterpret_cast<uint64_t>(buffer.data()), 200'000,
                                        MemoryKey(entry.value()->key.load())};
    model::ReceiveWorkRequest r;
    r.sges = {&e, 1};
    ASSERT_TRUE(s.a.qp->post_receive(r).ok());
  }
  bool dropped = false;
  std::deque<std::string> ours;
  for (const Recorded& p : recorded) {
    const wire::PacketView view = p.view();
    if (!p.from_client) {
      ASSERT_FALSE(ours.empty()) << "the kernel said " << describe(p.bytes);
      ASSERT_EQ(ours.front(), essence(view));
      ours.pop_front();
      continue;
    }
    if (view.bth.psn.value() == c.dropped_psn && !dropped) {
      dropped = true;
      continue;
    }
    Bytes mine = p.bytes;
    using E = wire::Extension;
    const uint32_t key = region->key.load();
    if (view.has(E::reth)) store_be(mine.data() + view.info->offset_of(E::reth) + 8, key);
    if (view.has(E::atomic_eth)) {
      store_be(mine.data() + view.info->offset_of(E::atomic_eth) + 8, key);
    }
    s.a.qp->on_packet(s.a.now, *wire::parse(mine), PacketContext{});  // changed: no ICRC to check
    for (const Bytes& answered : s.a.poll()) ours.push_back(essence(*wire::parse(answered)));
  }
  EXPECT_TRUE(ours.empty()) << "ours said more: " << ours.front();
}
INSTANTIATE_TEST_SUITE_P(
    Captures, GoldenResponder,
    ::testing::Values(ResponderCase{"rc_send_sizes"}, ResponderCase{"rc_write_sizes"},
                      ResponderCase{"rc_read_sizes"}, ResponderCase{"rc_write_imm"},
                      ResponderCase{"rc_send_imm_se"}, ResponderCase{"rc_atomics"},
                      ResponderCase{"rc_long_send"}, ResponderCase{"rc_long_read"},
                      ResponderCase{"rc_psn_wrap"}, ResponderCase{"rc_burst_mixed_read_atomic"},
                      ResponderCase{"rc_burst_unsignaled"}, ResponderCase{"rc_reads_outstanding"},
                      ResponderCase{"rc_ipv6_ops"},
                      ResponderCase{"mtu4200_rc_ops", model::PathMtu::k4096},
                      ResponderCase{"mtu4200_path512", model::PathMtu::k512},
                      ResponderCase{"drop_ack_timeout"}, ResponderCase{"drop_atomic_ack"},
                      ResponderCase{"drop_burst_gap", model::PathMtu::k1024, 0x102},
                      ResponderCase{"drop_middle_send", model::PathMtu::k1024, 0x102},
                      ResponderCase{"drop_last_send_timeout", model::PathMtu::k1024, 0x102},
                      ResponderCase{"drop_read_resp_middle"}));

// --- Our requester, the kernel's responder
// ---------------------------------------------------------

struct Operation {
  SendOpcode opcode;
  uint32_t length;
  size_t remote = 0;
  size_t local = 0;
  uint64_t compare_add = 1;
  uint64_t swap = 0;
  uint32_t flags = 0;
};
struct RequesterCase {
  const char* name;
  bool list;  // posted all at once
  std::vector<Operation> operations;
  model::PathMtu mtu = model::PathMtu::k1024;
  uint32_t lost_answer = ~0u;  // PSN of an answer that the kernel's requester did not see
};
void PrintTo(const RequesterCase& c, std::ostream* out) { *out << c.name; }

std::string request_essence(const wire::PacketView& view, uint64_t base, bool with_ack_request) {
  std::string text = wire::opcode_name(view.bth.opcode);
  text += " " + std::to_string(view.bth.psn.value());
  if (view.has(wire::Extension::reth)) {
    const wire::Reth reth = view.reth();
    text += " length " + std::to_string(reth.length);
    if (reth.length > 0) text += " at " + std::to_string(reth.address - base);
  }
  if (view.has(wire::Extension::atomic_eth)) {
    const wire::AtomicEth atomic = view.atomic_eth();
    text += " at " + std::to_string(atomic.address - base) + " " +
            std::to_string(atomic.swap_or_add) + " " + std::to_string(atomic.compare);
  }
  if (with_ack_request && view.bth.ack_request) text += " A";
  text += " pad " + std::to_string(view.bth.pad) + " ";
  for (const std::byte b : view.payload()) text += std::to_string(static_cast<int>(b)) + ",";
  return text;
}

class GoldenRequester : public ::testing::TestWithParam<RequesterCase> {};
TEST_P(GoldenRequester, SaysWhatTheKernelSaid) {
  const RequesterCase& c = GetParam();
  const auto recorded = load(c.name);
  ASSERT_FALSE(recorded.empty());
  Options options;
  options.mtu = c.mtu;
  options.send_psn = recorded[0].view().bth.psn.value();
  options.memory_bytes = kRegion;
  options.rd_atomic = 4;
  Scripted s(options);
  fill_as_recorded(s.a, 0);
  const uint64_t base = region_of(recorded);
  size_t posted = 0;
  size_t completed = 0;
  bool lost = false;
  std::deque<Bytes> ours;
  const auto more = [&] {
    for (const auto& completion : s.a.sends()) {
      EXPECT_EQ(completion.status, CompletionStatus::kSuccess);
      ++completed;
    }
    while (posted < c.operations.size() && (c.list || posted == completed)) {
      const Operation& op = c.operations[posted++];
      auto r = s.a.request(op.opcode, op.local, op.length);
      r.remote_address = base + op.remote;
      r.remote_key = MemoryKey(1);
      r.compare_add = op.compare_add;
      r.swap = op.swap;
      r.flags = op.flags;
      s.a.post(r);
    }
    for (Bytes& bytes : s.a.poll()) ours.push_back(std::move(bytes));
  };
  for (const Recorded& p : recorded) {
    if (p.from_client) {
      if (ours.empty()) more();
      ASSERT_FALSE(ours.empty()) << "the kernel said " << describe(p.bytes);
      ASSERT_EQ(request_essence(*wire::parse(ours.front()), base, !c.list),
                request_essence(p.view(), base, !c.list));
      ours.pop_front();
    } else {
      if (p.view().bth.psn.value() == c.lost_answer) {
        if (!std::exchange(lost, true)) continue;
      }
      s.a.qp->on_packet(s.a.now, p.view(), PacketContext{});
    }
  }
  more();
  EXPECT_TRUE(ours.empty()) << "ours said more: " << describe(ours.front());
  EXPECT_EQ(completed, c.operations.size());
}

constexpr auto kW = SendOpcode::kWrite;
constexpr auto kR = SendOpcode::kRead;
constexpr auto kS = SendOpcode::kSend;
constexpr auto kC = SendOpcode::kCompareSwap;
constexpr auto kF = SendOpcode::kFetchAdd;
INSTANTIATE_TEST_SUITE_P(
    Captures, GoldenRequester,
    ::testing::Values(
        RequesterCase{"rc_send_sizes",
                      false,
                      {{kS, 0},
                       {kS, 1},
                       {kS, 2},
                       {kS, 3},
                       {kS, 4},
                       {kS, 5},
                       {kS, 255},
                       {kS, 1023},
                       {kS, 1024},
                       {kS, 1025},
                       {kS, 2047},
                       {kS, 2048},
                       {kS, 2049},
                       {kS, 3001}}},
        RequesterCase{"rc_write_sizes",
                      false,
                      {{kW, 0},
                       {kW, 1, 10},
                       {kW, 7, 21},
                       {kW, 1024, 4096},
                       {kW, 1025, 8191},
                       {kW, 2048, 3},
                       {kW, 4001, 10'001}}},
        RequesterCase{"rc_read_sizes",
                      false,
                      {{kR, 0},
                       {kR, 1, 3},
                       {kR, 6, 7},
                       {kR, 1024},
                       {kR, 1025, 1},
                       {kR, 2048},
                       {kR, 5001, 4095}}},
        RequesterCase{"rc_long_read", false, {{kR, 90'000}}},
        RequesterCase{"rc_reads_outstanding",
                      true,
                      {{kR, 2500},
                       {kR, 2500, 0, 10'000},
                       {kR, 100, 0, 20'000},
                       {kR, 1500, 0, 30'000},
                       {kR, 10, 0, 40'000},
                       {kR, 10, 0, 50'000}}},
        RequesterCase{"rc_atomics",
                      false,
                      {{kW, 16},
                       {kC, 8, 0, 4096, 0x322b241d160f0801, 0x1122334455667788},
                       {kC, 8, 0, 4104, 0, 0x99},
                       {kF, 8, 8, 4112, 1},
                       {kF, 8, 8, 4120, ~uint64_t{0}}}},
        RequesterCase{"drop_middle_send", true, {{kS, 4500}}},
        RequesterCase{"drop_read_resp_middle", false, {{kR, 5000}}, model::PathMtu::k1024, 0x102}));

}  // namespace
}  // namespace farverbs::proto
