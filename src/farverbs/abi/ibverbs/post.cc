// Posting: ibv_post_send(3), ibv_post_recv(3), ibv_post_srq_recv(3). A request is translated on the
// stack and copied into the queue by the verbs room; nothing is allocated.
#include <arpa/inet.h>

#include "farverbs/abi/ibverbs/errors.h"
#include "farverbs/abi/ibverbs/qp.h"
#include "farverbs/abi/ibverbs/requests.h"

namespace farverbs::abi {
namespace {

std::span<const verbs::ScatterGatherElement> elements(const ibv_sge* list, int count) {
  return {reinterpret_cast<const verbs::ScatterGatherElement*>(list),
          static_cast<size_t>(count > 0 ? count : 0)};
}

// Requests given to the verbs room in one call: one start of the packet loop for all of them.
constexpr size_t kBatch = 16;

template <typename Request, typename Public, typename Translate, typename Post>
int post_list(const char* call, Public* request, Public** bad, Translate&& translate, Post&& post) {
  alignas(Request) std::byte storage[kBatch * sizeof(Request)];
  auto* batch = reinterpret_cast<Request*>(storage);
  Public* first = request;  // of the batch
  size_t count = 0;
  int code = 0;
  while (request != nullptr && code == 0) {
    code = translate(*request, *new (batch + count) Request);
    if (code == 0) {
      ++count;
      request = request->next;
      if (count < kBatch && request != nullptr) continue;
    }
    if (count == 0) break;
    size_t posted = 0;
    Result<void> result = post(std::span<const Request>(batch, count), &posted);
    if (!result.ok()) code = refuse(call, result.error());
    if (posted < count) {
      while (posted-- > 0) first = first->next;
      request = first;
    }
    first = request;
    count = 0;
  }
  if (code != 0 && bad != nullptr) *bad = request;
  return code;
}

int translate_receive(const ibv_recv_wr& from, verbs::ReceiveWorkRequest& to) {
  if (from.num_sge < 0) return EINVAL;
  to.wr_id = from.wr_id;
  to.sges = elements(from.sg_list, from.num_sge);
  return 0;
}

}  // namespace

int translate_send(ibv_qp_type type, const ibv_send_wr& from, verbs::SendWorkRequest& to) {
  if (from.num_sge < 0) return EINVAL;
  to.wr_id = from.wr_id;
  to.flags = from.send_flags & ~static_cast<unsigned>(IBV_SEND_IP_CSUM);
  to.sges = elements(from.sg_list, from.num_sge);
  switch (from.opcode) {
    case IBV_WR_RDMA_WRITE_WITH_IMM:
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_READ:
      to.opcode = from.opcode == IBV_WR_RDMA_WRITE  ? verbs::SendOpcode::kWrite
                  : from.opcode == IBV_WR_RDMA_READ ? verbs::SendOpcode::kRead
                                                    : verbs::SendOpcode::kWriteWithImmediate;
      to.remote_address = from.wr.rdma.remote_addr;
      to.remote_key = MemoryKey(from.wr.rdma.rkey);
      to.immediate = ntohl(from.imm_data);
      return 0;
    case IBV_WR_SEND:
    case IBV_WR_SEND_WITH_IMM:
      to.opcode = from.opcode == IBV_WR_SEND ? verbs::SendOpcode::kSend
                                             : verbs::SendOpcode::kSendWithImmediate;
      to.immediate = ntohl(from.imm_data);
      if (type == IBV_QPT_RC || type == IBV_QPT_UC) return 0;
      if (from.wr.ud.ah == nullptr) return EINVAL;
      to.address_vector = &of(from.wr.ud.ah).vector;
      to.remote_qpn = Qpn(from.wr.ud.remote_qpn);
      to.remote_qkey = from.wr.ud.remote_qkey;
      return 0;
    case IBV_WR_ATOMIC_CMP_AND_SWP:
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
      to.opcode = from.opcode == IBV_WR_ATOMIC_CMP_AND_SWP ? verbs::SendOpcode::kCompareSwap
                                                           : verbs::SendOpcode::kFetchAdd;
      to.remote_address = from.wr.atomic.remote_addr;
      to.remote_key = MemoryKey(from.wr.atomic.rkey);
      to.compare_add = from.wr.atomic.compare_add;
      to.swap = from.wr.atomic.swap;
      return 0;
    case IBV_WR_LOCAL_INV:
    case IBV_WR_SEND_WITH_INV:
      to.opcode = from.opcode == IBV_WR_LOCAL_INV ? verbs::SendOpcode::kLocalInvalidate
                                                  : verbs::SendOpcode::kSendWithInvalidate;
      to.invalidate_key = MemoryKey(from.invalidate_rkey);
      return 0;
    case IBV_WR_BIND_MW:
      return translate_bind(from.bind_mw.mw, from.bind_mw.rkey, from.bind_mw.bind_info, to);
    default:
      return EOPNOTSUPP;
  }
}

// For who polls the queue: whether long messages are on their way.
static void note_length(ibv_qp* qp, const ibv_send_wr* request) {
  constexpr uint32_t kLong = 32 * 1024;
  if (request == nullptr || request->num_sge < 1) return;
  std::atomic<bool>& bulk = of(qp->send_cq).bulk;
  const bool is_long = request->sg_list[0].length >= kLong;
  if (bulk.load(std::memory_order_relaxed) != is_long) {
    bulk.store(is_long, std::memory_order_relaxed);
  }
}

int post_send(ibv_qp* qp, ibv_send_wr* requests, ibv_send_wr** bad) {
  note_length(qp, requests);
  verbs::QueuePair& pair = *of(qp).pair;
  const ibv_qp_type type = qp->qp_type;
  return post_list<verbs::SendWorkRequest>(
      "ibv_post_send", requests, bad,
      [type](const ibv_send_wr& from, verbs::SendWorkRequest& to) {
        return translate_send(type, from, to);
      },
      [&pair](std::span<const verbs::SendWorkRequest> batch, size_t* posted) {
        return pair.post_send(batch, posted);
      });
}

int post_recv(ibv_qp* qp, ibv_recv_wr* requests, ibv_recv_wr** bad) {
  verbs::QueuePair& pair = *of(qp).pair;
  return post_list<verbs::ReceiveWorkRequest>(
      "ibv_post_recv", requests, bad, translate_receive,
      [&pair](std::span<const verbs::ReceiveWorkRequest> batch, size_t* posted) {
        return pair.post_receive(batch, posted);
      });
}

int post_srq_recv(ibv_srq* srq, ibv_recv_wr* requests, ibv_recv_wr** bad) {
  verbs::SharedReceiveQueue& queue = *of(srq).queue;
  return post_list<verbs::ReceiveWorkRequest>(
      "ibv_post_srq_recv", requests, bad, translate_receive,
      [&queue](std::span<const verbs::ReceiveWorkRequest> batch, size_t* posted) {
        Result<void> result;
        for (const verbs::ReceiveWorkRequest& request : batch) {
          result = queue.post_receive(request);
          if (!result.ok()) break;
          ++*posted;
        }
        return result;
      });
}

}  // namespace farverbs::abi
