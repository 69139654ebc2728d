// The transport headers of the InfiniBand Architecture (volume 1, chapter 9.2 to 9.3 and annexes
// A16, A17): BTH and the extended headers, as plain values. parse_header<Bth>(bytes) and
// emit_header(bth, bytes) convert; see field.h.
#pragma once

#include "farverbs/wire/field.h"

namespace farverbs::wire {

inline constexpr size_t kIcrcSize = 4;
inline constexpr uint16_t kDefaultPkey = 0xffff;  // full member of the default partition

// Base transport header.
struct Bth {
  static constexpr size_t kSize = 12;
  uint8_t opcode = 0;
  bool solicited = false;  // SE
  bool migrated = true;    // MigReq: senders without path migration say "migrated"
  uint8_t pad = 0;         // PadCnt: zero bytes between payload and ICRC, 0 to 3
  uint8_t version = 0;     // TVer: 0
  uint16_t pkey = kDefaultPkey;
  bool fecn = false;
  bool becn = false;
  uint8_t reserved6 = 0;  // masked in the ICRC together with fecn and becn
  Qpn dest_qp;
  bool ack_request = false;
  uint8_t reserved7 = 0;
  Psn psn;
  bool operator==(const Bth&) const = default;

  static constexpr auto kFields =
      std::tuple(bind_field(&Bth::opcode, {0, 0, 8}), bind_field(&Bth::solicited, {1, 0, 1}),
                 bind_field(&Bth::migrated, {1, 1, 1}), bind_field(&Bth::pad, {1, 2, 2}),
                 bind_field(&Bth::version, {1, 4, 4}), bind_field(&Bth::pkey, {2, 0, 16}),
                 bind_field(&Bth::fecn, {4, 0, 1}), bind_field(&Bth::becn, {4, 1, 1}),
                 bind_field(&Bth::reserved6, {4, 2, 6}), bind_field(&Bth::dest_qp, {5, 0, 24}),
                 bind_field(&Bth::ack_request, {8, 0, 1}), bind_field(&Bth::reserved7, {8, 1, 7}),
                 bind_field(&Bth::psn, {9, 0, 24}));
};
FV_CHECK_LAYOUT(Bth);

// RDMA extended transport header.
struct Reth {
  static constexpr size_t kSize = 16;
  uint64_t address = 0;  // VA at the responder
  MemoryKey rkey;
  uint32_t length = 0;  // DMALen, bytes of the whole message
  bool operator==(const Reth&) const = default;

  static constexpr auto kFields =
      std::tuple(bind_field(&Reth::address, {0, 0, 64}), bind_field(&Reth::rkey, {8, 0, 32}),
                 bind_field(&Reth::length, {12, 0, 32}));
};
FV_CHECK_LAYOUT(Reth);

// Atomic extended transport header.
struct AtomicEth {
  static constexpr size_t kSize = 28;
  uint64_t address = 0;
  MemoryKey rkey;
  uint64_t swap_or_add = 0;
  uint64_t compare = 0;
  bool operator==(const AtomicEth&) const = default;

  static constexpr auto kFields = std::tuple(bind_field(&AtomicEth::address, {0, 0, 64}),
                                             bind_field(&AtomicEth::rkey, {8, 0, 32}),
                                             bind_field(&AtomicEth::swap_or_add, {12, 0, 64}),
                                             bind_field(&AtomicEth::compare, {20, 0, 64}));
};
FV_CHECK_LAYOUT(AtomicEth);

// ACK extended transport header; syndrome.h gives the syndrome's meaning.
struct Aeth {
  static constexpr size_t kSize = 4;
  uint8_t syndrome = 0;
  uint32_t msn = 0;  // 24 bits
  bool operator==(const Aeth&) const = default;

  static constexpr auto kFields =
      std::tuple(bind_field(&Aeth::syndrome, {0, 0, 8}), bind_field(&Aeth::msn, {1, 0, 24}));
};
FV_CHECK_LAYOUT(Aeth);

// Atomic ACK extended transport header.
struct AtomicAckEth {
  static constexpr size_t kSize = 8;
  uint64_t original = 0;  // remote value before the operation
  bool operator==(const AtomicAckEth&) const = default;

  static constexpr auto kFields = std::tuple(bind_field(&AtomicAckEth::original, {0, 0, 64}));
};
FV_CHECK_LAYOUT(AtomicAckEth);

// Datagram extended transport header.
struct Deth {
  static constexpr size_t kSize = 8;
  uint32_t qkey = 0;
  uint8_t reserved = 0;
  Qpn source_qp;
  bool operator==(const Deth&) const = default;

  static constexpr auto kFields =
      std::tuple(bind_field(&Deth::qkey, {0, 0, 32}), bind_field(&Deth::reserved, {4, 0, 8}),
                 bind_field(&Deth::source_qp, {5, 0, 24}));
};
FV_CHECK_LAYOUT(Deth);

// Immediate data: 4 bytes that the transport does not interpret. `value` is their big-endian
// number; the verbs API hands the same bytes on as a __be32.
struct ImmDt {
  static constexpr size_t kSize = 4;
  uint32_t value = 0;
  bool operator==(const ImmDt&) const = default;

  static constexpr auto kFields = std::tuple(bind_field(&ImmDt::value, {0, 0, 32}));
};
FV_CHECK_LAYOUT(ImmDt);

// Invalidate extended transport header.
struct Ieth {
  static constexpr size_t kSize = 4;
  MemoryKey rkey;
  bool operator==(const Ieth&) const = default;

  static constexpr auto kFields = std::tuple(bind_field(&Ieth::rkey, {0, 0, 32}));
};
FV_CHECK_LAYOUT(Ieth);

// Reliable datagram extended transport header.
struct Rdeth {
  static constexpr size_t kSize = 4;
  uint8_t reserved = 0;
  uint32_t ee_context = 0;
  bool operator==(const Rdeth&) const = default;

  static constexpr auto kFields = std::tuple(bind_field(&Rdeth::reserved, {0, 0, 8}),
                                             bind_field(&Rdeth::ee_context, {1, 0, 24}));
};
FV_CHECK_LAYOUT(Rdeth);

// XRC extended transport header.
struct XrcEth {
  static constexpr size_t kSize = 4;
  uint8_t reserved = 0;
  uint32_t srq = 0;
  bool operator==(const XrcEth&) const = default;

  static constexpr auto kFields =
      std::tuple(bind_field(&XrcEth::reserved, {0, 0, 8}), bind_field(&XrcEth::srq, {1, 0, 24}));
};
FV_CHECK_LAYOUT(XrcEth);

// Payload of a congestion notification packet: 16 reserved bytes (annex A17.9.3).
struct CnpPayload {
  static constexpr size_t kSize = 16;
  std::array<std::byte, 16> reserved{};
  bool operator==(const CnpPayload&) const = default;

  static constexpr auto kFields = std::tuple(bind_field(&CnpPayload::reserved, {0, 0, 128}));
};
FV_CHECK_LAYOUT(CnpPayload);

}  // namespace farverbs::wire
