// Two connection managers on a line that is as good or bad as a test wants it.
#include "farverbs/proto/cm_agent.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

namespace farverbs::proto {
namespace {

using wire::cm_header;
using wire::CmAttribute;
using wire::CmReject;
using wire::Mad;

constexpr uint64_t kListener = 7;
constexpr uint64_t kService = 0x0106'4711;

std::vector<std::byte> bytes(std::string_view text) {
  const auto view = std::as_bytes(std::span(text));
  return {view.begin(), view.end()};
}

struct Line {
  double loss = 0;
  double duplication = 0;
  Duration delay = Duration::milliseconds(1);
  Duration jitter;  // up to so much more: reorders
};

struct World {
  struct Flying {
    size_t to;
    Mad mad;
  };
  explicit World(Line the_line = {}, uint64_t seed = 1, CmConfig passive = {})
      : line(the_line), prng(seed), entropy(seed + 1000) {
    CmConfig active;
    active.agent = 1;
    passive.agent = 2;
    ends[0].emplace(active, entropy);
    ends[1].emplace(passive, entropy);
    path[0].local = path[1].remote = IpAddress::v4(0x0a4d0001);
    path[1].local = path[0].remote = IpAddress::v4(0x0a4d0002);
    b().listen(kListener, 1024);
  }
  CmAgent& a() { return *ends[0]; }
  CmAgent& b() { return *ends[1]; }

  uint32_t connect(uint32_t qpn = 0x10'0001, std::span<const std::byte> data = {}) {
    CmConnect request;
    request.path = path[0];
    request.service_id = kService;
    request.source_port = 4000;
    request.end.qpn = Qpn(qpn);
    request.end.starting_psn = Psn(0x1234);
    request.end.responder_resources = 4;
    request.end.retry_count = 7;
    request.private_data = data;
    return a().connect(now, request).value();
  }
  static CmEnd passive_end() {
    CmEnd end;
    end.qpn = Qpn(0x20'0002);
    end.starting_psn = Psn(0x4321);
    return end;
  }

  void collect(size_t from) {
    while (auto out = ends[from]->poll_transmit()) {
      const auto kind = cm_header(out->mad)->attribute;
      sent.emplace_back(wire::cm_message_name(kind));
      if (cut) continue;
      const int copies = prng.chance(line.loss) ? 0 : prng.chance(line.duplication) ? 2 : 1;
      for (int i = 0; i < copies; ++i) {
        const Duration extra = Duration::nanoseconds(
            static_cast<int64_t>(prng.below(static_cast<uint64_t>(line.jitter.ns()) + 1)));
        flying.emplace(now + line.delay + extra, Flying{1 - from, out->mad});
      }
    }
    while (auto event = ends[from]->poll_event()) {
      events[from].push_back(*event);
      if (automatic) react(from, events[from].back());
    }
  }
  // What a simple application does.
  void react(size_t end, const CmEvent& event) {
    if (event.type == CmEventType::kRequest) {
      ASSERT_TRUE(ends[end]->accept(now, event.id, passive_end(), {}).ok());
      collect(end);
    } else if (event.type == CmEventType::kReply && !event.datagram) {
      ASSERT_TRUE(ends[end]->establish(now, event.id).ok());
      collect(end);
    }
  }
  void deliver(const Flying& message);
  void run(Duration span) {
    const Time until = now + span;
    for (;;) {
      collect(0);
      collect(1);
      Time next = std::min(a().next_timer(), b().next_timer());
      if (!flying.empty()) next = std::min(next, flying.begin()->first);
      if (next > until) break;
      now = std::max(now, next);
      if (!flying.empty() && flying.begin()->first <= now) {
        const Flying message = flying.begin()->second;
        flying.erase(flying.begin());
        deliver(message);
      }
      if (a().next_timer() <= now) a().on_timer(now);
      if (b().next_timer() <= now) b().on_timer(now);
    }
    now = until;
  }
  size_t count(size_t end, CmEventType type) const {
    return static_cast<size_t>(std::count_if(events[end].begin(), events[end].end(),
                                             [&](const CmEvent& e) { return e.type == type; }));
  }
  const CmEvent& last(size_t end) const { return events[end].back(); }
  size_t messages(std::string_view name) const {
    return static_cast<size_t>(std::count(sent.begin(), sent.end(), name));
  }

  Line line;
  Prng prng;
  SeededEntropy entropy;
  std::optional<CmAgent> ends[2];
  CmPath path[2];
  Time now = Time::from_ns(1'000'000'000);
  std::multimap<Time, Flying> flying;
  std::vector<CmEvent> events[2];
  std::vector<std::string> sent;
  bool automatic = true;
  bool cut = false;
};

void World::deliver(const Flying& message) {
  const auto kind = static_cast<CmAttribute>(cm_header(message.mad)->attribute);
  if (kind == CmAttribute::req || kind == CmAttribute::sidr_req) {
    ends[message.to]->on_request(now, kListener, path[message.to], message.mad);
  } else {
    ends[message.to]->on_message(now, path[message.to], message.mad);
  }
}

TEST(CmAgent, ConnectsAndDisconnects) {
  World w;
  const uint32_t id = w.connect(0x10'0001, bytes("hello"));
  EXPECT_EQ(id >> 20, 1u);
  w.run(Duration::milliseconds(100));
  EXPECT_EQ(w.sent, (std::vector<std::string>{"REQ", "REP", "RTU"}));
  ASSERT_EQ(w.events[1].size(), 2u);
  const CmEvent& request = w.events[1][0];
  EXPECT_EQ(request.type, CmEventType::kRequest);
  EXPECT_EQ(request.listener, kListener);
  EXPECT_EQ(request.remote_port, 4000);
  EXPECT_EQ(request.peer.qpn, Qpn(0x10'0001));
  EXPECT_EQ(request.peer.starting_psn, Psn(0x1234));
  EXPECT_EQ(request.peer.responder_resources, 4);
  EXPECT_EQ(request.private_data.size, 56);
  EXPECT_EQ(request.private_data.bytes[4], std::byte{'o'});
  EXPECT_EQ(w.events[1][1].type, CmEventType::kEstablished);
  ASSERT_EQ(w.events[0].size(), 1u);
  EXPECT_EQ(w.events[0][0].type, CmEventType::kReply);
  EXPECT_EQ(w.events[0][0].peer.qpn, Qpn(0x20'0002));
  EXPECT_EQ(w.events[0][0].private_data.size, 196);

  ASSERT_TRUE(w.a().disconnect(w.now, id).ok());
  w.run(Duration::milliseconds(100));
  EXPECT_EQ(w.last(0).type, CmEventType::kDisconnected);
  EXPECT_EQ(w.last(1).type, CmEventType::kDisconnected);
  EXPECT_FALSE(w.last(0).timed_out);
  w.run(Duration::seconds(2));
  EXPECT_EQ(w.last(0).type, CmEventType::kTimewaitExit);
  EXPECT_EQ(w.messages("DREQ"), 1u);
  EXPECT_EQ(w.messages("DREP"), 1u);
}

TEST(CmAgent, CrossingDisconnectsReachBoth) {
  World w;
  const uint32_t id = w.connect();
  w.run(Duration::milliseconds(100));
  ASSERT_TRUE(w.a().disconnect(w.now, id).ok());
  ASSERT_TRUE(w.b().disconnect(w.now, w.events[1][0].id).ok());
  w.run(Duration::milliseconds(100));
  EXPECT_EQ(w.count(0, CmEventType::kDisconnected), 1u);
  EXPECT_EQ(w.count(1, CmEventType::kDisconnected), 1u);
}

TEST(CmAgent, RejectionsCarryReasonAndData) {
  World w;
  w.automatic = false;
  w.connect();
  w.run(Duration::milliseconds(10));
  ASSERT_TRUE(w.b().reject(w.now, w.last(1).id, CmReject::consumer_defined, bytes("no")).ok());
  w.run(Duration::milliseconds(10));
  EXPECT_EQ(w.last(0).type, CmEventType::kRejected);
  EXPECT_EQ(w.last(0).reason, 28);
  EXPECT_EQ(w.last(0).private_data.size, 148);
  EXPECT_EQ(w.last(0).private_data.bytes[0], std::byte{'n'});

  // The active end may change its mind, too.
  const uint32_t id = w.connect(0x10'0002);
  w.run(Duration::milliseconds(10));
  ASSERT_TRUE(w.b().accept(w.now, w.last(1).id, World::passive_end(), {}).ok());
  w.run(Duration::milliseconds(10));
  ASSERT_TRUE(w.a().reject(w.now, id, CmReject::consumer_defined, {}).ok());
  w.run(Duration::milliseconds(10));
  EXPECT_EQ(w.last(1).type, CmEventType::kRejected);
}

TEST(CmAgent, PrivateDataHasItsLimits) {
  World w;
  w.automatic = false;
  const std::vector<std::byte> data(256, std::byte{1});
  CmConnect request;
  request.path = w.path[0];
  request.private_data = std::span(data).first(57);
  EXPECT_FALSE(w.a().connect(w.now, request).ok());
  request.datagram = true;
  request.private_data = std::span(data).first(181);
  EXPECT_FALSE(w.a().connect(w.now, request).ok());
  EXPECT_EQ(w.a().connection_count(), 0u);
  w.connect(0x10'0001, std::span(data).first(56));
  w.run(Duration::milliseconds(10));
  const uint32_t id = w.last(1).id;
  EXPECT_FALSE(w.b().accept(w.now, id, {}, std::span(data).first(197)).ok());
  EXPECT_FALSE(
      w.b().reject(w.now, id, CmReject::consumer_defined, std::span(data).first(149)).ok());
  EXPECT_TRUE(w.b().accept(w.now, id, {}, std::span(data).first(196)).ok());
}

TEST(CmAgent, ASilentPeerIsUnreachableAfterItsTime) {
  World w;
  w.cut = true;
  w.connect();
  w.run(Duration::seconds(60));
  EXPECT_TRUE(w.events[0].empty());
  w.run(Duration::seconds(20));
  ASSERT_EQ(w.events[0].size(), 1u);
  EXPECT_EQ(w.last(0).type, CmEventType::kUnreachable);
  EXPECT_LT(w.messages("REQ"), 80u);
}

// Bound, not yet listening: the request is not refused, and comes again when it is.
TEST(CmAgent, WhoDoesNotListenYetStaysSilent) {
  World w;
  w.b().stop_listening(w.now, kListener);
  w.connect();
  w.run(Duration::milliseconds(100));
  EXPECT_EQ(w.messages("REJ"), 0u);
  w.b().listen(kListener, 1);
  w.run(Duration::seconds(1));
  EXPECT_EQ(w.count(1, CmEventType::kEstablished), 1u);
}

TEST(CmAgent, ASlowApplicationIsWaitedFor) {
  World w;
  w.automatic = false;
  w.connect();
  w.run(Duration::seconds(100));
  EXPECT_GE(w.messages("MRA"), 1u);
  EXPECT_EQ(w.events[0].size(), 0u);
  ASSERT_EQ(w.events[1].size(), 1u);
  ASSERT_TRUE(w.b().accept(w.now, w.last(1).id, World::passive_end(), {}).ok());
  w.run(Duration::seconds(100));
  ASSERT_EQ(w.events[0].size(), 1u);
  EXPECT_EQ(w.last(0).type, CmEventType::kReply);
  ASSERT_TRUE(w.a().establish(w.now, w.last(0).id).ok());
  w.run(Duration::seconds(1));
  EXPECT_EQ(w.last(1).type, CmEventType::kEstablished);
}

TEST(CmAgent, DataBeforeTheRtuEstablishes) {
  World w;
  w.automatic = false;
  w.connect();
  w.run(Duration::milliseconds(10));
  const uint32_t id = w.last(1).id;
  EXPECT_FALSE(w.b().on_data(w.now, id).ok());
  ASSERT_TRUE(w.b().accept(w.now, id, World::passive_end(), {}).ok());
  ASSERT_TRUE(w.b().on_data(w.now, id).ok());
  w.run(Duration::milliseconds(10));
  EXPECT_EQ(w.last(1).type, CmEventType::kEstablished);
  ASSERT_TRUE(w.a().establish(w.now, w.last(0).id).ok());
  w.run(Duration::milliseconds(10));
  EXPECT_EQ(w.count(1, CmEventType::kEstablished), 1u);
}

TEST(CmAgent, ADeadPeerIsNoticed) {
  for (const bool active_dies : {false, true}) {
    World w;
    w.connect();
    w.run(Duration::seconds(100));
    EXPECT_EQ(w.count(0, CmEventType::kDisconnected), 0u);
    EXPECT_EQ(w.count(1, CmEventType::kDisconnected), 0u);
    w.cut = true;
    w.run(Duration::seconds(60));
    EXPECT_EQ(w.count(active_dies ? 1 : 0, CmEventType::kDisconnected), 1u);
    EXPECT_TRUE(w.events[1][2].timed_out);
  }
}

// The process has ended, the host lives: who asks is told that there is nobody.
TEST(CmAgent, AForgottenConnectionEndsAtTheNextQuestion) {
  World w;
  const uint32_t id = w.connect();
  w.run(Duration::milliseconds(10));
  w.cut = true;
  w.a().destroy(w.now, id);
  w.run(Duration::milliseconds(1));
  w.ends[0].emplace(CmConfig{1}, w.entropy);
  w.cut = false;
  w.run(Duration::seconds(6));
  EXPECT_EQ(w.count(1, CmEventType::kDisconnected), 1u);
}

// A peer that crashed and comes back with the same QP number is taken at once.
TEST(CmAgent, AReconnectReplacesTheOldConnection) {
  World w;
  w.connect();
  w.run(Duration::milliseconds(10));
  w.ends[0].emplace(CmConfig{1}, w.entropy);
  w.connect();
  w.run(Duration::milliseconds(10));
  EXPECT_EQ(w.messages("REJ"), 0u);
  EXPECT_EQ(w.count(1, CmEventType::kDisconnected), 1u);
  EXPECT_EQ(w.count(1, CmEventType::kEstablished), 2u);
}

TEST(CmAgent, DestroyingSaysFarewell) {
  World w;
  const uint32_t id = w.connect();
  w.run(Duration::milliseconds(10));
  w.a().destroy(w.now, id);
  w.run(Duration::seconds(2));
  EXPECT_EQ(w.last(1).type, CmEventType::kTimewaitExit);
  EXPECT_EQ(w.count(1, CmEventType::kDisconnected), 1u);
  EXPECT_EQ(w.a().connection_count(), 0u);
  EXPECT_EQ(w.count(0, CmEventType::kDisconnected), 0u);
}

TEST(CmAgent, DatagramServices) {
  World w;
  w.automatic = false;
  CmConnect request;
  request.path = w.path[0];
  request.service_id = 0x0111'4711;
  request.datagram = true;
  const auto data = bytes("ud");
  request.private_data = data;
  const uint32_t id = w.a().connect(w.now, request).value();
  w.run(Duration::milliseconds(10));
  ASSERT_EQ(w.last(1).type, CmEventType::kRequest);
  EXPECT_TRUE(w.last(1).datagram);
  EXPECT_EQ(w.last(1).private_data.size, 180);
  CmEnd end;
  end.qpn = Qpn(77);
  end.qkey = 0x0123'4567;
  ASSERT_TRUE(w.b().answer_datagram(w.now, w.last(1).id, wire::SidrStatus::valid, end, {}).ok());
  w.run(Duration::milliseconds(10));
  EXPECT_EQ(w.last(0).type, CmEventType::kReply);
  EXPECT_EQ(w.last(0).id, id);
  EXPECT_EQ(w.last(0).peer.qpn, Qpn(77));
  EXPECT_EQ(w.last(0).peer.qkey, 0x0123'4567u);

  ASSERT_TRUE(w.a().connect(w.now, request).ok());
  w.run(Duration::milliseconds(10));
  ASSERT_TRUE(w.b().reject(w.now, w.last(1).id, CmReject::consumer_defined, {}).ok());
  w.run(Duration::milliseconds(10));
  EXPECT_EQ(w.last(0).type, CmEventType::kRejected);
  EXPECT_EQ(w.last(0).reason, 2);
}

TEST(CmAgent, AlternatePathsAreRefused) {
  World w;
  w.connect();
  w.run(Duration::milliseconds(10));
  const wire::CmLap lap{5, w.events[1][0].id, {}};
  w.b().on_message(w.now, w.path[1], make_cm_mad(CmAttribute::lap, 9, lap));
  const auto out = w.b().poll_transmit();
  ASSERT_TRUE(out);
  EXPECT_EQ(cm_header(out->mad)->attribute, static_cast<uint16_t>(CmAttribute::apr));
  EXPECT_EQ(wire::cm_body<wire::CmApr>(out->mad).status, wire::CmApr::kStatusUnsupported);
}

// Requests from forged sources take no more than their share, and the service goes on.
TEST(CmAgent, AStormOfRequestsTakesBoundedMemory) {
  World w;
  w.automatic = false;
  wire::CmReq req;
  req.service_id = kService;
  req.private_data[1] = std::byte{0x40};
  for (uint32_t i = 0; i < 100'000; ++i) {
    CmPath forged = w.path[1];
    forged.remote = IpAddress::v4(0x0b00'0000 + i);
    req.local_comm_id = 1'000'000 + i;
    req.local_qpn = Qpn(i + 2);
    w.b().on_request(w.now, kListener, forged, make_cm_mad(CmAttribute::req, i, req));
  }
  EXPECT_EQ(w.b().connection_count(), 1024u);
  EXPECT_EQ(w.b().counters().overflowed, 100'000u - 1024);
  w.connect();
  w.run(Duration::milliseconds(100));
  // The application answers what it got, then there is room for who asks again.
  for (const CmEvent& event : std::vector<CmEvent>(w.events[1])) w.b().destroy(w.now, event.id);
  w.run(Duration::seconds(2));
  ASSERT_EQ(w.last(1).type, CmEventType::kRequest);
  EXPECT_EQ(w.last(1).path.remote, w.path[1].remote);
}

TEST(CmAgent, ForgedAnswersChangeNothing) {
  World w;
  const uint32_t id = w.connect();
  w.run(Duration::milliseconds(10));
  CmPath forged = w.path[0];
  forged.remote = IpAddress::v4(0x0a4d0099);
  wire::CmRej rej;
  rej.remote_comm_id = id;
  rej.reason = 6;
  w.a().on_message(w.now, forged, make_cm_mad(CmAttribute::rej, 1, rej));
  w.a().on_message(w.now, forged,
                   make_cm_mad(CmAttribute::dreq, 1, wire::CmDreq{1, id, {}, 0, {}}));
  w.run(Duration::milliseconds(10));
  EXPECT_EQ(w.count(0, CmEventType::kDisconnected), 0u);
}

// Whatever the line does: each connection is set up once on both ends, and ends once on both.
TEST(CmAgent, LossDuplicationAndReordering) {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Line line;
    line.loss = static_cast<double>(seed % 4) * 0.1;
    line.duplication = 0.2;
    line.jitter = Duration::milliseconds(static_cast<int64_t>(seed % 3) * 400);
    World w(line, seed);
    std::map<uint32_t, bool> mine;
    for (uint32_t i = 0; i < 20; ++i) mine[w.connect(0x10'0000 + i)] = false;
    w.run(Duration::seconds(70));
    EXPECT_EQ(w.count(0, CmEventType::kReply), 20u);
    EXPECT_EQ(w.count(1, CmEventType::kRequest), 20u);
    EXPECT_EQ(w.count(1, CmEventType::kEstablished), 20u);
    EXPECT_EQ(w.count(0, CmEventType::kDisconnected), 0u);
    const std::vector<CmEvent> requests = w.events[1];
    for (const auto& [id, unused] : mine) {
      if (w.prng.chance(0.7)) {
        ASSERT_TRUE(w.a().disconnect(w.now, id).ok());
      }
    }
    for (const CmEvent& event : requests) {
      if (event.type == CmEventType::kRequest && w.prng.chance(0.7)) {
        (void)w.b().disconnect(w.now, event.id);
      }
    }
    for (const auto& [id, unused] : mine) (void)w.a().disconnect(w.now, id);
    w.run(Duration::seconds(90));
    EXPECT_EQ(w.count(0, CmEventType::kDisconnected), 20u);
    EXPECT_EQ(w.count(1, CmEventType::kDisconnected), 20u);
    EXPECT_EQ(w.count(0, CmEventType::kTimewaitExit), 20u);
    EXPECT_EQ(w.count(0, CmEventType::kUnreachable), 0u);
    EXPECT_TRUE(w.a().next_timer().is_never());
  }
}

// Any bytes at all, from anybody, break nothing.
TEST(CmAgent, NoiseBreaksNothing) {
  World w;
  const uint32_t id = w.connect();
  w.run(Duration::milliseconds(10));
  Prng prng(3);
  for (int i = 0; i < 50'000; ++i) {
    wire::MadHeader header;
    header.management_class = wire::kMadClassCm;
    header.class_version = wire::kCmClassVersion;
    header.method = wire::kMadMethodSend;
    header.attribute = static_cast<uint16_t>(0x10 + prng.below(11));
    header.attribute_modifier = prng.chance(0.5) ? CmAgent::kMark : 0;
    Mad mad;
    for (std::byte& b : mad) b = static_cast<std::byte>(prng.next());
    emit_header(header, mad.data());
    if (prng.chance(0.5)) store_be(mad.data() + wire::MadHeader::kSize + 4, id);
    w.a().on_message(w.now, w.path[0], mad);
    w.b().on_request(w.now, kListener, w.path[1], mad);
    while (w.a().poll_transmit()) {
    }
    while (w.b().poll_transmit()) {
    }
    while (w.a().poll_event()) {
    }
    while (w.b().poll_event()) {
    }
    w.now = w.now + Duration::milliseconds(1);
    w.a().on_timer(w.now);
    w.b().on_timer(w.now);
  }
  EXPECT_LE(w.b().connection_count(), 1026u);
}

}  // namespace
}  // namespace farverbs::proto
