// Memory in all its forms: windows, re-registration, device memory, on-demand paging, domains; and
// multicast.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string>

#include "farverbs/abi/ibverbs/abi_testing.h"

namespace farverbs::abi {
namespace {

using namespace testing;

ibv_wc_status write_to(Pair& pair, uint32_t rkey, uint64_t address, size_t from = 0) {
  ibv_sge source = pair.node.sge(from, 8);
  ibv_send_wr request = send_request(&source, 1, IBV_WR_RDMA_WRITE);
  request.wr.rdma.remote_addr = address;
  request.wr.rdma.rkey = rkey;
  EXPECT_EQ(post(pair.a, request), 0);
  return poll(pair.node.cq, 1)[0].status;
}

TEST(Windows, TypeOneTellsItsKeyWhenItIsBound) {
  Node node;
  ASSERT_NE(node.context, nullptr);
  Pair pair(node);
  ibv_mw* mw = ibv_alloc_mw(node.pd, IBV_MW_TYPE_1);
  ASSERT_NE(mw, nullptr);
  const uint64_t target = node.sge(10'000, 0).addr;
  uint32_t last = mw->rkey;
  for (int round = 0; round < 2; ++round) {
    ibv_mw_bind bind{};
    bind.send_flags = IBV_SEND_SIGNALED;
    bind.bind_info = {node.mr, target, 64, IBV_ACCESS_REMOTE_WRITE};
    ASSERT_EQ(ibv_bind_mw(pair.b, mw, &bind), 0);
    EXPECT_NE(mw->rkey, last);
    last = mw->rkey;
    const ibv_wc bound = poll(node.cq, 1)[0];
    EXPECT_EQ(bound.status, IBV_WC_SUCCESS);
    EXPECT_EQ(bound.opcode, IBV_WC_BIND_MW);
    EXPECT_EQ(write_to(pair, mw->rkey, target), IBV_WC_SUCCESS);
  }
  EXPECT_EQ(ibv_dereg_mr(node.mr), EBUSY);
  EXPECT_EQ(write_to(pair, mw->rkey, target + 60), IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(ibv_dealloc_mw(mw), 0);
}

TEST(Windows, TypeTwoHasTheKeyThatWasAskedFor) {
  Node node;
  ASSERT_NE(node.context, nullptr);
  Pair pair(node);
  ibv_mw* mw = ibv_alloc_mw(node.pd, IBV_MW_TYPE_2);
  ASSERT_NE(mw, nullptr);
  const uint64_t target = node.sge(10'000, 0).addr;
  ibv_mw_bind plain{};
  plain.bind_info = {node.mr, target, 64, IBV_ACCESS_REMOTE_WRITE};
  EXPECT_EQ(ibv_bind_mw(pair.b, mw, &plain), EINVAL);
  ibv_send_wr request = send_request(nullptr, 2, IBV_WR_BIND_MW);
  request.num_sge = 0;
  request.bind_mw = {mw, ibv_inc_rkey(mw->rkey), plain.bind_info};
  ASSERT_EQ(post(pair.b, request), 0);
  EXPECT_EQ(poll(node.cq, 1)[0].status, IBV_WC_SUCCESS);
  EXPECT_EQ(write_to(pair, request.bind_mw.rkey, target), IBV_WC_SUCCESS);
  ibv_send_wr invalidate = send_request(nullptr, 3, IBV_WR_LOCAL_INV);
  invalidate.num_sge = 0;
  invalidate.invalidate_rkey = request.bind_mw.rkey;
  ASSERT_EQ(post(pair.b, invalidate), 0);
  EXPECT_EQ(poll(node.cq, 1)[0].status, IBV_WC_SUCCESS);
  EXPECT_EQ(write_to(pair, request.bind_mw.rkey, target), IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(ibv_dealloc_mw(mw), 0);
}

TEST(Regions, AreRegisteredAnew) {
  Node node;
  ASSERT_NE(node.context, nullptr);
  Pair pair(node);
  std::vector<unsigned char> other(4096);
  const uint64_t target = reinterpret_cast<uint64_t>(other.data());
  ibv_mr* mr = ibv_reg_mr_iova2(node.pd, node.memory.data(), 64,
                                reinterpret_cast<uint64_t>(node.memory.data()), 0);
  ASSERT_NE(mr, nullptr);
  EXPECT_EQ(ibv_rereg_mr(mr, 0, nullptr, nullptr, 0, 0), IBV_REREG_MR_ERR_INPUT);
  ASSERT_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_ACCESS, nullptr,
                         other.data(), other.size(), kAccess),
            0);
  EXPECT_EQ(mr->addr, other.data());
  std::memset(node.memory.data(), 9, 8);
  EXPECT_EQ(write_to(pair, mr->rkey, target), IBV_WC_SUCCESS);
  EXPECT_EQ(other[7], 9);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

// Peers that know the region's key go on using it.
TEST(Regions, ChangeTheirRightsUnderTheSameKey) {
  Node node;
  ASSERT_NE(node.context, nullptr);
  Pair pair(node);
  std::vector<unsigned char> other(4096);
  ibv_mr* mr = ibv_reg_mr_iova2(node.pd, other.data(), other.size(),
                                reinterpret_cast<uint64_t>(other.data()), IBV_ACCESS_LOCAL_WRITE);
  ASSERT_NE(mr, nullptr);
  const uint32_t key = mr->rkey;
  ASSERT_EQ(ibv_rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, kAccess), 0);
  EXPECT_EQ(mr->rkey, key);
  std::memset(node.memory.data(), 5, 8);
  EXPECT_EQ(write_to(pair, key, reinterpret_cast<uint64_t>(other.data())), IBV_WC_SUCCESS);
  EXPECT_EQ(other[7], 5);
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
}

// Implicit on-demand paging: one region for all memory. What is not mapped fails the request.
TEST(Regions, ImplicitOnesSeeAllMemoryAndNoMore) {
  Node node;
  ASSERT_NE(node.context, nullptr);
  Pair pair(node);
  ibv_mr* all = ibv_reg_mr_iova2(node.pd, nullptr, SIZE_MAX, 0, kAccess | IBV_ACCESS_ON_DEMAND);
  ASSERT_NE(all, nullptr);
  std::vector<unsigned char> later(64);
  std::memset(node.memory.data(), 4, 8);
  EXPECT_EQ(write_to(pair, all->rkey, reinterpret_cast<uint64_t>(later.data())), IBV_WC_SUCCESS);
  EXPECT_EQ(later[7], 4);
  void* gone = ::mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_EQ(::munmap(gone, 4096), 0);
  EXPECT_NE(write_to(pair, all->rkey, reinterpret_cast<uint64_t>(gone)), IBV_WC_SUCCESS);
  EXPECT_EQ(ibv_dereg_mr(all), 0);
}

TEST(DeviceMemory, HasOffsetsAndWords) {
  Node node;
  ASSERT_NE(node.context, nullptr);
  Pair pair(node);
  ibv_alloc_dm_attr attr{};
  attr.length = 4096;
  ibv_dm* dm = ibv_alloc_dm(node.context, &attr);
  ASSERT_NE(dm, nullptr);
  char text[8] = "in dm";
  EXPECT_EQ(ibv_memcpy_to_dm(dm, 1, text, 8), EINVAL);
  EXPECT_EQ(ibv_memcpy_to_dm(dm, 0, text, 7), EINVAL);
  EXPECT_EQ(ibv_memcpy_to_dm(dm, 4092, text, 8), EINVAL);
  ASSERT_EQ(ibv_memcpy_to_dm(dm, 16, text, 8), 0);
  EXPECT_EQ(ibv_reg_dm_mr(node.pd, dm, 0, 4096, kAccess), nullptr);
  EXPECT_EQ(ibv_reg_dm_mr(node.pd, dm, 8, 4096, kAccess | IBV_ACCESS_ZERO_BASED), nullptr);
  ibv_mr* mr = ibv_reg_dm_mr(node.pd, dm, 0, 4096, kAccess | IBV_ACCESS_ZERO_BASED);
  ASSERT_NE(mr, nullptr);
  EXPECT_EQ(ibv_free_dm(dm), EBUSY);
  ibv_sge target = node.sge(0, 8);
  ibv_send_wr request = send_request(&target, 1, IBV_WR_RDMA_READ);
  request.wr.rdma.remote_addr = 16;
  request.wr.rdma.rkey = mr->rkey;
  ASSERT_EQ(post(pair.a, request), 0);
  EXPECT_EQ(poll(node.cq, 1)[0].status, IBV_WC_SUCCESS);
  EXPECT_STREQ(reinterpret_cast<char*>(node.memory.data()), "in dm");
  EXPECT_EQ(ibv_dereg_mr(mr), 0);
  EXPECT_EQ(ibv_free_dm(dm), 0);
  attr.length = size_t{1} << 40;
  EXPECT_EQ(ibv_alloc_dm(node.context, &attr), nullptr);
  EXPECT_EQ(errno, ENOMEM);
}

TEST(Domains, AParentDomainIsItsParent) {
  Node node;
  ASSERT_NE(node.context, nullptr);
  ibv_td_init_attr td_init{};
  ibv_td* td = ibv_alloc_td(node.context, &td_init);
  ASSERT_NE(td, nullptr);
  ibv_parent_domain_init_attr init{};
  init.pd = node.pd;
  init.td = td;
  ibv_pd* domain = ibv_alloc_parent_domain(node.context, &init);
  ASSERT_NE(domain, nullptr);
  EXPECT_EQ(ibv_dealloc_td(td), EBUSY);
  ibv_qp_init_attr qp_init = node.qp_init();
  ibv_qp* qp = ibv_create_qp(domain, &qp_init);
  ASSERT_NE(qp, nullptr);
  EXPECT_EQ(ibv_dealloc_pd(domain), EBUSY);
  EXPECT_EQ(ibv_destroy_qp(qp), 0);
  EXPECT_EQ(ibv_dealloc_pd(domain), 0);
  EXPECT_EQ(ibv_dealloc_td(td), 0);
}

TEST(Multicast, ReachesEveryMember) {
  Node node;
  ASSERT_NE(node.context, nullptr);
  Pair pair(node, IBV_QPT_UD);
  ibv_gid group{};
  const unsigned char raw[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 239, 7, 7, 7};
  std::memcpy(group.raw, raw, sizeof raw);
  ibv_gid unicast = node.gid();
  EXPECT_EQ(ibv_attach_mcast(pair.b, &unicast, 0), EINVAL);
  EXPECT_EQ(ibv_detach_mcast(pair.b, &group, 0), EINVAL);
  ASSERT_EQ(ibv_attach_mcast(pair.b, &group, 0), 0);
  ASSERT_EQ(post_recv(pair.b, node.sge(0, 1'000), 5), 0);
  ibv_ah_attr attr = ah_attr(group);
  ibv_ah* ah = ibv_create_ah(node.pd, &attr);
  ASSERT_NE(ah, nullptr);
  ibv_sge source = node.sge(5'000, 100);
  ibv_send_wr request = send_request(&source, 6);
  request.wr.ud = {ah, 0xFF'FFFF, kQkey};
  ASSERT_EQ(post(pair.a, request), 0);
  const std::vector<ibv_wc> done = poll(node.cq, 2);
  EXPECT_EQ(done[0].wr_id + done[1].wr_id, 11u);
  EXPECT_EQ(ibv_destroy_ah(ah), 0);
  EXPECT_EQ(ibv_detach_mcast(pair.b, &group, 0), 0);
}

// ::1 is the loopback's other address.
TEST(Gids, TheOtherAddressesWorkToo) {
  Node node;
  ASSERT_NE(node.context, nullptr);
  ibv_gid_entry table[32];
  const ssize_t count = ibv_query_gid_table(node.context, table, 32, 0);
  if (count < 2) GTEST_SKIP() << "this machine's loopback has no IPv6 address";
  ibv_qp_init_attr init = node.qp_init();
  ibv_qp* a = ibv_create_qp(node.pd, &init);
  ibv_qp* b = ibv_create_qp(node.pd, &init);
  const auto index = static_cast<int>(table[1].gid_index);
  connect(a, table[1].gid, b->qp_num, index);
  connect(b, table[1].gid, a->qp_num, index);
  ASSERT_EQ(post_recv(b, node.sge(0, 100)), 0);
  ibv_sge source = node.sge(500, 10);
  ASSERT_EQ(post(a, send_request(&source)), 0);
  for (const ibv_wc& wc : poll(node.cq, 2)) EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
  ibv_ah_attr bad = ah_attr(table[0].gid, 31);
  EXPECT_EQ(ibv_create_ah(node.pd, &bad), nullptr);
  EXPECT_EQ(ibv_destroy_qp(a), 0);
  EXPECT_EQ(ibv_destroy_qp(b), 0);
}

constexpr char kInOwnNetwork[] = "FARVERBS_TEST_OWN_NETWORK";

// What the next test does in a network of its own with 127.0.0.2.
void lose_an_address() {
  Node node;
  ASSERT_NE(node.context, nullptr);
  ibv_gid_entry table[32];
  const ssize_t count = ibv_query_gid_table(node.context, table, 32, 0);
  const auto* entry = std::find_if(table, table + std::max(count, ssize_t{0}),
                                   [](const ibv_gid_entry& e) { return e.gid.raw[15] == 2; });
  ASSERT_NE(entry, table + count);
  ibv_ah_attr attr = ah_attr(entry->gid, static_cast<int>(entry->gid_index));
  ibv_ah* ah = ibv_create_ah(node.pd, &attr);
  ASSERT_NE(ah, nullptr);
  EXPECT_EQ(ibv_destroy_ah(ah), 0);
  ASSERT_EQ(std::system("ip address del 127.0.0.2/32 dev lo"), 0);
  errno = 0;
  EXPECT_EQ(ibv_create_ah(node.pd, &attr), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

TEST(Gids, NoAddressHandleFromAnAddressThatHasGone) {
  if (std::getenv(kInOwnNetwork) != nullptr) return lose_an_address();
  if (std::system("unshare -Urn true 2>/dev/null") != 0) {
    GTEST_SKIP() << "NOT TESTED: needs user namespaces";
  }
  char self[4096] = {};
  ASSERT_GT(readlink("/proc/self/exe", self, sizeof self - 1), 0);
  const std::string command =
      "unshare -Urn sh -c 'ip link set lo up && ip address add 127.0.0.2/32 dev lo && "
      "exec env " +
      std::string(kInOwnNetwork) +
      "=1 \"$0\" --gtest_brief=1 "
      "--gtest_filter=Gids.NoAddressHandleFromAnAddressThatHasGone' '" +
      std::string(self) + "'";
  EXPECT_EQ(std::system(command.c_str()), 0);
}

}  // namespace
}  // namespace farverbs::abi
