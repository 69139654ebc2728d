// Datagrams to QP1 find their process, and who asks for nobody is told so.
#include "farverbs/io/management.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <thread>

#include "farverbs/io/os_clock.h"

namespace farverbs::io {
namespace {

using wire::CmAttribute;

// Names are the whole namespace's: tests that run at the same time take different ones.
uint16_t own_port() { return static_cast<uint16_t>(20'000 + getpid() % 40'000); }
const Endpoint kPeer{*IpAddress::parse("127.0.0.9"), 49'160};

ManagementDatagram datagram(const wire::Mad& mad) {
  return {kPeer, {*IpAddress::parse("127.0.0.1"), own_port()}, 0x68, mad};
}

wire::Mad req(uint64_t service_id) {
  wire::CmReq message;
  message.local_comm_id = 0x7777'0001;
  message.service_id = service_id;
  return make_cm_mad(CmAttribute::req, 99, message);
}

// What it says to the sender of a datagram, however patient it is.
std::optional<wire::Mad> answer_of(ManagementRouter& router, const ManagementDatagram& datagram) {
  Time now;
  router.route(now, datagram);
  for (; !router.next_retry().is_never() && now < Time() + Duration::seconds(5);) {
    now = router.next_retry();
    router.retry(now);
  }
  const auto answer = router.poll_answer();
  if (!answer) return std::nullopt;
  EXPECT_EQ(answer->to, datagram.source);
  EXPECT_EQ(answer->from, datagram.destination);
  EXPECT_FALSE(router.poll_answer());
  return answer->mad;
}

std::unique_ptr<ManagementRouter> router() { return std::move(ManagementRouter::create()).value(); }

TEST(Management, ARequestGoesToWhoBoundTheService) {
  const Endpoint local{*IpAddress::parse("127.0.0.1"), own_port()};
  const auto socket = ManagementSocket::bind(service_name(local, 0x0106'4711));
  ASSERT_TRUE(socket.ok()) << socket.error().message;
  EXPECT_FALSE(answer_of(*router(), datagram(req(0x0106'4711))));
  ManagementDatagram got;
  wire::Mad storage;
  ASSERT_TRUE(socket->receive(got, storage));
  EXPECT_EQ(got.source, kPeer);
  EXPECT_EQ(got.destination, local);
  EXPECT_EQ(got.traffic_class, 0x68);
  EXPECT_EQ(storage, req(0x0106'4711));
  EXPECT_FALSE(socket->receive(got, storage));
  EXPECT_FALSE(ManagementSocket::bind(service_name(local, 0x0106'4711)).ok());
}

TEST(Management, AWildcardGetsWhatNobodyElseBound) {
  const auto any = ManagementSocket::bind(service_name({IpAddress(), own_port()}, 0x0106'4712));
  ASSERT_TRUE(any.ok());
  EXPECT_FALSE(answer_of(*router(), datagram(req(0x0106'4712))));
  ManagementDatagram got;
  wire::Mad storage;
  EXPECT_TRUE(any->receive(got, storage));
}

TEST(Management, WhoAsksForNobodyIsTold) {
  const auto answer = answer_of(*router(), datagram(req(0x0106'4713)));
  ASSERT_TRUE(answer);
  const auto header = wire::cm_header(*answer);
  ASSERT_TRUE(header);
  EXPECT_EQ(header->transaction, 99u);
  const auto rej = wire::cm_body<wire::CmRej>(*answer);
  EXPECT_EQ(rej.remote_comm_id, 0x7777'0001u);
  EXPECT_EQ(rej.reason, static_cast<uint16_t>(wire::CmReject::invalid_service_id));

  wire::CmSidrReq sidr;
  sidr.request_id = 5;
  const auto no = answer_of(*router(), datagram(make_cm_mad(CmAttribute::sidr_req, 1, sidr)));
  ASSERT_TRUE(no);
  EXPECT_EQ(wire::cm_body<wire::CmSidrRep>(*no).status, 1);
  EXPECT_EQ(wire::cm_body<wire::CmSidrRep>(*no).request_id, 5u);

  // The process of a connection has ended: DREQ is answered in its place, REP is rejected.
  const auto gone = answer_of(
      *router(),
      datagram(make_cm_mad(CmAttribute::dreq, 1, wire::CmDreq{3, 0x1000'0004, {}, 0, {}})));
  ASSERT_TRUE(gone);
  EXPECT_EQ(wire::cm_header(*gone)->attribute, static_cast<uint16_t>(CmAttribute::drep));
  EXPECT_EQ(wire::cm_body<wire::CmDrep>(*gone).remote_comm_id, 3u);

  // An answer is not answered.
  EXPECT_FALSE(answer_of(*router(), datagram(*answer)));
  EXPECT_FALSE(answer_of(*router(), datagram(*gone)));
}

TEST(Management, AServiceThatIsBoundALittleLaterGetsTheRequest) {
  const Endpoint local{*IpAddress::parse("127.0.0.1"), own_port()};
  auto patient = router();
  patient->route(Time(), datagram(req(0x0106'4716)));
  EXPECT_FALSE(patient->poll_answer());
  const auto socket = ManagementSocket::bind(service_name(local, 0x0106'4716));
  ASSERT_TRUE(socket.ok());
  patient->retry(patient->next_retry());
  EXPECT_TRUE(patient->next_retry().is_never());
  ManagementDatagram got;
  wire::Mad storage;
  EXPECT_TRUE(socket->receive(got, storage));
}

// Who asks for nothing again and again is refused at once, beyond a few.
TEST(Management, PatienceIsBounded) {
  auto patient = router();
  for (int i = 0; i < 1000; ++i) patient->route(Time(), datagram(req(0x0106'4717)));
  int answers = 0;
  while (patient->poll_answer()) ++answers;
  EXPECT_EQ(answers, 1000 - 64);
}

TEST(Management, TheAgentIsInTheIdentifier) {
  uint16_t agent = 1;
  Result<ManagementSocket> socket = Error{};
  for (; agent < 4095 && !socket.ok(); ++agent) socket = ManagementSocket::bind(agent_name(agent));
  ASSERT_TRUE(socket.ok());
  const uint32_t id = (uint32_t{agent} - 1) << (32 - kAgentBits) | 77;
  EXPECT_FALSE(
      answer_of(*router(), datagram(make_cm_mad(CmAttribute::rtu, 1, wire::CmRtu{5, id, {}}))));
  ManagementDatagram got;
  wire::Mad storage;
  ASSERT_TRUE(socket->receive(got, storage));
  EXPECT_EQ(wire::cm_body<wire::CmRtu>(storage).remote_comm_id, id);
}

// The kernel's queue of a unix socket holds ten messages; a thousand requests at once arrive.
TEST(Management, ABurstWaitsForItsReceiver) {
  constexpr uint64_t kService = 0x0106'4714;
  constexpr int kMessages = 1000;
  const Endpoint local{*IpAddress::parse("127.0.0.1"), own_port()};
  const auto socket = ManagementSocket::bind(service_name(local, kService));
  ASSERT_TRUE(socket.ok());
  auto sender = router();
  Time now;
  for (int i = 0; i < kMessages; ++i) sender->route(now, datagram(req(kService)));
  int received = 0;
  ManagementDatagram got;
  wire::Mad storage;
  for (int round = 0; round < kMessages && received < kMessages; ++round) {
    while (socket->receive(got, storage)) ++received;
    now = std::max(now, sender->next_retry().is_never() ? now : sender->next_retry());
    sender->retry(now);
  }
  while (socket->receive(got, storage)) ++received;
  EXPECT_EQ(received, kMessages);
  EXPECT_TRUE(sender->next_retry().is_never());
}

TEST(Management, AStoppedReceiverTakesNoMoreThanItsShare) {
  constexpr uint64_t kService = 0x0106'4715;
  const Endpoint local{*IpAddress::parse("127.0.0.1"), own_port()};
  const auto socket = ManagementSocket::bind(service_name(local, kService));
  ASSERT_TRUE(socket.ok());
  auto sender = router();
  for (size_t i = 0; i < 2 * ManagementRouter::kMostWaiting; ++i) {
    sender->route(Time(), datagram(req(kService)));
  }
  sender->retry(Time() + Duration::seconds(2));
  EXPECT_TRUE(sender->next_retry().is_never());  // given up
}

}  // namespace
}  // namespace farverbs::io
