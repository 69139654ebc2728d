// A GSI QP sends as QP1, and what is sent to QP1 reaches whoever has bound its service.
#include <gtest/gtest.h>
#include <poll.h>

#include "farverbs/io/management.h"
#include "farverbs/verbs/test_pair.h"
#include "farverbs/wire/cm_messages.h"

namespace farverbs::verbs {
namespace {

using wire::CmAttribute;

struct Sender : End {
  Sender() : End(options()) { must(qp.activate_datagrams(1)); }
  static EndOptions options() {
    EndOptions options;
    options.type = QpType::kGsi;
    return options;
  }
  void send(const wire::Mad& mad) {
    std::copy(mad.begin(), mad.end(), memory.begin());
    const ScatterGatherElement sge = region.sge(0, wire::kMadSize);
    model::AddressVector av;
    av.destination_gid = IpAddress::parse("127.0.0.1")->to_gid();
    SendWorkRequest wr;
    wr.flags = model::kSignaled;
    wr.sges = {&sge, 1};
    wr.address_vector = &av;
    wr.remote_qpn = kManagementQpn;
    wr.remote_qkey = wire::kGsiQkey;
    must(qp.post_send(wr));
    EXPECT_EQ(completion().status, model::CompletionStatus::kSuccess);
  }
};

bool receive(const io::ManagementSocket& socket, io::ManagementDatagram& got, wire::Mad& storage) {
  pollfd fd{socket.fd(), POLLIN, 0};
  return poll(&fd, 1, 10'000) == 1 && socket.receive(got, storage);
}

TEST(ManagementQp, RequestsReachTheServiceAndAnswersTheAgent) {
  Result<io::ManagementSocket> agent = Error{};
  uint16_t number = 0;
  while (!agent.ok() && number < 4000) agent = io::ManagementSocket::bind(io::agent_name(++number));
  ASSERT_TRUE(agent.ok());
  const uint64_t service = wire::ip_service_id(0x0106, 47'110);
  const Endpoint local{*IpAddress::parse("127.0.0.1"), kRoceUdpPort};
  Sender sender;
  wire::CmReq req;
  req.local_comm_id = uint32_t{number} << (32 - io::kAgentBits) | 5;
  req.service_id = service;
  const wire::Mad mad = make_cm_mad(CmAttribute::req, 1, req);
  io::ManagementDatagram got;
  wire::Mad storage;
  {
    const auto listener = io::ManagementSocket::bind(io::service_name(local, service));
    ASSERT_TRUE(listener.ok());
    sender.send(mad);
    ASSERT_TRUE(receive(*listener, got, storage));
    EXPECT_EQ(storage, mad);
    EXPECT_EQ(got.source.address, local.address);
  }
  // Nobody there any more: the router of this address says so.
  sender.send(mad);
  ASSERT_TRUE(receive(*agent, got, storage));
  EXPECT_EQ(wire::cm_header(storage)->attribute, static_cast<uint16_t>(CmAttribute::rej));
  EXPECT_EQ(wire::cm_body<wire::CmRej>(storage).remote_comm_id, req.local_comm_id);
}

}  // namespace
}  // namespace farverbs::verbs
