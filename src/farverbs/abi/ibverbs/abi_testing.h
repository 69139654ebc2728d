// What tests of the drop-in library share: the loopback's device opened through the public
// interface (the tests link the shared library as any program would), and two connected QPs.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <infiniband/verbs.h>

#include <chrono>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

namespace farverbs::abi::testing {

inline constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                               IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC |
                               IBV_ACCESS_MW_BIND;
inline constexpr uint32_t kQkey = 0x1111'1111;

inline ibv_context* open_loopback() {
  int count = 0;
  ibv_device** list = ibv_get_device_list(&count);
  ibv_context* context = nullptr;
  for (int i = 0; i < count; ++i) {
    if (std::string(ibv_get_device_name(list[i])) == "fv_lo") context = ibv_open_device(list[i]);
  }
  ibv_free_device_list(list);
  return context;
}

// A device with a PD, a CQ and some registered memory.
struct Node {
  explicit Node(ibv_comp_channel* (*make_channel)(ibv_context*) = nullptr) {
    context = open_loopback();
    if (context == nullptr) return;
    pd = ibv_alloc_pd(context);
    if (make_channel != nullptr) channel = make_channel(context);
    cq = ibv_create_cq(context, 256, this, channel, 0);
    memory.resize(1 << 20);
    mr = ibv_reg_mr_iova2(pd, memory.data(), memory.size(),
                          reinterpret_cast<uint64_t>(memory.data()), kAccess);
  }
  ~Node() {
    if (context == nullptr) return;
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
    EXPECT_EQ(ibv_destroy_cq(cq), 0);
    if (channel != nullptr) {
      EXPECT_EQ(ibv_destroy_comp_channel(channel), 0);
    }
    EXPECT_EQ(ibv_dealloc_pd(pd), 0);
    EXPECT_EQ(ibv_close_device(context), 0);
  }
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  ibv_qp_init_attr qp_init(ibv_qp_type type = IBV_QPT_RC) const {
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = cq;
    init.qp_type = type;
    init.cap = {64, 64, 4, 4, 0};
    return init;
  }
  ibv_gid gid() const {
    ibv_gid gid{};
    EXPECT_EQ(ibv_query_gid(context, 1, 0, &gid), 0);
    return gid;
  }
  ibv_sge sge(size_t offset, uint32_t length) const {
    return {reinterpret_cast<uint64_t>(memory.data() + offset), length, mr->lkey};
  }

  ibv_context* context = nullptr;
  ibv_pd* pd = nullptr;
  ibv_comp_channel* channel = nullptr;
  ibv_cq* cq = nullptr;
  ibv_mr* mr = nullptr;
  std::vector<unsigned char> memory;
};

inline void to_init(ibv_qp* qp) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_INIT;
  attr.port_num = 1;
  attr.qp_access_flags = kAccess & ~IBV_ACCESS_MW_BIND;
  attr.qkey = kQkey;
  const int last = qp->qp_type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS;
  ASSERT_EQ(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | last), 0);
}

inline ibv_ah_attr ah_attr(const ibv_gid& gid, int index = 0) {
  ibv_ah_attr attr{};
  attr.is_global = 1;
  attr.grh.dgid = gid;
  attr.grh.hop_limit = 1;
  attr.grh.sgid_index = static_cast<uint8_t>(index);
  attr.port_num = 1;
  return attr;
}

inline void to_rtr(ibv_qp* qp, const ibv_gid& gid, uint32_t peer, int index = 0) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = IBV_MTU_1024;
  attr.dest_qp_num = peer;
  attr.rq_psn = 7;
  attr.max_dest_rd_atomic = 4;
  attr.min_rnr_timer = 1;
  attr.ah_attr = ah_attr(gid, index);
  int mask = IBV_QP_STATE;
  if (qp->qp_type != IBV_QPT_UD) {
    mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
  }
  if (qp->qp_type == IBV_QPT_RC) mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  ASSERT_EQ(ibv_modify_qp(qp, &attr, mask), 0);
}

inline void to_rts(ibv_qp* qp) {
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTS;
  attr.sq_psn = 7;
  attr.timeout = 14;
  attr.retry_cnt = 7;
  attr.rnr_retry = 7;
  attr.max_rd_atomic = 4;
  int mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
  if (qp->qp_type == IBV_QPT_RC) {
    mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
  }
  ASSERT_EQ(ibv_modify_qp(qp, &attr, mask), 0);
}

inline void connect(ibv_qp* qp, const ibv_gid& gid, uint32_t peer, int index = 0) {
  to_init(qp);
  to_rtr(qp, gid, peer, index);
  to_rts(qp);
}

// Polls until `count` completions are there; a minute is longer than any machine sleeps.
inline std::vector<ibv_wc> poll(ibv_cq* cq, size_t count) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  std::vector<ibv_wc> all;
  while (all.size() < count && std::chrono::steady_clock::now() < end) {
    ibv_wc wc{};
    const int found = ibv_poll_cq(cq, 1, &wc);
    if (found < 0) break;
    if (found == 1) all.push_back(wc);
  }
  EXPECT_EQ(all.size(), count);
  all.resize(count);
  return all;
}

inline int post_recv(ibv_qp* qp, ibv_sge sge, uint64_t id = 0) {
  ibv_recv_wr request{};
  request.wr_id = id;
  request.sg_list = &sge;
  request.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  return ibv_post_recv(qp, &request, &bad);
}

inline ibv_send_wr send_request(ibv_sge* sge, uint64_t id = 0, ibv_wr_opcode opcode = IBV_WR_SEND) {
  ibv_send_wr request{};
  request.wr_id = id;
  request.sg_list = sge;
  request.num_sge = 1;
  request.opcode = opcode;
  request.send_flags = IBV_SEND_SIGNALED;
  return request;
}

inline int post(ibv_qp* qp, ibv_send_wr request) {
  ibv_send_wr* bad = nullptr;
  return ibv_post_send(qp, &request, &bad);
}

// Two QPs of one node, connected to each other; both report to its CQ.
struct Pair {
  explicit Pair(Node& its_node, ibv_qp_type type = IBV_QPT_RC, ibv_srq* srq = nullptr)
      : node(its_node) {
    ibv_qp_init_attr init = node.qp_init(type);
    a = ibv_create_qp(node.pd, &init);
    init = node.qp_init(type);
    init.srq = srq;
    b = ibv_create_qp(node.pd, &init);
    connect(a, node.gid(), b->qp_num);
    connect(b, node.gid(), a->qp_num);
  }
  ~Pair() {
    if (a != nullptr) {
      EXPECT_EQ(ibv_destroy_qp(a), 0);
    }
    if (b != nullptr) {
      EXPECT_EQ(ibv_destroy_qp(b), 0);
    }
  }
  Pair(const Pair&) = delete;
  Pair& operator=(const Pair&) = delete;
  Node& node;
  ibv_qp* a = nullptr;
  ibv_qp* b = nullptr;
};

}  // namespace farverbs::abi::testing
