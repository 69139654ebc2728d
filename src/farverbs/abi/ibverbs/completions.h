// A completion of the verbs room as programs know it (struct ibv_wc). Inline: every poll does it.
#pragma once

#include <arpa/inet.h>
#include <infiniband/verbs.h>

#include "farverbs/verbs/verbs.h"

namespace farverbs::abi {

inline ibv_wc_opcode to_public(verbs::CompletionOpcode opcode) {
  using enum model::CompletionOpcode;
  switch (opcode) {
    case kSend:
      return IBV_WC_SEND;
    case kWrite:
      return IBV_WC_RDMA_WRITE;
    case kRead:
      return IBV_WC_RDMA_READ;
    case kCompareSwap:
      return IBV_WC_COMP_SWAP;
    case kFetchAdd:
      return IBV_WC_FETCH_ADD;
    case kBindWindow:
      return IBV_WC_BIND_MW;
    case kLocalInvalidate:
      return IBV_WC_LOCAL_INV;
    case kReceive:
      return IBV_WC_RECV;
    case kReceiveWithImmediate:
      return IBV_WC_RECV_RDMA_WITH_IMM;
  }
  return IBV_WC_SEND;
}

inline unsigned public_flags(const verbs::WorkCompletion& completion) {
  return completion.flags &
         static_cast<unsigned>(model::kGrhPresent | model::kWithImmediate | model::kWithInvalidate);
}

// The immediate in network byte order, or the key that was invalidated.
inline uint32_t public_immediate(const verbs::WorkCompletion& completion) {
  return (completion.flags & model::kWithInvalidate) != 0 ? completion.invalidated_key.value()
                                                          : htonl(completion.immediate);
}

// Of a datagram: which IP header the GRH's place holds, as programs take it from there on Ethernet
// ports (UCX): 0xA for IPv4, 0x9 for IPv6.
inline uint8_t public_service_level(const verbs::WorkCompletion& completion) {
  if ((completion.flags & model::kGrhPresent) == 0) return completion.service_level;
  return (completion.flags & model::kOverIpv4) != 0 ? 0xA : 0x9;
}

inline void to_public(const verbs::WorkCompletion& completion, ibv_wc& wc) {
  wc.wr_id = completion.wr_id;
  wc.status = static_cast<ibv_wc_status>(completion.status);
  wc.opcode = to_public(completion.opcode);
  wc.vendor_err = completion.vendor_error;
  wc.byte_len = completion.byte_length;
  wc.imm_data = public_immediate(completion);
  wc.qp_num = completion.qpn.value();
  wc.src_qp = completion.source_qpn.value();
  wc.wc_flags = public_flags(completion);
  wc.pkey_index = completion.pkey_index;
  wc.slid = 0;
  wc.sl = public_service_level(completion);
  wc.dlid_path_bits = 0;
}

}  // namespace farverbs::abi
