// The rules around the objects: what is refused and how, what waits for acknowledgements, what a
// fork leaves, and what other libraries may find behind our structs.
#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "farverbs/abi/ibverbs/abi_testing.h"

namespace farverbs::abi {
namespace {

using namespace testing;

TEST(Devices, DescribeThemselves) {
  Node node;
  ASSERT_NE(node.context, nullptr);
  ibv_device* device = node.context->device;
  EXPECT_STREQ(device->name, "fv_lo");
  EXPECT_NE(ibv_get_device_guid(device), 0u);
  EXPECT_GT(ibv_get_device_index(device), 0);
  ibv_port_attr port{};
  ASSERT_EQ(ibv_query_port(node.context, 1, &port), 0);
  EXPECT_EQ(port.state, IBV_PORT_ACTIVE);
  EXPECT_EQ(port.link_layer, IBV_LINK_LAYER_ETHERNET);
  EXPECT_EQ(port.active_mtu, IBV_MTU_4096);
  EXPECT_EQ(ibv_query_port(node.context, 2, &port), EINVAL);
  ibv_gid_entry entry{};
  ASSERT_EQ(ibv_query_gid_ex(node.context, 1, 0, &entry, 0), 0);
  EXPECT_EQ(entry.gid_type, static_cast<uint32_t>(IBV_GID_TYPE_ROCE_V2));
  EXPECT_EQ(entry.gid.raw[10], 0xFF);  // ::ffff:127.0.0.1
  EXPECT_EQ(entry.gid.raw[12], 127);
  EXPECT_EQ(entry.ndev_ifindex, 1u);
  EXPECT_EQ(ibv_query_gid_ex(node.context, 1, 31, &entry, 0), ENODATA);
  EXPECT_EQ(ibv_query_gid_ex(node.context, 1, 32, &entry, 0), EINVAL);
  ibv_gid_entry table[32];
  EXPECT_GE(ibv_query_gid_table(node.context, table, 32, 0), 1);
  EXPECT_EQ(ibv_query_gid_table(node.context, table, 0, 0), -EINVAL);
  __be16 pkey = 0;
  ASSERT_EQ(ibv_query_pkey(node.context, 1, 0, &pkey), 0);
  EXPECT_EQ(pkey, 0xFFFF);
  EXPECT_EQ(ibv_get_pkey_index(node.context, 1, pkey), 0);
  ibv_device_attr_ex ex{};
  ASSERT_EQ(ibv_query_device_ex(node.context, nullptr, &ex), 0);
  EXPECT_EQ(ex.hca_core_clock, 1'000'000u);
  // libfabric's rxm asks for 65,536 and more.
  ibv_cq* cq = ibv_create_cq(node.context, ex.orig_attr.max_cqe, nullptr, nullptr, 0);
  ASSERT_NE(cq, nullptr);
  EXPECT_EQ(ibv_destroy_cq(cq), 0);
  EXPECT_EQ(ibv_create_cq(node.context, ex.orig_attr.max_cqe + 1, nullptr, nullptr, 0), nullptr);
}

// Programs compiled before port_cap_flags2 existed hand in a struct that ends with `flags`.
// Programs take the first one, to reach other machines.
TEST(Devices, LoopbackIsTheLast) {
  int count = 0;
  ibv_device** list = ibv_get_device_list(&count);
  ASSERT_GE(count, 1);
  EXPECT_STREQ(ibv_get_device_name(list[count - 1]), "fv_lo");
  ibv_free_device_list(list);
}

TEST(Devices, OldPortStructsAreNotOverrun) {
  Node node;
  ASSERT_NE(node.context, nullptr);
  unsigned char space[52];
  std::memset(space, 0xEE, sizeof space);
  // The name in parentheses is the exported function rather than the header's macro.
  ASSERT_EQ((ibv_query_port)(node.context, 1, reinterpret_cast<_compat_ibv_port_attr*>(space)), 0);
  EXPECT_EQ(space[46], IBV_LINK_LAYER_ETHERNET);
  for (size_t i = 48; i < sizeof space; ++i) EXPECT_EQ(space[i], 0xEE);
}

// libmlx5 looks for its operations behind ibv_device, and takes zeros for another's device.
TEST(Devices, NothingLiesBehindADevice) {
  Node node;
  ASSERT_NE(node.context, nullptr);
  const auto* behind = reinterpret_cast<const unsigned char*>(node.context->device + 1);
  for (size_t i = 0; i < 256; ++i) EXPECT_EQ(behind[i], 0) << i;
}

TEST(Refusals, NullAndFreedAndForeign) {
  Node node;
  ASSERT_NE(node.context, nullptr);
  int foreign[256] = {};
  auto* stranger = reinterpret_cast<void*>(foreign);
  for (void* bad : {static_cast<void*>(nullptr), stranger}) {
    EXPECT_EQ(ibv_open_device(static_cast<ibv_device*>(bad)), nullptr);
    EXPECT_EQ(errno, EINVAL);
    EXPECT_EQ(ibv_alloc_pd(static_cast<ibv_context*>(bad)), nullptr);
    EXPECT_EQ(ibv_dealloc_pd(static_cast<ibv_pd*>(bad)), EINVAL);
    EXPECT_EQ(ibv_dereg_mr(static_cast<ibv_mr*>(bad)), EINVAL);
    EXPECT_EQ(ibv_destroy_cq(static_cast<ibv_cq*>(bad)), EINVAL);
    EXPECT_EQ(ibv_destroy_qp(static_cast<ibv_qp*>(bad)), EINVAL);
    EXPECT_EQ(ibv_destroy_srq(static_cast<ibv_srq*>(bad)), EINVAL);
    EXPECT_EQ(ibv_destroy_ah(static_cast<ibv_ah*>(bad)), EINVAL);
    EXPECT_EQ(ibv_destroy_comp_channel(static_cast<ibv_comp_channel*>(bad)), EINVAL);
    EXPECT_EQ(ibv_close_device(static_cast<ibv_context*>(bad)), EINVAL);
    EXPECT_EQ(ibv_resize_cq(static_cast<ibv_cq*>(bad), 10), EINVAL);
    ibv_device_attr attr{};
    EXPECT_EQ(ibv_query_device(static_cast<ibv_context*>(bad), &attr), EINVAL);
    ibv_qp_attr qp_attr{};
    ibv_qp_init_attr init{};
    EXPECT_EQ(ibv_modify_qp(static_cast<ibv_qp*>(bad), &qp_attr, IBV_QP_STATE), EINVAL);
    EXPECT_EQ(ibv_query_qp(static_cast<ibv_qp*>(bad), &qp_attr, 0, &init), EINVAL);
    EXPECT_EQ(ibv_create_qp(static_cast<ibv_pd*>(bad), &init), nullptr);
    EXPECT_EQ(ibv_create_cq(static_cast<ibv_context*>(bad), 1, nullptr, nullptr, 0), nullptr);
    EXPECT_EQ(ibv_reg_mr_iova2(static_cast<ibv_pd*>(bad), foreign, 8, 0, 0), nullptr);
    EXPECT_EQ(ibv_get_async_event(static_cast<ibv_context*>(bad), nullptr), -1);
    EXPECT_EQ(ibv_get_cq_event(static_cast<ibv_comp_channel*>(bad), nullptr, nullptr), -1);
    ibv_ack_cq_events(static_cast<ibv_cq*>(bad), 1);
  }
  EXPECT_EQ(ibv_create_qp(node.pd, nullptr), nullptr);
  ibv_pd* pd = ibv_alloc_pd(node.context);
  ASSERT_EQ(ibv_dealloc_pd(pd), 0);
  EXPECT_EQ(ibv_dealloc_pd(pd), EINVAL);
  // A pointer of another kind.
  EXPECT_EQ(ibv_destroy_cq(reinterpret_cast<ibv_cq*>(node.pd)), EINVAL);
}

TEST(Refusals, OutOfRange) {
  Node node;
  ASSERT_NE(node.context, nullptr);
  EXPECT_EQ(ibv_create_cq(node.context, 0, nullptr, nullptr, 0), nullptr);
  EXPECT_EQ(ibv_create_cq(node.context, -1, nullptr, nullptr, 0), nullptr);
  EXPECT_EQ(ibv_create_cq(node.context, 1, nullptr, nullptr, 1), nullptr);
  EXPECT_EQ(ibv_create_cq(node.context, 1, nullptr, nullptr, -1), nullptr);
  unsigned char byte = 0;
  EXPECT_EQ(ibv_reg_mr_iova2(node.pd, &byte, 1, 0, IBV_ACCESS_REMOTE_WRITE), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(ibv_reg_mr_iova2(node.pd, &byte, SIZE_MAX, 0, 0), nullptr);
  EXPECT_EQ(ibv_reg_mr_iova2(node.pd, nullptr, 1, 0, 0), nullptr);
  EXPECT_EQ(ibv_reg_mr_iova2(node.pd, &byte, 1, 0, 1 << 15), nullptr);
  EXPECT_EQ(ibv_reg_dmabuf_mr(node.pd, 0, 1, 0, 0, 0), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  for (int field = 0; field < 5; ++field) {
    ibv_qp_init_attr init = node.qp_init();
    (&init.cap.max_send_wr)[field] = 1'000'000;
    EXPECT_EQ(ibv_create_qp(node.pd, &init), nullptr) << field;
    EXPECT_EQ(errno, EINVAL);
  }
  ibv_qp_init_attr init = node.qp_init(IBV_QPT_RAW_PACKET);
  EXPECT_EQ(ibv_create_qp(node.pd, &init), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);
  ibv_gid other_version{};
  other_version.raw[0] = 0x20;
  other_version.raw[15] = 7;
  ibv_ah_attr elsewhere = ah_attr(other_version);
  EXPECT_EQ(ibv_create_ah(node.pd, &elsewhere), nullptr);
  EXPECT_EQ(errno, EINVAL);
  ibv_ah_attr local = ah_attr(node.gid());
  local.is_global = 0;
  EXPECT_EQ(ibv_create_ah(node.pd, &local), nullptr);
}

TEST(Refusals, PostingBeforeItsState) {
  Node node;
  ASSERT_NE(node.context, nullptr);
  ibv_qp_init_attr init = node.qp_init();
  ibv_qp* qp = ibv_create_qp(node.pd, &init);
  ASSERT_NE(qp, nullptr);
  EXPECT_NE(post_recv(qp, node.sge(0, 8)), 0);
  to_init(qp);
  EXPECT_EQ(qp->state, IBV_QPS_INIT);
  ibv_sge sge = node.sge(0, 8);
  EXPECT_NE(post(qp, send_request(&sge)), 0);
  EXPECT_EQ(post_recv(qp, sge), 0);
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTS;
  EXPECT_EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE), EINVAL);
  EXPECT_EQ(qp->state, IBV_QPS_INIT);
  EXPECT_EQ(ibv_destroy_qp(qp), 0);
}

TEST(Objects, InUseAreNotDestroyed) {
  Node node;
  ASSERT_NE(node.context, nullptr);
  EXPECT_EQ(ibv_dealloc_pd(node.pd), EBUSY);
  ibv_qp_init_attr init = node.qp_init();
  ibv_qp* qp = ibv_create_qp(node.pd, &init);
  ASSERT_NE(qp, nullptr);
  EXPECT_EQ(ibv_destroy_cq(node.cq), EBUSY);
  EXPECT_EQ(ibv_destroy_qp(qp), 0);
}

TEST(Objects, LiveOnWhenTheirDeviceIsClosed) {
  ibv_context* context = open_loopback();
  ASSERT_NE(context, nullptr);
  ibv_pd* pd = ibv_alloc_pd(context);
  EXPECT_EQ(ibv_close_device(context), 0);
  EXPECT_EQ(ibv_close_device(context), EINVAL);
  EXPECT_EQ(ibv_dealloc_pd(pd), 0);
}

TEST(Objects, ResetForgetsCompletions) {
  Node node;
  ASSERT_NE(node.context, nullptr);
  Pair pair(node);
  ASSERT_EQ(post_recv(pair.a, node.sge(0, 8)), 0);
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_ERR;
  ASSERT_EQ(ibv_modify_qp(pair.a, &attr, IBV_QP_STATE), 0);
  attr.qp_state = IBV_QPS_RESET;
  ASSERT_EQ(ibv_modify_qp(pair.a, &attr, IBV_QP_STATE), 0);
  ibv_wc wc{};
  EXPECT_EQ(ibv_poll_cq(node.cq, 1, &wc), 0);
}

TEST(Events, ChannelIsADescriptorLikeAnyOther) {
  Node node(ibv_create_comp_channel);
  ASSERT_NE(node.channel, nullptr);
  Pair pair(node);
  ASSERT_EQ(fcntl(node.channel->fd, F_SETFL, O_NONBLOCK), 0);
  ibv_cq* cq = nullptr;
  void* cq_context = nullptr;
  EXPECT_EQ(ibv_get_cq_event(node.channel, &cq, &cq_context), -1);
  EXPECT_EQ(errno, EAGAIN);
  ASSERT_EQ(ibv_req_notify_cq(node.cq, 0), 0);
  ASSERT_EQ(post_recv(pair.b, node.sge(0, 100)), 0);
  ibv_sge source = node.sge(500, 10);
  ASSERT_EQ(post(pair.a, send_request(&source)), 0);
  // Nobody polls: a thread in the background brings it.
  pollfd waiting{node.channel->fd, POLLIN, 0};
  ASSERT_EQ(::poll(&waiting, 1, 60'000), 1);
  ASSERT_EQ(ibv_get_cq_event(node.channel, &cq, &cq_context), 0);
  EXPECT_EQ(cq, node.cq);
  EXPECT_EQ(cq_context, &node);
  EXPECT_EQ(ibv_destroy_comp_channel(node.channel), EBUSY);
  ibv_ack_cq_events(cq, 1);
  poll(node.cq, 2);
}

TEST(Events, DestroyingAQueueWaitsForAcknowledgements) {
  Node node(ibv_create_comp_channel);
  ASSERT_NE(node.channel, nullptr);
  ibv_cq* cq = ibv_create_cq(node.context, 16, nullptr, node.channel, 0);
  ibv_qp_init_attr init = node.qp_init();
  init.send_cq = init.recv_cq = cq;
  ibv_qp* qp = ibv_create_qp(node.pd, &init);
  ASSERT_NE(qp, nullptr);
  to_init(qp);
  ASSERT_EQ(post_recv(qp, node.sge(0, 8)), 0);
  ASSERT_EQ(ibv_req_notify_cq(cq, 0), 0);
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_ERR;
  ASSERT_EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE), 0);
  ibv_cq* found = nullptr;
  void* cq_context = nullptr;
  ASSERT_EQ(ibv_get_cq_event(node.channel, &found, &cq_context), 0);
  ASSERT_EQ(found, cq);
  ASSERT_EQ(ibv_destroy_qp(qp), 0);
  std::atomic<bool> destroyed{false};
  std::thread destroyer([&] {
    EXPECT_EQ(ibv_destroy_cq(cq), 0);
    destroyed = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(destroyed);
  ibv_ack_cq_events(cq, 1);
  destroyer.join();
}

TEST(Events, WaitingThreadsCanBeCancelled) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "AddressSanitizer takes the stack of a cancelled thread for poisoned";
#endif
  Node node(ibv_create_comp_channel);
  ASSERT_NE(node.channel, nullptr);
  std::thread waiter([&] {
    ibv_cq* cq = nullptr;
    void* cq_context = nullptr;
    ibv_get_cq_event(node.channel, &cq, &cq_context);
    ADD_FAILURE() << "there was an event";
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  pthread_cancel(waiter.native_handle());
  waiter.join();
  // The soft NIC works on.
  Pair pair(node);
  ASSERT_EQ(post_recv(pair.b, node.sge(0, 100)), 0);
  ibv_sge source = node.sge(500, 10);
  ASSERT_EQ(post(pair.a, send_request(&source)), 0);
  poll(node.cq, 2);
}

TEST(Events, AsynchronousOnesNameTheirObject) {
  Node node;
  ASSERT_NE(node.context, nullptr);
  ASSERT_EQ(fcntl(node.context->async_fd, F_SETFL, O_NONBLOCK), 0);
  ibv_async_event event{};
  EXPECT_EQ(ibv_get_async_event(node.context, &event), -1);
  EXPECT_EQ(errno, EAGAIN);
  ibv_cq* small = ibv_create_cq(node.context, 1, nullptr, nullptr, 0);
  ibv_qp_init_attr init = node.qp_init();
  init.recv_cq = small;
  ibv_qp* qp = ibv_create_qp(node.pd, &init);
  ASSERT_NE(qp, nullptr);
  to_init(qp);
  for (int i = 0; i < small->cqe + 1; ++i) ASSERT_EQ(post_recv(qp, node.sge(0, 8)), 0);
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_ERR;
  ASSERT_EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE), 0);
  pollfd waiting{node.context->async_fd, POLLIN, 0};
  ASSERT_EQ(::poll(&waiting, 1, 60'000), 1);
  ASSERT_EQ(ibv_get_async_event(node.context, &event), 0);
  EXPECT_EQ(event.event_type, IBV_EVENT_CQ_ERR);
  EXPECT_EQ(event.element.cq, small);
  ibv_ack_async_event(&event);
  EXPECT_EQ(ibv_destroy_qp(qp), 0);
  EXPECT_EQ(ibv_destroy_cq(small), 0);
}

TEST(Forks, AChildBeginsAnew) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP()
      << "AddressSanitizer's allocator may be locked by another thread at a fork, and stays "
         "locked in the child; the C library's is not";
#endif
  Node node;
  ASSERT_NE(node.context, nullptr);
  Pair pair(node);
  EXPECT_EQ(ibv_fork_init(), 0);
  EXPECT_EQ(ibv_is_fork_initialized(), IBV_FORK_UNNEEDED);
  const pid_t child = fork();
  if (child == 0) {
    // No gtest here: the exit code tells which step failed.
    ibv_wc wc{};
    if (ibv_poll_cq(node.cq, 1, &wc) != -1) _exit(1);
    ibv_sge sge{reinterpret_cast<uint64_t>(node.memory.data()), 8, node.mr->lkey};
    if (post(pair.a, send_request(&sge)) != EINVAL) _exit(2);
    if (ibv_destroy_qp(pair.a) != EINVAL) _exit(3);
    ibv_context* own = open_loopback();
    if (own == nullptr) _exit(4);
    ibv_pd* pd = ibv_alloc_pd(own);
    ibv_cq* cq = ibv_create_cq(own, 16, nullptr, nullptr, 0);
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = cq;
    init.qp_type = IBV_QPT_RC;
    init.cap = {4, 4, 1, 1, 0};
    ibv_qp* qp = ibv_create_qp(pd, &init);
    if (qp == nullptr) _exit(5);
    if (ibv_destroy_qp(qp) != 0 || ibv_destroy_cq(cq) != 0) _exit(6);
    if (ibv_dealloc_pd(pd) != 0 || ibv_close_device(own) != 0) _exit(7);
    _exit(0);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  // The parent goes on.
  ASSERT_EQ(post_recv(pair.b, node.sge(0, 100)), 0);
  ibv_sge source = node.sge(500, 10);
  ASSERT_EQ(post(pair.a, send_request(&source)), 0);
  poll(node.cq, 2);
}

TEST(Names, OfEverything) {
  EXPECT_STREQ(ibv_wc_status_str(IBV_WC_RETRY_EXC_ERR), "transport retry counter exceeded");
  EXPECT_STREQ(ibv_wc_status_str(static_cast<ibv_wc_status>(31)), "unknown");
  EXPECT_STREQ(ibv_port_state_str(IBV_PORT_ACTIVE), "ACTIVE");
  EXPECT_EQ(ibv_rate_to_mult(IBV_RATE_40_GBPS), 16);
  EXPECT_EQ(ibv_rate_to_mbps(IBV_RATE_100_GBPS), 103125);
  EXPECT_EQ(mult_to_ibv_rate(16), IBV_RATE_40_GBPS);
  EXPECT_EQ(mbps_to_ibv_rate(1), IBV_RATE_MAX);
  EXPECT_NE(ibv_event_type_str(IBV_EVENT_GID_CHANGE), nullptr);
  EXPECT_NE(ibv_node_type_str(IBV_NODE_CA), nullptr);
}

}  // namespace
}  // namespace farverbs::abi
