// Connections through the public interface, as the manual pages of librdmacm describe them.
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <string>
#include <thread>

#include "farverbs/abi/rdmacm/rdmacm_testing.h"

namespace farverbs::rdmacm::testing {
namespace {

TEST(Connections, DataFlowsAndBothEndsHearOfTheEnd) {
  Ends ends;
  ends.connect();
  char received[64] = {};
  ibv_mr* mr = ibv_reg_mr(ends.passive->pd, received, sizeof received, IBV_ACCESS_LOCAL_WRITE);
  ASSERT_NE(mr, nullptr);
  ibv_sge sge{reinterpret_cast<uint64_t>(received), sizeof received, mr->lkey};
  ibv_recv_wr receive{};
  receive.sg_list = &sge;
  receive.num_sge = 1;
  ibv_recv_wr* bad_receive = nullptr;
  ASSERT_EQ(ibv_post_recv(ends.passive->qp, &receive, &bad_receive), 0);
  char text[] = "hello";
  ibv_sge from{reinterpret_cast<uint64_t>(text), sizeof text, 0};
  ibv_send_wr send{};
  send.sg_list = &from;
  send.num_sge = 1;
  send.opcode = IBV_WR_SEND;
  send.send_flags = IBV_SEND_INLINE | IBV_SEND_SIGNALED;
  ibv_send_wr* bad_send = nullptr;
  ASSERT_EQ(ibv_post_send(ends.active->qp, &send, &bad_send), 0);
  ibv_wc wc{};
  while (ibv_poll_cq(ends.passive->recv_cq, 1, &wc) == 0) std::this_thread::yield();
  EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  EXPECT_STREQ(received, "hello");

  EXPECT_EQ(rdma_disconnect(ends.active), 0);
  EXPECT_EQ(name_of_next(ends.client.channel), "RDMA_CM_EVENT_DISCONNECTED");
  EXPECT_EQ(name_of_next(ends.server.channel), "RDMA_CM_EVENT_DISCONNECTED");
  EXPECT_EQ(rdma_disconnect(ends.passive), 0);
  ibv_dereg_mr(mr);
}

TEST(Connections, RequestsTellWhoAsks) {
  Ends ends;
  Ends::add_qp(ends.active);
  rdma_conn_param param = Ends::parameters("who is there");
  param.initiator_depth = 3;
  param.responder_resources = 5;
  ASSERT_EQ(rdma_connect(ends.active, &param), 0);
  {
    Next request(ends.server.channel);
    ASSERT_EQ(request.name(), "RDMA_CM_EVENT_CONNECT_REQUEST");
    ends.passive = request->id;
    EXPECT_EQ(request->listen_id, ends.listener);
    const rdma_conn_param& conn = request->param.conn;
    EXPECT_EQ(conn.private_data_len, 56);
    EXPECT_STREQ(static_cast<const char*>(conn.private_data), "who is there");
    EXPECT_EQ(conn.responder_resources, 3);
    EXPECT_EQ(conn.initiator_depth, 5);
    EXPECT_EQ(conn.qp_num, ends.active->qp->qp_num);
    EXPECT_EQ(rdma_get_dst_port(ends.passive), rdma_get_src_port(ends.active));
    EXPECT_EQ(rdma_get_src_port(ends.passive), rdma_get_src_port(ends.listener));
    EXPECT_EQ(ends.passive->verbs, ends.active->verbs);
    EXPECT_EQ(ends.passive->channel, ends.server.channel);
  }
  ASSERT_EQ(rdma_reject(ends.passive, "nobody", 7), 0);
  Next rejected(ends.client.channel);
  EXPECT_EQ(rejected.name(), "RDMA_CM_EVENT_REJECTED");
  EXPECT_EQ(rejected->status, 28);
  EXPECT_STREQ(static_cast<const char*>(rejected->param.conn.private_data), "nobody");
}

TEST(Connections, NobodyListens) {
  Ends ends;
  EXPECT_EQ(rdma_destroy_id(ends.listener), 0);
  ends.listener = nullptr;
  Ends::add_qp(ends.active);
  rdma_conn_param param = Ends::parameters();
  ASSERT_EQ(rdma_connect(ends.active, &param), 0);
  Next rejected(ends.client.channel);
  EXPECT_EQ(rejected.name(), "RDMA_CM_EVENT_REJECTED");
  EXPECT_EQ(rejected->status, 8);
}

bool is_of_a_network(ibv_context* context) {
  ibv_gid gid{};
  constexpr uint8_t kV4[] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 127};
  constexpr uint8_t kV6[] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1};
  return ibv_query_gid(context, 1, 0, &gid) == 0 && std::memcmp(gid.raw, kV4, sizeof kV4) != 0 &&
         std::memcmp(gid.raw, kV6, sizeof kV6) != 0;
}

// libfabric binds to localhost and looks only at the device that it is told of then.
TEST(Connections, ToBindToLoopbackDecidesNoDeviceIfThereIsAnother) {
  int count = 0;
  ibv_context** devices = rdma_get_devices(&count);
  ASSERT_NE(devices, nullptr);
  const bool another = std::any_of(devices, devices + count, is_of_a_network);
  rdma_free_devices(devices);
  Channel channel;
  rdma_cm_id* id = nullptr;
  ASSERT_EQ(rdma_create_id(channel.channel, &id, nullptr, RDMA_PS_UDP), 0);
  sockaddr_in any_port = loopback(0);
  ASSERT_EQ(rdma_bind_addr(id, generic(any_port)), 0);
  EXPECT_EQ(id->verbs == nullptr, another);
  // A QP is on the device that has the address all the same.
  ibv_qp_init_attr attributes = qp_attributes(IBV_QPT_UD);
  ASSERT_EQ(rdma_create_qp(id, nullptr, &attributes), 0) << std::strerror(errno);
  ASSERT_NE(id->verbs, nullptr);
  EXPECT_FALSE(is_of_a_network(id->verbs));
  rdma_destroy_qp(id);
  EXPECT_EQ(rdma_destroy_id(id), 0);
}

// What a child process of the next test does: connects, and exits at once.
void connect_and_exit(const char* port) {
  sockaddr_in to = loopback(static_cast<uint16_t>(std::atoi(port)));
  rdma_cm_id* id = nullptr;
  ASSERT_EQ(rdma_create_id(nullptr, &id, nullptr, RDMA_PS_TCP), 0);
  ASSERT_EQ(rdma_resolve_addr(id, nullptr, generic(to), 1000), 0);
  ASSERT_EQ(rdma_resolve_route(id, 1000), 0);
  Ends::add_qp(id);
  rdma_conn_param param = Ends::parameters();
  ASSERT_EQ(rdma_connect(id, &param), 0);
  std::exit(0);
}

// Its last messages leave before it ends, also those that the kernel gave to itself.
TEST(Connections, WhoExitsHasSaidGoodbye) {
  if (const char* port = std::getenv("FARVERBS_TEST_PORT")) return connect_and_exit(port);
  Ends ends;
  rdma_conn_param param = Ends::parameters();
  ::setenv("FARVERBS_TEST_PORT", std::to_string(ntohs(rdma_get_src_port(ends.listener))).c_str(),
           1);
  char* const arguments[] = {const_cast<char*>("child"),

                             const_cast<char*>("--gtest_filter=Connections.WhoExitsHasSaidGoodbye"),
                             const_cast<char*>("--gtest_brief=1"), nullptr};
  for (int i = 0; i < 20; ++i) {
    pid_t child = -1;
    ASSERT_EQ(posix_spawn(&child, "/proc/self/exe", nullptr, nullptr, arguments, environ), 0);
    rdma_cm_id* id = nullptr;
    {
      Next request(ends.server.channel);
      ASSERT_EQ(request.name(), "RDMA_CM_EVENT_CONNECT_REQUEST");
      id = request->id;
    }
    Ends::add_qp(id);
    ASSERT_EQ(rdma_accept(id, &param), 0);
    EXPECT_EQ(name_of_next(ends.server.channel), "RDMA_CM_EVENT_ESTABLISHED");
    {
      Next end(ends.server.channel);
      EXPECT_EQ(end.name(), "RDMA_CM_EVENT_DISCONNECTED");
      EXPECT_EQ(end->status, 0) << "nobody said so: it was found out by asking";
    }
    rdma_destroy_qp(id);
    EXPECT_EQ(rdma_destroy_id(id), 0);
    EXPECT_EQ(waitpid(child, nullptr, 0), child);
  }
  ::unsetenv("FARVERBS_TEST_PORT");
}

// qperf tells its port before it listens.
TEST(Connections, BoundButNotYetListening) {
  Channel server;
  rdma_cm_id* listener = nullptr;
  ASSERT_EQ(rdma_create_id(server.channel, &listener, nullptr, RDMA_PS_TCP), 0);
  sockaddr_in any_port = loopback(0);
  ASSERT_EQ(rdma_bind_addr(listener, generic(any_port)), 0);
  Ends other;
  sockaddr_in to = loopback(ntohs(rdma_get_src_port(listener)));
  rdma_cm_id* id = nullptr;
  ASSERT_EQ(rdma_create_id(other.client.channel, &id, nullptr, RDMA_PS_TCP), 0);
  ASSERT_EQ(rdma_resolve_addr(id, nullptr, generic(to), 1000), 0);
  EXPECT_EQ(name_of_next(other.client.channel), "RDMA_CM_EVENT_ADDR_RESOLVED");
  ASSERT_EQ(rdma_resolve_route(id, 1000), 0);
  EXPECT_EQ(name_of_next(other.client.channel), "RDMA_CM_EVENT_ROUTE_RESOLVED");
  Ends::add_qp(id);
  rdma_conn_param param = Ends::parameters();
  ASSERT_EQ(rdma_connect(id, &param), 0);
  pollfd fd{other.client.channel->fd, POLLIN, 0};
  EXPECT_EQ(poll(&fd, 1, 700), 0);  // longer than a service is waited for
  ASSERT_EQ(rdma_listen(listener, 1), 0);
  {
    Next request(server.channel);
    ASSERT_EQ(request.name(), "RDMA_CM_EVENT_CONNECT_REQUEST");
    EXPECT_EQ(rdma_destroy_id(request->id), 0);  // which rejects
  }
  EXPECT_EQ(name_of_next(other.client.channel), "RDMA_CM_EVENT_REJECTED");
  rdma_destroy_qp(id);
  rdma_destroy_id(id);
  rdma_destroy_id(listener);
}

// QPs that are the application's: the library does not touch them.
TEST(Connections, ExternalQps) {
  Ends ends;
  rdma_conn_param param = Ends::parameters();
  param.qp_num = 0x123456;
  ASSERT_EQ(rdma_connect(ends.active, &param), 0);
  {
    Next request(ends.server.channel);
    ends.passive = request->id;
    EXPECT_EQ(request->param.conn.qp_num, 0x123456u);
  }
  param.qp_num = 0x654321;
  ASSERT_EQ(rdma_accept(ends.passive, &param), 0);
  {
    Next response(ends.client.channel);
    EXPECT_EQ(response.name(), "RDMA_CM_EVENT_CONNECT_RESPONSE");
    EXPECT_EQ(response->param.conn.qp_num, 0x654321u);
  }
  ibv_qp_attr attr{};
  int mask = 0;
  attr.qp_state = IBV_QPS_RTR;
  ASSERT_EQ(rdma_init_qp_attr(ends.active, &attr, &mask), 0);
  EXPECT_EQ(attr.dest_qp_num, 0x654321u);
  EXPECT_NE(mask & IBV_QP_AV, 0);
  ASSERT_EQ(rdma_establish(ends.active), 0);
  EXPECT_EQ(name_of_next(ends.server.channel), "RDMA_CM_EVENT_ESTABLISHED");
}

TEST(Connections, OptionsReachTheQp) {
  Ends ends;
  uint8_t timeout = 9;
  uint8_t tos = 0x68;
  EXPECT_EQ(rdma_destroy_id(ends.active), 0);
  ASSERT_EQ(rdma_create_id(ends.client.channel, &ends.active, nullptr, RDMA_PS_TCP), 0);
  ASSERT_EQ(rdma_set_option(ends.active, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout, 1),
            0);
  ASSERT_EQ(rdma_set_option(ends.active, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &tos, 1), 0);
  sockaddr_in to = loopback(ntohs(rdma_get_src_port(ends.listener)));
  ASSERT_EQ(rdma_resolve_addr(ends.active, nullptr, generic(to), 1000), 0);
  EXPECT_EQ(name_of_next(ends.client.channel), "RDMA_CM_EVENT_ADDR_RESOLVED");
  ASSERT_EQ(rdma_resolve_route(ends.active, 1000), 0);
  EXPECT_EQ(name_of_next(ends.client.channel), "RDMA_CM_EVENT_ROUTE_RESOLVED");
  ends.connect();
  for (rdma_cm_id* id : {ends.active, ends.passive}) {
    ibv_qp_attr attr{};
    ibv_qp_init_attr init{};
    ASSERT_EQ(ibv_query_qp(id->qp, &attr, IBV_QP_TIMEOUT | IBV_QP_AV, &init), 0);
    EXPECT_EQ(attr.timeout, 9);
    EXPECT_EQ(attr.ah_attr.grh.traffic_class, 0x68);
  }
}

TEST(Connections, DatagramServices) {
  Ends ends(RDMA_PS_UDP);
  Ends::add_qp(ends.active);
  rdma_conn_param param = Ends::parameters("ud");
  ASSERT_EQ(rdma_connect(ends.active, &param), 0);
  {
    Next request(ends.server.channel);
    ASSERT_EQ(request.name(), "RDMA_CM_EVENT_CONNECT_REQUEST");
    EXPECT_EQ(request->param.ud.private_data_len, 180);
    ends.passive = request->id;
  }
  Ends::add_qp(ends.passive);
  ASSERT_EQ(rdma_accept(ends.passive, &param), 0);
  Next established(ends.client.channel);
  EXPECT_EQ(established.name(), "RDMA_CM_EVENT_ESTABLISHED");
  EXPECT_EQ(established->param.ud.qp_num, ends.passive->qp->qp_num);
  EXPECT_EQ(established->param.ud.qkey, static_cast<uint32_t>(RDMA_UDP_QKEY));
}

TEST(Connections, CrossingDisconnectsReachBoth) {
  Ends ends;
  ends.connect();
  EXPECT_EQ(rdma_disconnect(ends.active), 0);
  EXPECT_EQ(rdma_disconnect(ends.passive), 0);
  EXPECT_EQ(name_of_next(ends.client.channel), "RDMA_CM_EVENT_DISCONNECTED");
  EXPECT_EQ(name_of_next(ends.server.channel), "RDMA_CM_EVENT_DISCONNECTED");
}

TEST(Connections, DestroyingAnEndTellsTheOther) {
  Ends ends;
  ends.connect();
  rdma_destroy_qp(ends.active);
  EXPECT_EQ(rdma_destroy_id(ends.active), 0);
  ends.active = nullptr;
  EXPECT_EQ(name_of_next(ends.server.channel), "RDMA_CM_EVENT_DISCONNECTED");
}

// Destroying waits for events that were given, and takes those back that were not.
TEST(Connections, DestroyWaitsForAcknowledgements) {
  Ends ends;
  rdma_cm_event* event = nullptr;
  rdma_cm_id* id = nullptr;
  ASSERT_EQ(rdma_create_id(ends.client.channel, &id, nullptr, RDMA_PS_TCP), 0);
  sockaddr_in to = loopback(1);
  ASSERT_EQ(rdma_resolve_addr(id, nullptr, generic(to), 1000), 0);
  ASSERT_EQ(rdma_get_cm_event(ends.client.channel, &event), 0);
  std::atomic<bool> gone{false};
  std::thread destroyer([&] {
    rdma_destroy_id(id);
    gone = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_FALSE(gone);
  EXPECT_EQ(rdma_ack_cm_event(event), 0);
  destroyer.join();

  ASSERT_EQ(rdma_create_id(ends.client.channel, &id, nullptr, RDMA_PS_TCP), 0);
  ASSERT_EQ(rdma_resolve_addr(id, nullptr, generic(to), 1000), 0);
  ASSERT_EQ(rdma_destroy_id(id), 0);
  pollfd fd{ends.client.channel->fd, POLLIN, 0};
  EXPECT_EQ(poll(&fd, 1, 0), 0);
}

TEST(Connections, ChannelsCanBeNonBlocking) {
  Channel channel;
  const int flags = fcntl(channel.channel->fd, F_GETFL);
  ASSERT_EQ(fcntl(channel.channel->fd, F_SETFL, flags | O_NONBLOCK), 0);
  rdma_cm_event* event = nullptr;
  EXPECT_EQ(rdma_get_cm_event(channel.channel, &event), -1);
  EXPECT_EQ(errno, EAGAIN);
}

TEST(Connections, IdentifiersMigrateWithTheirEvents) {
  Ends ends;
  Channel other;
  rdma_cm_id* id = nullptr;
  ASSERT_EQ(rdma_create_id(ends.client.channel, &id, nullptr, RDMA_PS_TCP), 0);
  sockaddr_in to = loopback(1);
  ASSERT_EQ(rdma_resolve_addr(id, nullptr, generic(to), 1000), 0);
  ASSERT_EQ(rdma_migrate_id(id, other.channel), 0);
  EXPECT_EQ(id->channel, other.channel);
  EXPECT_EQ(name_of_next(other.channel), "RDMA_CM_EVENT_ADDR_RESOLVED");
  rdma_destroy_id(id);
}

TEST(Connections, SynchronousEndpoints) {
  rdma_addrinfo hints{};
  hints.ai_port_space = RDMA_PS_TCP;
  hints.ai_flags = RAI_PASSIVE;
  rdma_addrinfo* local = nullptr;
  ASSERT_EQ(rdma_getaddrinfo("127.0.0.1", "0", &hints, &local), 0);
  ibv_qp_init_attr attributes = qp_attributes();
  rdma_cm_id* listener = nullptr;
  ASSERT_EQ(rdma_create_ep(&listener, local, nullptr, &attributes), 0) << std::strerror(errno);
  rdma_freeaddrinfo(local);
  ASSERT_EQ(rdma_listen(listener, 1), 0);
  const std::string port = std::to_string(ntohs(rdma_get_src_port(listener)));
  std::thread client([&] {
    rdma_addrinfo wanted{};
    wanted.ai_port_space = RDMA_PS_TCP;
    rdma_addrinfo* remote = nullptr;
    ASSERT_EQ(rdma_getaddrinfo("127.0.0.1", port.c_str(), &wanted, &remote), 0);
    ibv_qp_init_attr client_attributes = qp_attributes();
    rdma_cm_id* id = nullptr;
    ASSERT_EQ(rdma_create_ep(&id, remote, nullptr, &client_attributes), 0) << std::strerror(errno);
    rdma_freeaddrinfo(remote);
    EXPECT_EQ(rdma_connect(id, nullptr), 0) << std::strerror(errno);
    EXPECT_EQ(rdma_disconnect(id), 0);
    rdma_destroy_ep(id);
  });
  rdma_cm_id* id = nullptr;
  ASSERT_EQ(rdma_get_request(listener, &id), 0) << std::strerror(errno);
  ASSERT_NE(id->qp, nullptr);
  EXPECT_EQ(rdma_accept(id, nullptr), 0) << std::strerror(errno);
  EXPECT_EQ(rdma_disconnect(id), 0);
  client.join();
  rdma_destroy_ep(id);
  rdma_destroy_ep(listener);
}

TEST(Connections, PortsBelongToOne) {
  Ends ends;
  rdma_cm_id* second = nullptr;
  ASSERT_EQ(rdma_create_id(ends.server.channel, &second, nullptr, RDMA_PS_TCP), 0);
  sockaddr_in taken = loopback(ntohs(rdma_get_src_port(ends.listener)));
  EXPECT_EQ(rdma_bind_addr(second, generic(taken)), -1);
  EXPECT_EQ(errno, EADDRINUSE);
  // Another port space has ports of its own.
  rdma_cm_id* datagrams = nullptr;
  ASSERT_EQ(rdma_create_id(ends.server.channel, &datagrams, nullptr, RDMA_PS_UDP), 0);
  EXPECT_EQ(rdma_bind_addr(datagrams, generic(taken)), 0);
  int reuse = 1;
  EXPECT_EQ(rdma_set_option(second, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &reuse, sizeof reuse),
            0);
  EXPECT_EQ(rdma_bind_addr(second, generic(taken)), 0);
  EXPECT_EQ(rdma_listen(second, 1), -1);
  EXPECT_EQ(errno, EADDRINUSE);
  rdma_destroy_id(second);
  rdma_destroy_id(datagrams);
}

// 0.0.0.0 and :: on one port, the latter for IPv6 alone.
TEST(Connections, WildcardsOfBothFamiliesCoexist) {
  Channel channel;
  rdma_cm_id* v4 = nullptr;
  rdma_cm_id* v6 = nullptr;
  ASSERT_EQ(rdma_create_id(channel.channel, &v4, nullptr, RDMA_PS_TCP), 0);
  ASSERT_EQ(rdma_create_id(channel.channel, &v6, nullptr, RDMA_PS_TCP), 0);
  sockaddr_in any{};
  any.sin_family = AF_INET;
  ASSERT_EQ(rdma_bind_addr(v4, generic(any)), 0);
  int only = 1;
  ASSERT_EQ(rdma_set_option(v6, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &only, sizeof only), 0);
  sockaddr_in6 any6{};
  any6.sin6_family = AF_INET6;
  any6.sin6_port = rdma_get_src_port(v4);
  EXPECT_EQ(rdma_bind_addr(v6, reinterpret_cast<sockaddr*>(&any6)), 0) << std::strerror(errno);
  rdma_destroy_id(v4);
  rdma_destroy_id(v6);
}

// Null, freed and foreign arguments, and calls out of order, are refused with an errno.
TEST(BadInput, IsRefused) {
  Channel channel;
  rdma_cm_id* id = nullptr;
  const auto refused = [](int result, int code) {
    EXPECT_EQ(result, -1);
    EXPECT_EQ(errno, code);
  };
  refused(rdma_create_id(channel.channel, nullptr, nullptr, RDMA_PS_TCP), EINVAL);
  refused(rdma_create_id(channel.channel, &id, nullptr, static_cast<rdma_port_space>(5)), EINVAL);
  rdma_event_channel foreign{-1};
  refused(rdma_create_id(&foreign, &id, nullptr, RDMA_PS_TCP), EINVAL);
  rdma_cm_event* event = nullptr;
  refused(rdma_get_cm_event(nullptr, &event), EINVAL);
  refused(rdma_get_cm_event(&foreign, &event), EINVAL);
  refused(rdma_get_cm_event(channel.channel, nullptr), EINVAL);
  refused(rdma_ack_cm_event(nullptr), EINVAL);
  rdma_destroy_event_channel(&foreign);
  sockaddr_in to = loopback(7);
  ibv_qp_init_attr attributes = qp_attributes();
  int mask = 0;
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  ASSERT_EQ(rdma_create_id(channel.channel, &id, nullptr, RDMA_PS_TCP), 0);
  rdma_cm_id stranger{};
  for (rdma_cm_id* wrong : {static_cast<rdma_cm_id*>(nullptr), &stranger}) {
    refused(rdma_destroy_id(wrong), EINVAL);
    refused(rdma_bind_addr(wrong, generic(to)), EINVAL);
    refused(rdma_listen(wrong, 1), EINVAL);
    refused(rdma_resolve_addr(wrong, nullptr, generic(to), 1), EINVAL);
    refused(rdma_resolve_route(wrong, 1), EINVAL);
    refused(rdma_connect(wrong, nullptr), EINVAL);
    refused(rdma_accept(wrong, nullptr), EINVAL);
    refused(rdma_reject(wrong, nullptr, 0), EINVAL);
    refused(rdma_establish(wrong), EINVAL);
    refused(rdma_disconnect(wrong), EINVAL);
    refused(rdma_notify(wrong, IBV_EVENT_COMM_EST), EINVAL);
    refused(rdma_create_qp(wrong, nullptr, &attributes), EINVAL);
    refused(rdma_init_qp_attr(wrong, &attr, &mask), EINVAL);
    refused(rdma_migrate_id(wrong, nullptr), EINVAL);
    refused(rdma_join_multicast(wrong, generic(to), nullptr), EINVAL);
    refused(rdma_leave_multicast(wrong, generic(to)), EINVAL);
    refused(rdma_get_request(wrong, &id), EINVAL);
    EXPECT_EQ(rdma_get_src_port(wrong), 0);
    rdma_destroy_qp(wrong);
    rdma_destroy_ep(wrong);
  }
  refused(rdma_bind_addr(id, nullptr), EINVAL);
  refused(rdma_resolve_addr(id, nullptr, nullptr, 1), EINVAL);
  refused(rdma_resolve_route(id, 1), EINVAL);
  refused(rdma_connect(id, nullptr), EINVAL);
  refused(rdma_accept(id, nullptr), EINVAL);
  refused(rdma_disconnect(id), EINVAL);
  refused(rdma_reject(id, nullptr, 3), EINVAL);
  refused(rdma_create_qp(id, nullptr, &attributes), EINVAL);
  refused(rdma_get_request(id, &id), EINVAL);
  refused(rdma_set_option(id, 77, 0, &mask, sizeof mask), ENOSYS);
  refused(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &mask, sizeof mask), EINVAL);
  sockaddr unknown{};
  unknown.sa_family = AF_UNIX;
  refused(rdma_bind_addr(id, &unknown), EAFNOSUPPORT);
  sockaddr_in elsewhere = loopback(7);
  elsewhere.sin_addr.s_addr = htonl(0x0808'0808);
  refused(rdma_bind_addr(id, generic(elsewhere)), ENODEV);
  EXPECT_EQ(rdma_destroy_id(id), 0);
  refused(rdma_destroy_id(id), EINVAL);  // freed
}

TEST(BadInput, PrivateDataBeyondItsLimits) {
  Ends ends;
  Ends::add_qp(ends.active);
  const std::string data(250, 'x');
  rdma_conn_param param = Ends::parameters(std::string_view(data).substr(0, 57));
  EXPECT_EQ(rdma_connect(ends.active, &param), -1);
  EXPECT_EQ(errno, EINVAL);
  param = Ends::parameters(std::string_view(data).substr(0, 56));
  EXPECT_EQ(rdma_connect(ends.active, &param), 0);
  Next request(ends.server.channel);
  ends.passive = request->id;
  Ends::add_qp(ends.passive);
  param = Ends::parameters(std::string_view(data).substr(0, 197));
  EXPECT_EQ(rdma_accept(ends.passive, &param), -1);
  EXPECT_EQ(rdma_reject(ends.passive, data.data(), 149), -1);
  EXPECT_EQ(rdma_reject(ends.passive, data.data(), 148), 0);
}

}  // namespace
}  // namespace farverbs::rdmacm::testing
