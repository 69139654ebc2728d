// Data moves through the public interface: every service and opcode, plain and extended.
#include "farverbs/abi/ibverbs/abi_testing.h"

namespace farverbs::abi {
namespace {

using namespace testing;

TEST(Traffic, ReliableSendWriteReadAtomic) {
  Node node;
  ASSERT_NE(node.context, nullptr);
  Pair pair(node);
  std::memset(node.memory.data(), 0x5A, 5'000);
  ASSERT_EQ(post_recv(pair.b, node.sge(10'000, 6'000), 77), 0);
  ibv_sge source = node.sge(0, 5'000);
  ibv_send_wr request = send_request(&source, 1, IBV_WR_SEND_WITH_IMM);
  request.imm_data = htonl(0xDEADBEEF);
  ASSERT_EQ(post(pair.a, request), 0);
  std::vector<ibv_wc> done = poll(node.cq, 2);
  const ibv_wc& received = done[0].opcode == IBV_WC_RECV ? done[0] : done[1];
  EXPECT_EQ(received.wr_id, 77u);
  EXPECT_EQ(received.status, IBV_WC_SUCCESS);
  EXPECT_EQ(received.byte_len, 5'000u);
  EXPECT_EQ(received.qp_num, pair.b->qp_num);
  EXPECT_EQ(received.wc_flags, static_cast<unsigned>(IBV_WC_WITH_IMM));
  EXPECT_EQ(ntohl(received.imm_data), 0xDEADBEEFu);
  EXPECT_EQ(std::memcmp(&node.memory[10'000], node.memory.data(), 5'000), 0);

  request = send_request(&source, 2, IBV_WR_RDMA_WRITE);
  request.wr.rdma.remote_addr = node.sge(20'000, 0).addr;
  request.wr.rdma.rkey = node.mr->rkey;
  ASSERT_EQ(post(pair.a, request), 0);
  EXPECT_EQ(poll(node.cq, 1)[0].opcode, IBV_WC_RDMA_WRITE);
  EXPECT_EQ(node.memory[24'999], 0x5A);

  ibv_sge target = node.sge(30'000, 5'000);
  request = send_request(&target, 3, IBV_WR_RDMA_READ);
  request.wr.rdma.remote_addr = node.sge(20'000, 0).addr;
  request.wr.rdma.rkey = node.mr->rkey;
  ASSERT_EQ(post(pair.a, request), 0);
  EXPECT_EQ(poll(node.cq, 1)[0].byte_len, 5'000u);
  EXPECT_EQ(node.memory[34'999], 0x5A);

  uint64_t counter = 40;
  std::memcpy(&node.memory[40'000], &counter, sizeof counter);
  ibv_sge old = node.sge(41'000, 8);
  request = send_request(&old, 4, IBV_WR_ATOMIC_FETCH_AND_ADD);
  request.wr.atomic.remote_addr = node.sge(40'000, 0).addr;
  request.wr.atomic.rkey = node.mr->rkey;
  request.wr.atomic.compare_add = 2;
  ASSERT_EQ(post(pair.a, request), 0);
  EXPECT_EQ(poll(node.cq, 1)[0].opcode, IBV_WC_FETCH_ADD);
  std::memcpy(&counter, &node.memory[40'000], sizeof counter);
  EXPECT_EQ(counter, 42u);
  std::memcpy(&counter, &node.memory[41'000], sizeof counter);
  EXPECT_EQ(counter, 40u);
}

TEST(Traffic, ChainsStopAtTheFirstBadRequest) {
  Node node;
  ASSERT_NE(node.context, nullptr);
  Pair pair(node);
  ibv_sge source = node.sge(0, 8);
  std::vector<ibv_send_wr> chain(40);
  for (size_t i = 0; i < chain.size(); ++i) {
    chain[i] = send_request(&source, i, IBV_WR_RDMA_WRITE);
    chain[i].wr.rdma.remote_addr = node.sge(100, 0).addr;
    chain[i].wr.rdma.rkey = node.mr->rkey;
    chain[i].next = i + 1 < chain.size() ? &chain[i + 1] : nullptr;
  }
  chain[37].num_sge = 100;
  ibv_send_wr* bad = nullptr;
  EXPECT_EQ(ibv_post_send(pair.a, chain.data(), &bad), EINVAL);
  EXPECT_EQ(bad, &chain[37]);
  for (const ibv_wc& wc : poll(node.cq, 37)) EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  chain[37].num_sge = 1;
  chain[3].opcode = static_cast<ibv_wr_opcode>(14);
  EXPECT_NE(ibv_post_send(pair.a, chain.data(), &bad), 0);
  EXPECT_EQ(bad, &chain[3]);
  poll(node.cq, 3);
}

// A program that asks for no inline data and sends some exists.
TEST(Traffic, InlineDataIsGrantedUnasked) {
  Node node;
  ASSERT_NE(node.context, nullptr);
  ibv_qp_init_attr init = node.qp_init();
  ibv_qp* qp = ibv_create_qp(node.pd, &init);
  ASSERT_NE(qp, nullptr);
  EXPECT_GE(init.cap.max_inline_data, 256u);
  EXPECT_EQ(ibv_destroy_qp(qp), 0);
  Pair pair(node);
  ASSERT_EQ(post_recv(pair.b, node.sge(1'000, 300)), 0);
  char text[256] = "not registered, and gone when the call has returned";
  ibv_sge source{reinterpret_cast<uint64_t>(text), sizeof text, 0};
  ibv_send_wr request = send_request(&source);
  request.send_flags |= IBV_SEND_INLINE;
  ASSERT_EQ(post(pair.a, request), 0);
  std::memset(text, 0, sizeof text);
  poll(node.cq, 2);
  EXPECT_STREQ(reinterpret_cast<char*>(&node.memory[1'000]),
               "not registered, and gone when the call has returned");
}

TEST(Traffic, Datagrams) {
  Node node;
  ASSERT_NE(node.context, nullptr);
  Pair pair(node, IBV_QPT_UD);
  ibv_ah_attr attr = ah_attr(node.gid());
  ibv_ah* ah = ibv_create_ah(node.pd, &attr);
  ASSERT_NE(ah, nullptr);
  ASSERT_EQ(post_recv(pair.b, node.sge(0, 1'000)), 0);
  std::memset(&node.memory[5'000], 3, 100);
  ibv_sge source = node.sge(5'000, 100);
  ibv_send_wr request = send_request(&source);
  request.wr.ud = {ah, pair.b->qp_num, kQkey};
  ASSERT_EQ(post(pair.a, request), 0);
  std::vector<ibv_wc> done = poll(node.cq, 2);
  ibv_wc& wc = done[0].opcode == IBV_WC_RECV ? done[0] : done[1];
  EXPECT_EQ(wc.byte_len, 140u);
  EXPECT_EQ(wc.src_qp, pair.a->qp_num);
  EXPECT_NE(wc.wc_flags & IBV_WC_GRH, 0u);
  // UCX takes from here that the header in front is one of IPv4.
  EXPECT_EQ(wc.sl, 0xA);
  EXPECT_EQ(node.memory[40], 3);

  ibv_ah_attr back{};
  auto* grh = reinterpret_cast<ibv_grh*>(node.memory.data());
  ASSERT_EQ(ibv_init_ah_from_wc(node.context, 1, &wc, grh, &back), 0);
  EXPECT_EQ(std::memcmp(back.grh.dgid.raw, node.gid().raw, 16), 0);
  EXPECT_EQ(back.grh.sgid_index, 0);
  EXPECT_EQ(back.is_global, 1);
  EXPECT_EQ(back.sl, 0);
  ibv_ah* answer = ibv_create_ah_from_wc(node.pd, &wc, grh, 1);
  ASSERT_NE(answer, nullptr);
  EXPECT_EQ(ibv_destroy_ah(answer), 0);
  EXPECT_EQ(ibv_destroy_ah(ah), 0);
  EXPECT_EQ(ibv_destroy_ah(ah), EINVAL);
}

TEST(Traffic, SharedReceiveQueueAndItsLimit) {
  Node node;
  ASSERT_NE(node.context, nullptr);
  ibv_srq_init_attr init{};
  init.attr = {16, 1, 0};
  ibv_srq* srq = ibv_create_srq(node.pd, &init);
  ASSERT_NE(srq, nullptr);
  {
    Pair pair(node, IBV_QPT_RC, srq);
    for (uint64_t i = 0; i < 4; ++i) {
      ibv_sge sge = node.sge(1'000 * i, 1'000);
      ibv_recv_wr request{i, nullptr, &sge, 1};
      ibv_recv_wr* bad = nullptr;
      ASSERT_EQ(ibv_post_srq_recv(srq, &request, &bad), 0);
    }
    ibv_srq_attr attr{0, 0, 4};
    ASSERT_EQ(ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT), 0);
    ASSERT_EQ(ibv_query_srq(srq, &attr), 0);
    EXPECT_EQ(attr.srq_limit, 4u);
    EXPECT_EQ(attr.max_wr, 16u);
    EXPECT_EQ(ibv_destroy_srq(srq), EBUSY);
    ibv_sge source = node.sge(50'000, 10);
    ASSERT_EQ(post(pair.a, send_request(&source)), 0);
    poll(node.cq, 2);
    ibv_async_event event{};
    ASSERT_EQ(ibv_get_async_event(node.context, &event), 0);
    EXPECT_EQ(event.event_type, IBV_EVENT_SRQ_LIMIT_REACHED);
    EXPECT_EQ(event.element.srq, srq);
    ibv_ack_async_event(&event);
  }
  EXPECT_EQ(ibv_destroy_srq(srq), 0);
}

TEST(Traffic, ExtendedCompletionsAndPosting) {
  Node node;
  ASSERT_NE(node.context, nullptr);
  ibv_cq_init_attr_ex cq_init{};
  cq_init.cqe = 64;
  cq_init.wc_flags = uint64_t{IBV_WC_STANDARD_FLAGS} | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP;
  ibv_cq_ex* cq = ibv_create_cq_ex(node.context, &cq_init);
  ASSERT_NE(cq, nullptr);
  cq_init.wc_flags = IBV_WC_EX_WITH_CVLAN;
  EXPECT_EQ(ibv_create_cq_ex(node.context, &cq_init), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);

  ibv_qp_init_attr_ex init{};
  init.send_cq = init.recv_cq = ibv_cq_ex_to_cq(cq);
  init.cap = {8, 8, 2, 1, 64};
  init.qp_type = IBV_QPT_RC;
  init.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  init.pd = node.pd;
  init.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_READ |
                        IBV_QP_EX_WITH_SEND_WITH_IMM;
  ibv_qp* a = ibv_create_qp_ex(node.context, &init);
  ibv_qp* b = ibv_create_qp_ex(node.context, &init);
  ASSERT_NE(a, nullptr);
  ASSERT_NE(b, nullptr);
  connect(a, node.gid(), b->qp_num);
  connect(b, node.gid(), a->qp_num);
  ibv_qp_ex* x = ibv_qp_to_qp_ex(a);
  ASSERT_NE(x, nullptr);
  ASSERT_EQ(post_recv(b, node.sge(0, 100), 9), 0);

  // Given up: nothing of it happens.
  ibv_wr_start(x);
  ibv_wr_send(x);
  ibv_wr_abort(x);
  // A setter without a request spoils the batch, and nothing of it is posted.
  ibv_wr_start(x);
  ibv_wr_set_sge(x, node.mr->lkey, node.sge(0, 0).addr, 4);
  EXPECT_EQ(ibv_wr_complete(x), EINVAL);

  std::memset(&node.memory[1'000], 8, 50);
  ibv_wr_start(x);
  x->wr_id = 1;
  x->wr_flags = 0;
  ibv_wr_rdma_write(x, node.mr->rkey, node.sge(2'000, 0).addr);
  const ibv_sge pieces[2] = {node.sge(1'000, 20), node.sge(1'020, 30)};
  ibv_wr_set_sge_list(x, 2, pieces);
  x->wr_id = 2;
  x->wr_flags = IBV_SEND_SIGNALED;
  ibv_wr_send_imm(x, htonl(5));
  char text[] = "inline";
  ibv_wr_set_inline_data(x, text, sizeof text);
  text[0] = '?';
  ASSERT_EQ(ibv_wr_complete(x), 0);

  ibv_poll_cq_attr attr{};
  const auto next = [&] {
    while (ibv_start_poll(cq, &attr) == ENOENT) std::this_thread::yield();
  };
  uint64_t last_time = 0;
  for (int i = 0; i < 2; ++i) {
    next();
    EXPECT_EQ(cq->status, IBV_WC_SUCCESS);
    if (cq->wr_id == 9) {
      EXPECT_EQ(ibv_wc_read_opcode(cq), IBV_WC_RECV);
      EXPECT_EQ(ibv_wc_read_byte_len(cq), sizeof text);
      EXPECT_EQ(ntohl(ibv_wc_read_imm_data(cq)), 5u);
      EXPECT_EQ(ibv_wc_read_qp_num(cq), b->qp_num);
      EXPECT_EQ(ibv_wc_read_wc_flags(cq), static_cast<unsigned>(IBV_WC_WITH_IMM));
    } else {
      EXPECT_EQ(cq->wr_id, 2u);
      EXPECT_EQ(ibv_wc_read_opcode(cq), IBV_WC_SEND);
    }
    EXPECT_GE(ibv_wc_read_completion_ts(cq), last_time);
    last_time = ibv_wc_read_completion_ts(cq);
    ibv_end_poll(cq);
  }
  EXPECT_GT(last_time, 0u);
  EXPECT_STREQ(reinterpret_cast<char*>(node.memory.data()), "inline");
  EXPECT_EQ(node.memory[2'049], 8);

  // More than the queue holds: all or nothing.
  ibv_wr_start(x);
  for (int i = 0; i < 9; ++i) {
    ibv_wr_rdma_write(x, node.mr->rkey, node.sge(2'000, 0).addr);
    ibv_wr_set_sge(x, node.mr->lkey, node.sge(0, 0).addr, 4);
  }
  EXPECT_EQ(ibv_wr_complete(x), ENOMEM);
  ibv_values_ex values{};
  values.comp_mask = IBV_VALUES_MASK_RAW_CLOCK;
  ASSERT_EQ(ibv_query_rt_values_ex(node.context, &values), 0);
  EXPECT_GE(static_cast<uint64_t>(values.raw_clock.tv_nsec), last_time);
  EXPECT_EQ(ibv_destroy_qp(a), 0);
  EXPECT_EQ(ibv_destroy_qp(b), 0);
  EXPECT_EQ(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)), 0);
}

}  // namespace
}  // namespace farverbs::abi
