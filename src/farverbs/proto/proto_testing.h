// What the tests of this room share: a QP with its memory and queues (Side), packets as text,
// scripted packets, and two sides joined by a wire that does as it is told (Link). Everything is
// deterministic.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "farverbs/proto/queue_pair.h"
#include "farverbs/wire/icrc.h"
#include "farverbs/wire/roce.h"
#include "farverbs/wire/syndrome.h"

namespace farverbs::proto::testing {

using Bytes = std::vector<std::byte>;
using model::CompletionStatus;
using model::QpState;
using model::QpType;
using model::SendOpcode;
using wire::Opcode;

inline constexpr uint32_t kAllAccess = model::kLocalWrite | model::kRemoteWrite |
                                       model::kRemoteRead | model::kRemoteAtomic | model::kMwBind;

struct Events final : model::AsyncEventSink {
  std::vector<model::AsyncEventType> seen;
  void on_async_event(const model::AsyncEvent& event) override { seen.push_back(event.type); }
  size_t count(model::AsyncEventType type) const {
    return static_cast<size_t>(std::count(seen.begin(), seen.end(), type));
  }
};

struct Options {
  QpType type = QpType::kRc;
  model::PathMtu mtu = model::PathMtu::k256;
  uint32_t send_psn = 100;
  uint32_t receive_psn = 100;
  uint32_t depth = 512;
  uint32_t cq_depth = 4096;
  uint32_t sges = 4;
  uint32_t inline_bytes = 64;
  uint8_t rd_atomic = 4;
  uint8_t dest_rd_atomic = 4;
  uint8_t timeout = 14;  // 67 ms
  uint8_t retry_count = 7;
  uint8_t rnr_retry = 7;
  uint8_t min_rnr_timer = 1;  // 10 us
  uint32_t access = kAllAccess;
  uint32_t qkey = 0x1234;
  bool signal_all = true;
  bool srq = false;
  bool ipv6 = false;
  size_t memory_bytes = 1 << 20;
  bool far = false;  // the connection is set up as a far one
  TransportConfig config;
};

// Beyond that nothing is waited for but the time to keep an idle connection known.
inline constexpr Duration kLongestWait = Duration::seconds(20);

inline Endpoint endpoint(uint32_t last) { return {IpAddress::v4(0x0A000000 | last), kRoceUdpPort}; }

// Over IPv6 the ICRC check is exact; over IPv4 it must guess the identification.
inline wire::IcrcFlow flow_of(uint32_t from, uint32_t to, bool ipv6) {
  if (!ipv6) return wire::IcrcFlow::roce_v2(endpoint(from), endpoint(to));
  std::array<std::byte, 16> source{}, destination{};
  source[15] = static_cast<std::byte>(from);
  destination[15] = static_cast<std::byte>(to);
  return wire::IcrcFlow::roce_v2({IpAddress::v6(source), kRoceUdpPort},
                                 {IpAddress::v6(destination), kRoceUdpPort});
}

// A packet as a line: "SEND_ONLY 100 A", "ACK 100 msn 1", "NAK1 ...". A: AckReq, S: solicited.
inline std::string describe(const Bytes& bytes) {
  const wire::ParseResult parsed = wire::parse(bytes);
  if (!parsed) return std::string("unparsable: ") + wire::to_string(parsed.error());
  const wire::PacketView& packet = *parsed;
  std::string text = wire::opcode_name(packet.bth.opcode);
  text = text.substr(text.find(' ') + 1);
  if (packet.info->kind == wire::OpKind::ack) {
    const wire::Syndrome syndrome(packet.aeth().syndrome);
    if (syndrome.kind() == wire::SyndromeKind::nak) text = "NAK" + std::to_string(syndrome.value());
    if (syndrome.kind() == wire::SyndromeKind::rnr_nak) {
      text = "RNR" + std::to_string(syndrome.value());
    }
  }
  text += " " + std::to_string(packet.bth.psn.value());
  if (packet.has(wire::Extension::reth)) text += " len " + std::to_string(packet.reth().length);
  if (packet.has(wire::Extension::aeth)) text += " msn " + std::to_string(packet.aeth().msn);
  if (packet.bth.ack_request) text += " A";
  if (packet.bth.solicited) text += " S";
  return text;
}

inline std::vector<std::string> describe(const std::vector<Bytes>& packets) {
  std::vector<std::string> lines;
  for (const Bytes& packet : packets) lines.push_back(describe(packet));
  return lines;
}

struct Notifications final : model::CompletionNotifier {
  int count = 0;
  void on_completion_event(model::CompletionQueue&) override { ++count; }
};

// One QP with everything that it needs.
class Side {
 public:
  Side(uint32_t side_number, const Options& side_options)
      : options(side_options),
        number(side_number),
        entropy(number * 77 + 1),
        table(entropy),
        send_cq(options.cq_depth, this, nullptr, &events),
        receive_cq(options.cq_depth, this, &notifications, &events),
        srq(64, 4, true),
        memory((options.memory_bytes + 7) / 8) {
    region = table.register_region(1, memory.data(), options.memory_bytes, address(0), kAllAccess)
                 .value();
    model::QpInit init;
    init.type = options.type;
    init.send_cq = &send_cq;
    init.receive_cq = &receive_cq;
    init.srq = options.srq ? &srq : nullptr;
    init.capabilities = {options.depth, options.depth, options.sges, options.sges,
                         options.inline_bytes};
    init.signal_all = options.signal_all;
    init.pd = 1;
    init.context = this;
    qp = std::make_unique<QueuePair>(init, Qpn(0x100 + number), table, &events, options.config);
  }

  uint64_t address(size_t offset) const {
    return reinterpret_cast<uint64_t>(memory.data()) + offset;
  }
  std::byte* bytes(size_t offset = 0) {
    return reinterpret_cast<std::byte*>(memory.data()) + offset;
  }
  uint64_t& word(size_t offset) { return memory[offset / 8]; }
  MemoryKey key() const { return MemoryKey(region->key.load()); }
  void fill(size_t offset, size_t length, uint64_t seed) {
    Prng prng(seed);
    for (size_t i = 0; i < length; ++i) bytes()[offset + i] = static_cast<std::byte>(prng.next());
  }
  model::ScatterGatherElement sge(size_t offset, uint32_t length) const {
    return {address(offset), length, key()};
  }

  void modify(const model::QpAttributes& attributes, uint32_t mask) {
    const auto result = qp->modify(now, attributes, mask | model::kAttrState, limits);
    ASSERT_TRUE(result.ok()) << result.error().message;
  }
  void to_state(QpState state, uint32_t mask = 0) {
    model::QpAttributes a = qp->qp().attributes;
    a.state = state;
    modify(a, mask);
  }
  void to_rtr(const Side& peer) {
    using namespace model;
    QpAttributes a;
    a.state = QpState::kInit;
    a.access_flags = options.access;
    a.qkey = options.qkey;
    const bool ud = options.type == QpType::kUd;
    modify(a, kAttrPkeyIndex | kAttrPort | (ud ? kAttrQkey : kAttrAccessFlags));
    if (options.far) {
      ASSERT_TRUE(qp->use_far().ok());
    }
    a.state = QpState::kRtr;
    a.path_mtu = options.mtu;
    a.rq_psn = Psn(options.receive_psn);
    a.destination_qpn = peer.qp->qp().qpn;
    a.address_vector.destination_gid = endpoint(peer.number).address.to_gid();
    a.max_dest_rd_atomic = options.dest_rd_atomic;
    a.min_rnr_timer = options.min_rnr_timer;
    uint32_t mask = 0;
    if (!ud) mask |= kAttrAddressVector | kAttrPathMtu | kAttrDestinationQpn | kAttrRqPsn;
    if (options.type == QpType::kRc) mask |= kAttrMaxDestRdAtomic | kAttrMinRnrTimer;
    modify(a, mask);
  }
  void to_rts() {
    using namespace model;
    QpAttributes a = qp->qp().attributes;
    a.state = QpState::kRts;
    a.sq_psn = Psn(options.send_psn);
    a.timeout = options.timeout;
    a.retry_count = options.retry_count;
    a.rnr_retry = options.rnr_retry;
    a.max_rd_atomic = options.rd_atomic;
    uint32_t mask = kAttrSqPsn;
    if (options.type == QpType::kRc) {
      mask |= kAttrTimeout | kAttrRetryCount | kAttrRnrRetry | kAttrMaxRdAtomic;
    }
    modify(a, mask);
  }
  void connect(const Side& peer) {
    to_rtr(peer);
    to_rts();
  }

  // A request of one SGE; wr_ids count up from 1.
  model::SendWorkRequest request(SendOpcode opcode, size_t offset, uint32_t length) {
    one = sge(offset, length);
    model::SendWorkRequest r;
    r.wr_id = ++posted;
    r.opcode = opcode;
    r.sges = {&one, 1};
    return r;
  }
  void post(const model::SendWorkRequest& r) {
    const auto result = qp->post_send(r);
    ASSERT_TRUE(result.ok()) << result.error().message;
    qp->on_work(now);
  }
  void send(size_t offset, uint32_t length, uint32_t flags = 0) {
    model::SendWorkRequest r = request(SendOpcode::kSend, offset, length);
    r.flags = flags;
    post(r);
  }
  void one_sided(SendOpcode opcode, size_t offset, uint32_t length, uint64_t remote, MemoryKey rkey,
                 uint32_t flags = 0) {
    model::SendWorkRequest r = request(opcode, offset, length);
    r.remote_address = remote;
    r.remote_key = rkey;
    r.flags = flags;
    post(r);
  }
  void write(size_t offset, uint32_t length, Side& peer, size_t to, uint32_t flags = 0) {
    one_sided(SendOpcode::kWrite, offset, length, peer.address(to), peer.key(), flags);
  }
  void read(size_t offset, uint32_t length, Side& peer, size_t from, uint32_t flags = 0) {
    one_sided(SendOpcode::kRead, offset, length, peer.address(from), peer.key(), flags);
  }
  void fetch_add(size_t offset, uint64_t add, Side& peer, size_t at) {
    model::SendWorkRequest r = request(SendOpcode::kFetchAdd, offset, 8);
    r.remote_address = peer.address(at);
    r.remote_key = peer.key();
    r.compare_add = add;
    post(r);
  }
  void compare_swap(size_t offset, uint64_t compare, uint64_t swap, Side& peer, size_t at) {
    model::SendWorkRequest r = request(SendOpcode::kCompareSwap, offset, 8);
    r.remote_address = peer.address(at);
    r.remote_key = peer.key();
    r.compare_add = compare;
    r.swap = swap;
    post(r);
  }
  void receive(size_t offset, uint32_t length) {
    const model::ScatterGatherElement e = sge(offset, length);
    model::ReceiveWorkRequest r;
    r.wr_id = ++received;
    r.sges = {&e, length == 0 ? 0u : 1u};
    const auto result = options.srq ? srq.post(r) : qp->post_receive(r);
    ASSERT_TRUE(result.ok()) << result.error().message;
    qp->on_work(now);
  }

  // Everything the QP has to say now, as datagrams. Bursts are as small as the storage makes them.
  std::vector<Bytes> poll(uint32_t max_packets = 1u << 20) {
    std::vector<Bytes> packets;
    std::vector<std::byte> storage(storage_bytes);
    wire::TxBurst burst;
    uint64_t used = 0;
    uint64_t read_used = 0;
    for (int rounds = 0; rounds < 100'000; ++rounds) {
      burst.reset(storage, 64);
      TransmitContext context;
      context.now = now;
      context.burst = &burst;
      context.icrc = &flow;
      context.request_allowance = request_allowance - std::min(request_allowance, used);
      context.read_allowance = read_allowance - std::min(read_allowance, read_used);
      context.max_packets = max_packets - static_cast<uint32_t>(packets.size());
      context.defer_acks = defer_acks;
      context.join_acks = join_acks;
      context.side_port = side_port;
      context.datagram_bytes = datagram_bytes;
      context.probe_bytes = std::exchange(probe_bytes, 0);
      const bool all_far = !qp->may_write_standard();
      last = qp->poll_transmit(context);
      used += last.request_bytes;
      read_used += last.read_bytes;
      inflight += last.request_bytes;
      read_inflight += last.read_bytes;
      size_t at = 0;
      size_t written = 0;
      for (size_t i = 0; i < burst.count(); ++i) {
        const size_t n = std::min(burst.segment_size(), burst.bytes().size() - at);
        const auto datagram = burst.bytes().subspan(at, n);
        const size_t joined = wire::joined_acknowledgement(datagram);
        for (const auto packet : {datagram.first(joined), datagram.subspan(joined)}) {
          if (packet.empty()) continue;
          packets.emplace_back(packet.begin(), packet.end());
          const auto parsed = wire::parse(packets.back());
          EXPECT_TRUE(parsed.ok());
          const bool far = parsed->has(wire::Extension::far_base);
          EXPECT_TRUE(far || !all_far) << "not what may_write_standard() said";
          EXPECT_EQ(wire::compute_icrc(far ? wire::IcrcFlow::far() : flow, packets.back(),
                                       static_cast<uint16_t>(far ? 0 : i)),
                    parsed->icrc());
          ++written;
        }
        at += n;
      }
      EXPECT_EQ(last.packets, written);
      datagrams += burst.count();
      ++bursts;
      if (last.status != TransmitStatus::kBurstFull) return packets;
      EXPECT_GT(burst.count(), 0u) << "a full burst without a packet";
    }
    ADD_FAILURE() << "poll_transmit never ends";
    return packets;
  }
  std::vector<std::string> trace() { return describe(poll()); }

  // A datagram arrives. Checked by the caller's choice before or inside the QP.
  void arrive(const Bytes& bytes, const wire::IcrcFlow& from_flow, uint32_t from) {
    const wire::ParseResult parsed = wire::parse(bytes);
    if (!parsed) return;
    PacketContext context;
    context.source = endpoint(from);
    context.destination = endpoint(number);
    if (check_inside) {
      context.unchecked = &from_flow;
    } else if (!wire::verify(
                   parsed->has(wire::Extension::far_base) ? wire::IcrcFlow::far() : from_flow,
                   *parsed)) {
      return;
    }
    qp->on_packet(now, *parsed, context);
    collect();
  }
  void collect() {
    for (Feedback told; qp->take_feedback(told);) note(told);
  }
  void take_asides() {
    std::vector<std::byte> storage(64);
    for (;;) {
      wire::TxBurst burst;
      burst.reset(storage, 1);
      const auto to = qp->write_aside(burst);
      if (!to.has_value()) return;
      asides.emplace_back(*to, Bytes(burst.bytes().begin(), burst.bytes().end()));
    }
  }
  void note(const Feedback& told) {
    EXPECT_LE(told.acked_bytes + told.lost_bytes + told.withdrawn_bytes, inflight);
    inflight -= told.acked_bytes + told.lost_bytes + told.withdrawn_bytes;
    if (told.moved) ++moves;
    if (told.aside) take_asides();
    EXPECT_LE(told.read_bytes_arrived + told.read_bytes_lost, read_inflight);
    read_inflight -= told.read_bytes_arrived + told.read_bytes_lost;
    acked_bytes += told.acked_bytes;
    lost_bytes += told.lost_bytes;
    if (told.has_rtt) rtts.push_back(told.rtt);
    if (told.timed_out) ++timeouts;
    spurious_bytes += told.spurious_bytes;
    marks += told.congestion_marks;
    restored_packets += told.restored_packets;
    if (told.probe_arrived_bytes != 0) probe_arrived = told.probe_arrived_bytes;
    if (told.probe_lost) ++probes_lost;
    if (told.black_hole) ++black_holes;
  }
  // Nothing is waited for.
  bool idle() const { return qp->next_timer().is_never() || qp->next_timer() - now > kLongestWait; }
  bool fire_timer() {
    const Time at = qp->next_timer();
    if (at.is_never()) return false;
    now = std::max(now, at);
    qp->on_timer(now);
    collect();
    return true;
  }

  std::vector<model::WorkCompletion> sends() { return drain(send_cq); }
  std::vector<model::WorkCompletion> receives() { return drain(receive_cq); }
  // "1 success, 2 work request flushed"
  static std::string summary(const std::vector<model::WorkCompletion>& completions) {
    std::string text;
    for (const auto& c : completions) {
      if (!text.empty()) text += ", ";
      text += std::to_string(c.wr_id) + " " + model::to_string(c.status);
    }
    return text;
  }
  QpState state() const { return qp->qp().state.load(); }
  const model::QpCounters& counters() const { return qp->qp().counters; }

  Options options;
  uint32_t number;
  SeededEntropy entropy;
  Events events;
  Notifications notifications;  // of the receive CQ
  model::MemoryTable table;
  model::CompletionQueue send_cq;
  model::CompletionQueue receive_cq;
  model::ReceiveQueue srq;
  std::vector<uint64_t> memory;
  model::MemoryEntry* region = nullptr;
  std::unique_ptr<QueuePair> qp;
  model::QpLimits limits;
  model::ScatterGatherElement one;

  Time now = Time::from_ns(1'000'000'000);
  wire::IcrcFlow flow = flow_of(number, 3 - number, options.ipv6);
  uint64_t request_allowance = uint64_t{1} << 40;
  uint64_t read_allowance = uint64_t{1} << 40;
  size_t storage_bytes = 65'000;
  uint32_t datagram_bytes = 1252;
  bool side_port = false;
  uint32_t probe_bytes = 0;  // once
  bool defer_acks = false;
  bool join_acks = false;
  size_t datagrams = 0;  // that poll() has given
  bool check_inside = true;
  TransmitResult last;
  uint64_t inflight = 0;
  uint64_t read_inflight = 0;
  uint64_t acked_bytes = 0;
  uint64_t lost_bytes = 0;
  uint64_t bursts = 0;
  int timeouts = 0;
  uint64_t spurious_bytes = 0;
  uint64_t marks = 0;
  uint64_t restored_packets = 0;
  uint32_t probe_arrived = 0;
  int probes_lost = 0;
  int black_holes = 0;
  int moves = 0;
  std::vector<std::pair<Endpoint, Bytes>> asides;  // packets beside its flow
  std::vector<Duration> rtts;
  uint64_t posted = 0;
  uint64_t received = 0;

 private:
  static std::vector<model::WorkCompletion> drain(model::CompletionQueue& cq) {
    std::vector<model::WorkCompletion> all(cq.size());
    all.resize(cq.poll(all));
    return all;
  }
};

// Two connected sides. `filter` decides about each packet: deliver it or not, or change it.
class Link {
 public:
  using Filter = std::function<bool(const Side& from, Bytes& packet)>;

  explicit Link(const Options& a_options = {}, const Options& b_options = {})
      : a(1, a_options), b(2, b_options) {
    a.connect(b);
    b.connect(a);
  }
  // Sends what both have to say until they are silent. Time advances `step` per crossing.
  void settle(const Filter& filter = nullptr) {
    for (int i = 0; i < 10'000; ++i) {
      const bool a_moved = cross(a, b, filter);
      const bool moved = cross(b, a, filter) || a_moved;
      if (!moved) return;
    }
    ADD_FAILURE() << "the sides never fall silent";
  }
  bool cross(Side& from, Side& to, const Filter& filter = nullptr) {
    std::vector<Bytes> packets = from.poll();
    advance(step);
    for (Bytes& packet : packets) {
      if (filter == nullptr || filter(from, packet)) to.arrive(packet, from.flow, from.number);
    }
    return !packets.empty();
  }
  void advance(Duration d) {
    a.now = a.now + d;
    b.now = a.now;
  }
  // Settles, and lets timers fire until all is done.
  void run(const Filter& filter = nullptr, int timers = 200) {
    for (int i = 0; i < timers; ++i) {
      settle(filter);
      const Time at = std::min(a.qp->next_timer(), b.qp->next_timer());
      if (at.is_never() || at - a.now > kLongestWait) return;
      if (at > a.now) advance(at - a.now);
      for (Side* side : {&a, &b}) {
        if (side->qp->next_timer() <= side->now) side->fire_timer();
      }
    }
  }

  Side a;
  Side b;
  Duration step = Duration::microseconds(10);
};

// Drops the packets of side 1 (or 2) with this PSN, the first `times` times.
inline Link::Filter drop(uint32_t side, uint32_t psn, int times = 1) {
  return [=, left = times](const Side& from, Bytes& packet) mutable {
    if (from.number != side || (*wire::parse(packet)).bth.psn.value() != psn) return true;
    return left-- <= 0;
  };
}

// A packet written by hand, from the peer of `to`.
template <class... Extensions>
Bytes packet(const Side& to, Opcode opcode, uint32_t psn, std::span<const std::byte> payload,
             const Extensions&... extensions) {
  wire::Bth bth;
  bth.opcode = static_cast<uint8_t>(opcode);
  bth.dest_qp = to.qp->qp().qpn;
  bth.psn = Psn(psn);
  bth.ack_request = true;
  bth.pad = wire::pad_for(payload.size());
  Bytes bytes(wire::packet_size(opcode, payload.size()));
  const size_t header = wire::emit_headers(bytes.data(), bth, extensions...);
  const wire::IcrcFlow flow = wire::IcrcFlow::roce_v2(endpoint(3 - to.number), endpoint(to.number));
  wire::seal(bytes.data(), header, payload, flow, 0);
  return bytes;
}
inline Bytes answer(const Side& to, wire::Syndrome syndrome, uint32_t psn, uint32_t msn = 0) {
  return packet(to, Opcode::rc_ack, psn, {}, wire::Aeth{syndrome.byte(), msn});
}

// One QP against a peer that the test plays.
class Scripted {
 public:
  explicit Scripted(const Options& options = {}) : a(1, options), ghost(2, options) {
    a.connect(ghost);
  }
  void say(const Bytes& packet) { a.arrive(packet, ghost.flow, ghost.number); }
  void ack(uint32_t psn, uint32_t msn = 0) { say(answer(a, wire::Syndrome::ack(), psn, msn)); }
  void nak(wire::NakCode code, uint32_t psn) { say(answer(a, wire::Syndrome::nak(code), psn)); }
  void rnr(uint8_t timer, uint32_t psn) { say(answer(a, wire::Syndrome::rnr_nak(timer), psn)); }

  Side a;
  Side ghost;  // only its addresses, memory and keys are used
};

using Lines = std::vector<std::string>;

}  // namespace farverbs::proto::testing
