// The fuzzed endpoint: bytes become verbs calls, packets of another QP (delivered, lost, repeated,
// damaged), forged packets with a right ICRC, timers and state changes on one QP. What must hold
// whatever they are: nothing crashes or reads out of bounds (sanitizers), every posted request
// completes at most once and in order, bytes that leave the flight were in it, calls end.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "farverbs/base/check.h"
#include "farverbs/proto/queue_pair.h"
#include "farverbs/wire/icrc.h"

namespace farverbs::proto {

class FuzzedPair {
 public:
  explicit FuzzedPair(std::span<const uint8_t> input) : input_(input) {
    const uint8_t kind = byte() % 6;
    far_ = kind == 3;
    negotiates_ = kind > 3;
    const auto type = kind > 2 ? model::QpType::kRc : static_cast<model::QpType>(kind);
    const uint8_t shape = byte();
    a_ = std::make_unique<End>(1, type, shape, events_, negotiates_);
    b_ = std::make_unique<End>(2, type, shape, events_, kind == 4);
    connect(*a_, *b_);
    connect(*b_, *a_);
  }

  void run() {
    for (int steps = 0; !input_.empty() && steps < 2000; ++steps) {
      End& x = (byte() & 7) == 0 ? *b_ : *a_;
      step(x, &x == a_.get() ? *b_ : *a_);
      check(*a_);
      check(*b_);
    }
  }

 private:
  static constexpr size_t kMemory = 16'384;
  struct Silent final : model::AsyncEventSink {
    void on_async_event(const model::AsyncEvent&) override {}
  };

  struct End {
    End(uint32_t n, model::QpType type, uint8_t shape, model::AsyncEventSink& events,
        bool negotiates)
        : number(n),
          entropy(n),
          table(entropy),
          send_cq((shape & 1) != 0 ? 4 : 512, nullptr, nullptr, nullptr),
          receive_cq((shape & 2) != 0 ? 4 : 512, nullptr, nullptr, nullptr),
          srq(16, 3, true),
          memory(kMemory) {
      region = table.register_region(1, memory.data(), kMemory, address(0), 31).value();
      model::QpInit init;
      init.type = type;
      init.send_cq = &send_cq;
      init.receive_cq = &receive_cq;
      init.srq = (shape & 4) != 0 ? &srq : nullptr;
      init.capabilities = {16, 16, 3, 3, 32};
      init.signal_all = (shape & 8) != 0;
      init.pd = 1;
      TransportConfig config;
      config.max_window_packets = (shape & 16) != 0 ? 3 : 4096;
      config.read_chunk_bytes = 4096;
      if (negotiates) config.far_use = FarUse::kNegotiate;
      config.ack_every_packets = 1 + (shape >> 6);
      qp = std::make_unique<QueuePair>(init, Qpn(n), table, &events, config);
    }
    uint64_t address(size_t offset) const {
      return reinterpret_cast<uint64_t>(memory.data()) + offset;
    }
    uint32_t number;
    SeededEntropy entropy;
    model::MemoryTable table;
    model::CompletionQueue send_cq;
    model::CompletionQueue receive_cq;
    model::ReceiveQueue srq;
    std::vector<std::byte> memory;
    model::MemoryEntry* region;
    std::unique_ptr<QueuePair> qp;
    wire::IcrcFlow flow;
    std::vector<std::vector<std::byte>> sent;  // the newest datagrams
    uint64_t inflight = 0;
    uint64_t read_inflight = 0;
    uint64_t posted = 0;
    uint64_t last_completed = 0;
    uint64_t last_received = 0;
    uint64_t receives_posted = 0;
  };

  uint8_t byte() {
    if (input_.empty()) return 0;
    const uint8_t b = input_.front();
    input_ = input_.subspan(1);
    return b;
  }
  uint32_t word() {
    const uint32_t high = byte();
    return high << 8 | byte();
  }

  void connect(End& x, const End& peer) {
    x.flow = wire::IcrcFlow::roce_v2({IpAddress::v4(x.number), kRoceUdpPort},
                                     {IpAddress::v4(peer.number), kRoceUdpPort});
    for (const auto state : {model::QpState::kInit, model::QpState::kRtr, model::QpState::kRts}) {
      modify(x, peer, state);
      if (far_ && state == model::QpState::kInit) {
        FV_CHECK(x.qp->use_far().ok() || x.qp->qp().state.load() != model::QpState::kInit);
      }
    }
  }

  void modify(End& x, const End& peer, model::QpState to) {
    using namespace model;
    QpAttributes a = x.qp->qp().attributes;
    a.state = to;
    a.access_flags = kRemoteWrite | kRemoteRead | kRemoteAtomic;
    a.path_mtu = PathMtu::k256;
    a.destination_qpn = Qpn(peer.number);
    a.max_rd_atomic = a.max_dest_rd_atomic = 3;
    a.timeout = 8;
    a.retry_count = 2;
    a.rnr_retry = 2;
    a.min_rnr_timer = 1;
    a.rq_psn = a.sq_psn = Psn(0xFFFFFC);
    const QpTransition* way = find_transition(x.qp->qp().type, x.qp->qp().state.load(), to);
    if (way == nullptr) return;
    FV_CHECK(x.qp->modify(now_, a, kAttrState | way->required, limits_).ok());
  }

  void step(End& x, End& peer) {
    switch (byte() % 16) {
      case 0:
      case 1:
      case 2:
      case 3:
        return post_send(x, peer);
      case 4:
      case 5:
        return post_receive(x);
      case 6:
      case 7:
        return poll(x);
      case 8:
      case 9:
        return deliver(x, peer);
      case 10:
        return forge(x, peer);
      case 11:
        return pass_time(x);
      case 12:
        return consume(x);
      case 13:
        return forge(x, peer);
      case 14:
        if (byte() % 8 == 0) change(x, peer);
        return;
      default:
        poll(x);
        return deliver(x, peer);
    }
  }

  void post_send(End& x, End& peer) {
    std::array<model::ScatterGatherElement, 3> sges;
    model::SendWorkRequest r;
    const size_t count = byte() % 4;
    for (size_t i = 0; i < count; ++i) {
      sges[i] = {x.address(word() % (kMemory / 2)), word() % 2048,
                 MemoryKey(byte() == 0 ? 1 : x.region->key.load())};
    }
    r.wr_id = x.posted + 1;
    r.opcode = static_cast<model::SendOpcode>(byte() % 10);
    r.flags = byte() % 16;
    r.sges = std::span(sges).first(count);
    r.remote_address = peer.address(word() % kMemory);
    if (byte() < 200) r.remote_address &= ~uint64_t{7};
    r.remote_key = MemoryKey(byte() == 0 ? 1 : peer.region->key.load());
    r.invalidate_key = r.remote_key;
    r.compare_add = byte();
    r.swap = byte();
    const model::AddressVector address;
    r.address_vector = &address;
    r.remote_qpn = Qpn(peer.number);
    if (r.opcode == model::SendOpcode::kFetchAdd || r.opcode == model::SendOpcode::kCompareSwap) {
      sges[0].length = 8;
      r.sges = std::span(sges).first(1);
      if (count == 0) sges[0] = {x.address(0), 8, MemoryKey(x.region->key.load())};
    }
    if (x.qp->post_send(r).ok()) ++x.posted;
    x.qp->on_work(now_);
  }

  void post_receive(End& x) {
    std::array<model::ScatterGatherElement, 3> sges;
    model::ReceiveWorkRequest r;
    const size_t count = byte() % 4;
    for (size_t i = 0; i < count; ++i) {
      sges[i] = {x.address(word() % (kMemory / 2)), word() % 4096,
                 MemoryKey(byte() == 0 ? 1 : x.region->key.load())};
    }
    r.wr_id = x.receives_posted + 1;
    r.sges = std::span(sges).first(count);
    const bool ok = x.qp->qp().srq != nullptr ? x.srq.post(r).ok() : x.qp->post_receive(r).ok();
    if (ok) ++x.receives_posted;
    x.qp->on_work(now_);
  }

  void poll(End& x) {
    std::array<std::byte, 20'000> storage;
    wire::TxBurst burst;
    const uint8_t kind = byte();
    for (int round = 0;; ++round) {
      FV_CHECK(round < 10'000);
      burst.reset(storage, 1 + kind % 64);
      TransmitContext context;
      context.now = now_;
      context.burst = &burst;
      context.icrc = &x.flow;
      context.request_allowance = (kind & 3) == 0 ? word() : 1 << 20;
      context.read_allowance = (kind & 12) == 0 ? word() : 1 << 20;
      context.max_packets = 1 + kind / 8;
      context.defer_acks = (kind & 64) != 0;
      context.datagram_bytes = (kind & 32) != 0 ? 1'252 : 300;
      context.probe_bytes = round == 0 && kind % 16 == 5 ? 1'472 : 0;
      const TransmitResult result = x.qp->poll_transmit(context);
      FV_CHECK(result.packets == burst.count());
      FV_CHECK(result.status != TransmitStatus::kBurstFull || !burst.empty());
      x.inflight += result.request_bytes;
      x.read_inflight += result.read_bytes;
      size_t at = 0;
      for (size_t i = 0; i < burst.count(); ++i) {
        const size_t n = std::min(burst.segment_size(), burst.bytes().size() - at);
        const auto datagram = burst.bytes().subspan(at, n);
        FV_CHECK(wire::parse(datagram).ok());
        if (x.sent.size() >= 64) x.sent.erase(x.sent.begin());
        x.sent.emplace_back(datagram.begin(), datagram.end());
        at += n;
      }
      if (result.status != TransmitStatus::kBurstFull || input_.empty()) return;
    }
  }

  // Packets of `x` come to its peer: in order, some lost, repeated or damaged.
  void deliver(End& x, End& peer) {
    const size_t count = 1 + byte() % 16;
    for (size_t i = 0; i < count && !x.sent.empty(); ++i) {
      const uint8_t fate = byte();
      std::vector<std::byte> bytes = x.sent.front();
      if (fate != 255) x.sent.erase(x.sent.begin());
      if (fate == 254) continue;
      if (fate == 253) bytes[word() % bytes.size()] ^= std::byte{0x21};
      arrive(peer, bytes, x.flow, fate % 2 == 0);
    }
  }

  void arrive(End& x, const std::vector<std::byte>& bytes, const wire::IcrcFlow& flow,
              bool unchecked) {
    const auto parsed = wire::parse(bytes);
    if (!parsed) return;
    PacketContext context;
    context.source = {IpAddress::v4(3 - x.number), kRoceUdpPort};
    context.destination = {IpAddress::v4(x.number), kRoceUdpPort};
    if (unchecked) {
      context.unchecked = &flow;
    } else if (!wire::verify(flow_of(*parsed, flow), *parsed)) {
      return;
    }
    x.qp->on_packet(now_, *parsed, context);
  }

  static wire::IcrcFlow flow_of(const wire::PacketView& packet, const wire::IcrcFlow& flow) {
    return packet.has(wire::Extension::far_base) ? wire::IcrcFlow::far() : flow;
  }

  // The same of the far transport: fields near the right ones, now and then any.
  void forge_far(End& x, const End& peer) {
    const auto opcode = static_cast<uint8_t>(0xC0 + byte() % 15);
    const wire::OpcodeInfo& info = wire::opcode_info(opcode);
    if (!info.known()) return;
    static constexpr uint32_t kLengths[] = {0, 1, 4, 8, 255, 256, 300, 1'020};
    const size_t payload = info.has_payload() ? kLengths[byte() % 8] : 0;
    std::vector<std::byte> bytes(wire::packet_size(info, payload));
    const auto near = [&](uint32_t below) {
      const uint8_t b = byte();
      return b == 255 ? word() << 16 | word() : b % below;
    };
    const uint64_t number = (uint64_t{1} << 32) + 0xFFFFFC + near(64) - (byte() == 0 ? 16 : 0);
    wire::Bth bth;
    bth.opcode = opcode;
    bth.pad = wire::pad_for(payload);
    bth.ack_request = (byte() & 1) != 0;
    bth.psn = Psn(number);
    bth.dest_qp = x.qp->qp().qpn;
    wire::FarBase base;
    base.number_high = static_cast<uint16_t>(number >> 24);
    base.last = (byte() & 1) != 0;
    base.ack_ratio = byte() % 16;
    base.ack_delay = byte() % 16;
    base.message = near(8);
    std::byte* const p = bytes.data();
    wire::emit_header(bth, p);
    wire::emit_header(base, p + wire::Bth::kSize);
    using E = wire::Extension;
    const MemoryKey key(byte() == 0 ? 1 : x.region->key.load());
    const uint64_t where = x.address(word() % (kMemory + 64));
    const auto emit = [&](E extension, const auto& header) {
      if (info.has(extension)) wire::emit_header(header, p + info.offset_of(extension));
    };
    emit(E::far_place, wire::FarPlace{where, key, near(4) * 256});
    emit(E::far_sequence, wire::FarSequence{near(4)});
    emit(E::far_offset, wire::FarOffset{near(4) * 256});
    emit(E::reth, wire::Reth{where, key, near(200) * 16});
    emit(E::atomic_eth, wire::AtomicEth{where & ~uint64_t{7}, key, byte(), byte()});
    emit(E::ieth, wire::Ieth{key});
    wire::FarAck ack;
    ack.status = byte() % 4;
    ack.detail = byte();
    ack.has_receive_limit = (ack.detail & 1) != 0;
    ack.receive_limit = near(8);
    ack.range_count = byte();
    ack.delay_us = near(255);
    ack.congestion_marks = near(16);
    ack.first_range = near(16);
    emit(E::far_ack, ack);
    std::vector<std::byte> content(payload, std::byte{byte()});
    if (info.kind == wire::OpKind::ack) {
      for (std::byte& b : content) b = std::byte{static_cast<uint8_t>(byte() & 3)};
    }
    wire::seal(p, info.header_length, content, wire::IcrcFlow::far(), 0);
    arrive(x, bytes, peer.flow, (byte() & 1) != 0);
  }

  // A packet that the peer could have sealed: any opcode, numbers near the right ones.
  void forge(End& x, const End& peer) {
    if (far_ && byte() % 8 != 0) return forge_far(x, peer);
    if (negotiates_ && byte() % 2 != 0) return forge_far(x, peer);
    static constexpr uint8_t kServices[] = {0x00, 0x20, 0x60};
    uint8_t opcode = byte();
    if (opcode < 0xE0) {
      opcode =
          static_cast<uint8_t>((opcode & 0x1F) | kServices[static_cast<size_t>(x.qp->qp().type)]);
    }
    const wire::OpcodeInfo& info = wire::opcode_info(opcode);
    if (!info.known()) return;
    static constexpr uint32_t kLengths[] = {0, 1, 8, 255, 256, 257, 512};
    const size_t payload = info.has_payload() ? kLengths[byte() % 7] : 0;
    std::vector<std::byte> bytes(wire::packet_size(info, payload));
    wire::Bth bth;
    bth.opcode = opcode;
    bth.pad = wire::pad_for(payload);
    bth.ack_request = (byte() & 1) != 0;
    bth.psn = Psn(0xFFFFFC + byte());
    bth.reserved6 = negotiates_ ? 0x2D : 0;
    bth.dest_qp = x.qp->qp().qpn;
    wire::emit_header(bth, bytes.data());
    std::byte* const p = bytes.data();
    using E = wire::Extension;
    const uint32_t key = byte() == 0 ? 1 : x.region->key.load();
    const uint64_t where = x.address(word() % (kMemory + 64));
    if (info.has(E::reth)) {
      wire::emit_header(wire::Reth{where, MemoryKey(key), byte() == 0 ? ~0u : word() % 4096},
                        p + info.offset_of(E::reth));
    }
    if (info.has(E::atomic_eth)) {
      wire::emit_header(wire::AtomicEth{where & ~uint64_t{7}, MemoryKey(key), byte(), byte()},
                        p + info.offset_of(E::atomic_eth));
    }
    if (info.has(E::aeth)) {
      wire::emit_header(wire::Aeth{byte(), byte()}, p + info.offset_of(E::aeth));
    }
    if (info.has(E::deth)) {
      wire::emit_header(wire::Deth{0, 0, Qpn(9)}, p + info.offset_of(E::deth));
    }
    if (info.has(E::ieth)) {
      wire::emit_header(wire::Ieth{MemoryKey(key)}, p + info.offset_of(E::ieth));
    }
    const std::vector<std::byte> content(payload, std::byte{byte()});
    wire::seal(p, info.header_length, content, peer.flow, 0);
    arrive(x, bytes, peer.flow, (byte() & 1) != 0);
  }

  void pass_time(End& x) {
    now_ = now_ + Duration::microseconds(int64_t{1} << (byte() % 16));
    if (x.qp->next_timer() <= now_) x.qp->on_timer(now_);
  }

  void change(End& x, End& peer) {
    switch (byte() % 6) {
      case 0:
        return modify(x, peer, model::QpState::kErr);
      case 1:
        return modify(x, peer, model::QpState::kSqd);
      case 2:
        return modify(x, peer, model::QpState::kRts);
      case 3:
        modify(x, peer, model::QpState::kReset);
        check(x);
        return connect(x, peer);
      case 4:
        if (x.table.deregister(x.region).ok()) {
          x.region = x.table.register_region(1, x.memory.data(), kMemory, x.address(0), 31).value();
        }
        return;
      default:
        x.qp->fail(now_);
    }
  }

  void consume(End& x) {
    std::array<model::WorkCompletion, 8> got;
    size_t n = x.send_cq.poll(got);
    for (size_t i = 0; i < n; ++i) {
      FV_CHECK(got[i].wr_id > x.last_completed && got[i].wr_id <= x.posted);
      x.last_completed = got[i].wr_id;
    }
    n = x.receive_cq.poll(got);
    for (size_t i = 0; i < n; ++i) {
      FV_CHECK(got[i].wr_id > x.last_received && got[i].wr_id <= x.receives_posted);
      x.last_received = got[i].wr_id;
    }
  }

  void take_asides(End& x) {
    std::array<std::byte, 64> storage;
    wire::TxBurst burst;
    do {
      burst.reset(storage, 1);
    } while (x.qp->write_aside(burst).has_value());
  }

  void check(End& x) {
    for (Feedback told; x.qp->take_feedback(told);) {
      const uint64_t gone = told.acked_bytes + told.lost_bytes + told.withdrawn_bytes;
      FV_CHECK(gone <= x.inflight);
      FV_CHECK(told.read_bytes_arrived + told.read_bytes_lost <= x.read_inflight);
      x.inflight -= gone;
      if (told.aside) take_asides(x);
      x.read_inflight -= told.read_bytes_arrived + told.read_bytes_lost;
    }
    const model::QpState state = x.qp->qp().state.load();
    if (state == model::QpState::kErr || state == model::QpState::kReset) {
      FV_CHECK(x.inflight == 0 && x.read_inflight == 0);
      FV_CHECK(x.qp->next_timer().is_never());
      FV_CHECK(x.qp->qp().send_queue.head() == x.qp->qp().send_queue.tail());
    }
  }

  std::span<const uint8_t> input_;
  bool far_ = false;
  bool negotiates_ = false;
  Silent events_;
  model::QpLimits limits_;
  Time now_ = Time::from_ns(1'000'000);
  std::unique_ptr<End> a_;
  std::unique_ptr<End> b_;
};

}  // namespace farverbs::proto
