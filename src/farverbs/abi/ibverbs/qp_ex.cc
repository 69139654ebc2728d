// Extended posting: ibv_create_qp_ex(3), ibv_wr_start(3) and what follows it. Between wr_start and
// wr_complete requests are gathered; they are posted together, or not at all.
#include <arpa/inet.h>

#include <cstring>

#include "farverbs/abi/ibverbs/errors.h"
#include "farverbs/abi/ibverbs/qp.h"
#include "farverbs/abi/ibverbs/requests.h"

namespace farverbs::abi {

// Storage is kept from one batch to the next, so that posting allocates nothing once it is warm.
struct SendBatch {
  struct Pieces {
    size_t first = 0;
    size_t count = 0;
    size_t inline_at = 0;  // where its data lies in `data`
    bool inlined = false;
  };
  std::mutex mutex;  // from wr_start to wr_complete or wr_abort
  std::vector<verbs::SendWorkRequest> requests;
  std::vector<Pieces> pieces;  // one for each request
  std::vector<verbs::ScatterGatherElement> elements;
  std::vector<std::byte> data;
  int error = 0;  // of the first call that could not be done

  void clear() {
    requests.clear();
    pieces.clear();
    elements.clear();
    data.clear();
    error = 0;
  }
  void fail(int code) {
    if (error == 0) error = code;
  }
};

void SendBatchDeleter::operator()(SendBatch* batch) const { delete batch; }

namespace {

constexpr uint64_t kRcOperations = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
                                   IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM |
                                   IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
                                   IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD | IBV_QP_EX_WITH_LOCAL_INV |
                                   IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_SEND_WITH_INV;
constexpr uint64_t kUcOperations = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
                                   IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM |
                                   IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_BIND_MW;
constexpr uint64_t kUdOperations = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;

uint64_t operations_of(ibv_qp_type type) {
  return type == IBV_QPT_RC ? kRcOperations : type == IBV_QPT_UC ? kUcOperations : kUdOperations;
}

verbs::SendWorkRequest& add(ibv_qp_ex* qp, verbs::SendOpcode opcode) {
  SendBatch& batch = *of(qp).batch;
  batch.pieces.push_back({batch.elements.size(), 0, 0, false});
  verbs::SendWorkRequest& request = batch.requests.emplace_back();
  request.opcode = opcode;
  request.wr_id = qp->wr_id;
  request.flags = qp->wr_flags & ~static_cast<unsigned>(IBV_SEND_INLINE | IBV_SEND_IP_CSUM);
  return request;
}

verbs::SendWorkRequest& add_remote(ibv_qp_ex* qp, verbs::SendOpcode opcode, uint32_t rkey,
                                   uint64_t address) {
  verbs::SendWorkRequest& request = add(qp, opcode);
  request.remote_key = MemoryKey(rkey);
  request.remote_address = address;
  return request;
}

// The request that the setters work on; nullptr (and the batch fails) if there is none.
verbs::SendWorkRequest* last(ibv_qp_ex* qp) {
  SendBatch& batch = *of(qp).batch;
  if (!batch.requests.empty()) return &batch.requests.back();
  batch.fail(EINVAL);
  return nullptr;
}

void wr_start(ibv_qp_ex* qp) {
  SendBatch& batch = *of(qp).batch;
  batch.mutex.lock();
  batch.clear();
}

int wr_complete(ibv_qp_ex* qp) {
  SendBatch& batch = *of(qp).batch;
  int code = batch.error;
  if (code == 0 && batch.requests.size() > of(qp).pair->send_room()) code = ENOMEM;
  if (code == 0) {
    for (size_t i = 0; i < batch.requests.size(); ++i) {
      const SendBatch::Pieces& its = batch.pieces[i];
      verbs::ScatterGatherElement* const elements = batch.elements.data() + its.first;
      if (its.inlined) {
        elements->address = reinterpret_cast<uint64_t>(batch.data.data() + its.inline_at);
        batch.requests[i].flags |= model::kInline;
      }
      batch.requests[i].sges = {elements, its.count};
    }
    if (auto posted = of(qp).pair->post_send(batch.requests); !posted.ok()) {
      code = refuse("ibv_wr_complete", posted.error());
    }
  }
  batch.mutex.unlock();
  return code;
}

void wr_abort(ibv_qp_ex* qp) { of(qp).batch->mutex.unlock(); }

void wr_rdma_write(ibv_qp_ex* qp, uint32_t rkey, uint64_t address) {
  add_remote(qp, verbs::SendOpcode::kWrite, rkey, address);
}
void wr_rdma_write_imm(ibv_qp_ex* qp, uint32_t rkey, uint64_t address, __be32 immediate) {
  add_remote(qp, verbs::SendOpcode::kWriteWithImmediate, rkey, address).immediate =
      ntohl(immediate);
}
void wr_rdma_read(ibv_qp_ex* qp, uint32_t rkey, uint64_t address) {
  add_remote(qp, verbs::SendOpcode::kRead, rkey, address);
}
void wr_atomic_cmp_swp(ibv_qp_ex* qp, uint32_t rkey, uint64_t address, uint64_t compare,
                       uint64_t swap) {
  verbs::SendWorkRequest& request = add_remote(qp, verbs::SendOpcode::kCompareSwap, rkey, address);
  request.compare_add = compare;
  request.swap = swap;
}
void wr_atomic_fetch_add(ibv_qp_ex* qp, uint32_t rkey, uint64_t address, uint64_t addend) {
  add_remote(qp, verbs::SendOpcode::kFetchAdd, rkey, address).compare_add = addend;
}
void wr_send(ibv_qp_ex* qp) { add(qp, verbs::SendOpcode::kSend); }
void wr_send_imm(ibv_qp_ex* qp, __be32 immediate) {
  add(qp, verbs::SendOpcode::kSendWithImmediate).immediate = ntohl(immediate);
}
void wr_send_inv(ibv_qp_ex* qp, uint32_t rkey) {
  add(qp, verbs::SendOpcode::kSendWithInvalidate).invalidate_key = MemoryKey(rkey);
}
void wr_local_inv(ibv_qp_ex* qp, uint32_t rkey) {
  add(qp, verbs::SendOpcode::kLocalInvalidate).invalidate_key = MemoryKey(rkey);
}
void wr_bind_mw(ibv_qp_ex* qp, ibv_mw* mw, uint32_t rkey, const ibv_mw_bind_info* info) {
  verbs::SendWorkRequest& request = add(qp, verbs::SendOpcode::kBindWindow);
  if (info == nullptr || translate_bind(mw, rkey, *info, request) != 0) {
    of(qp).batch->fail(EINVAL);
  }
}

// Not offered, and not in send_ops_flags; programs that call them nevertheless get an error.
void wr_send_tso(ibv_qp_ex* qp, void*, uint16_t, uint16_t) { of(qp).batch->fail(EOPNOTSUPP); }
void wr_atomic_write(ibv_qp_ex* qp, uint32_t, uint64_t, const void*) {
  of(qp).batch->fail(EOPNOTSUPP);
}
void wr_set_xrc_srqn(ibv_qp_ex* qp, uint32_t) { of(qp).batch->fail(EOPNOTSUPP); }

void wr_set_ud_addr(ibv_qp_ex* qp, ibv_ah* ah, uint32_t qpn, uint32_t qkey) {
  verbs::SendWorkRequest* request = last(qp);
  if (request == nullptr) return;
  if (ah == nullptr) return of(qp).batch->fail(EINVAL);
  request->address_vector = &of(ah).vector;
  request->remote_qpn = Qpn(qpn);
  request->remote_qkey = qkey;
}

void wr_set_sge_list(ibv_qp_ex* qp, size_t count, const ibv_sge* list) {
  if (last(qp) == nullptr) return;
  SendBatch& batch = *of(qp).batch;
  if (count > of(qp).init.cap.max_send_sge) return batch.fail(ENOMEM);
  const auto* elements = reinterpret_cast<const verbs::ScatterGatherElement*>(list);
  // A second call for one request takes the place of the first.
  batch.elements.resize(batch.pieces.back().first);
  batch.elements.insert(batch.elements.end(), elements, elements + count);
  batch.pieces.back().count = count;
  batch.pieces.back().inlined = false;
}

void wr_set_sge(ibv_qp_ex* qp, uint32_t lkey, uint64_t address, uint32_t length) {
  const ibv_sge element{address, length, lkey};
  wr_set_sge_list(qp, 1, &element);
}

// The data is the program's again when the call returns.
void wr_set_inline_data_list(ibv_qp_ex* qp, size_t count, const ibv_data_buf* list) {
  if (last(qp) == nullptr) return;
  SendBatch& batch = *of(qp).batch;
  const size_t start = batch.data.size();
  for (size_t i = 0; i < count; ++i) {
    if (batch.data.size() - start + list[i].length > of(qp).init.cap.max_inline_data) {
      return batch.fail(ENOMEM);
    }
    const auto* bytes = static_cast<const std::byte*>(list[i].addr);
    batch.data.insert(batch.data.end(), bytes, bytes + list[i].length);
  }
  SendBatch::Pieces& its = batch.pieces.back();
  batch.elements.resize(its.first);
  batch.elements.push_back({0, static_cast<uint32_t>(batch.data.size() - start), MemoryKey()});
  its.count = 1;
  its.inline_at = start;
  its.inlined = true;
}

void wr_set_inline_data(ibv_qp_ex* qp, void* address, size_t length) {
  const ibv_data_buf buffer{address, length};
  wr_set_inline_data_list(qp, 1, &buffer);
}

void set_posting(Qp& qp) {
  qp.wr_atomic_cmp_swp = wr_atomic_cmp_swp;
  qp.wr_atomic_fetch_add = wr_atomic_fetch_add;
  qp.wr_bind_mw = wr_bind_mw;
  qp.wr_local_inv = wr_local_inv;
  qp.wr_rdma_read = wr_rdma_read;
  qp.wr_rdma_write = wr_rdma_write;
  qp.wr_rdma_write_imm = wr_rdma_write_imm;
  qp.wr_send = wr_send;
  qp.wr_send_imm = wr_send_imm;
  qp.wr_send_inv = wr_send_inv;
  qp.wr_send_tso = wr_send_tso;
  qp.wr_set_ud_addr = wr_set_ud_addr;
  qp.wr_set_xrc_srqn = wr_set_xrc_srqn;
  qp.wr_set_inline_data = wr_set_inline_data;
  qp.wr_set_inline_data_list = wr_set_inline_data_list;
  qp.wr_set_sge = wr_set_sge;
  qp.wr_set_sge_list = wr_set_sge_list;
  qp.wr_start = wr_start;
  qp.wr_complete = wr_complete;
  qp.wr_abort = wr_abort;
  qp.wr_atomic_write = wr_atomic_write;
  qp.batch.reset(new SendBatch);
}

Result<Qp*> make(ibv_context* context, ibv_qp_init_attr_ex& init) {
  constexpr uint32_t kKnown = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS |
                              IBV_QP_INIT_ATTR_MAX_TSO_HEADER | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  if ((init.comp_mask & ~kKnown) != 0) {
    return Error{EOPNOTSUPP, "comp_mask asks for what is not offered"};
  }
  if ((init.comp_mask & IBV_QP_INIT_ATTR_PD) == 0) return invalid("comp_mask must name the pd");
  if (!is_alive(Kind::kPd, init.pd) || init.pd->context != context) {
    return invalid("pd is not alive, or another context's");
  }
  if ((init.comp_mask & IBV_QP_INIT_ATTR_CREATE_FLAGS) != 0 && init.create_flags != 0) {
    return Error{EOPNOTSUPP, "create_flags must be 0"};
  }
  if ((init.comp_mask & IBV_QP_INIT_ATTR_MAX_TSO_HEADER) != 0 && init.max_tso_header != 0) {
    return Error{EOPNOTSUPP, "max_tso_header must be 0: segmentation is not offered"};
  }
  const bool extended = (init.comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) != 0;
  if (extended && (init.send_ops_flags & ~operations_of(init.qp_type)) != 0) {
    return Error{EOPNOTSUPP, "send_ops_flags asks for operations that such a QP does not have"};
  }
  // The extended struct begins as the plain one does.
  FV_ASSIGN(Qp * qp, create_qp(init.pd, reinterpret_cast<ibv_qp_init_attr&>(init)));
  if (extended) set_posting(*qp);
  return qp;
}

}  // namespace

ibv_qp* create_qp_ex(ibv_context* context, ibv_qp_init_attr_ex* init) {
  if (init == nullptr) return refuse_null("ibv_create_qp_ex", invalid("qp_init_attr_ex is null"));
  auto made = make(context, *init);
  if (!made.ok()) return refuse_null("ibv_create_qp_ex", made.error());
  return to_public(**made);
}

}  // namespace farverbs::abi

using namespace farverbs::abi;

extern "C" ibv_qp_ex* ibv_qp_to_qp_ex(ibv_qp* qp) {
  // Only a QP that was made with send_ops_flags has the extended calls.
  return is_alive(Kind::kQp, qp) && of(qp).batch != nullptr ? &of(qp) : nullptr;
}
