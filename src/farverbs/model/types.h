// The verbs' vocabulary: the plain values an application hands in and gets back. Names and meanings
// are those of the verbs manual pages (ibv_post_send(3), ibv_modify_qp(3), ibv_poll_cq(3) ...) and
// of IBTA vol. 1 chapters 10 and 11.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "farverbs/base/ids.h"
#include "farverbs/base/ip_address.h"
#include "farverbs/base/time.h"

namespace farverbs::model {

// kGsi is a UD QP whose datagrams come from QP1 (IBTA vol. 1, 13.5.1: general services): what a
// connection manager sends with. It receives nothing: what is sent to QP1 is for whom it concerns.
enum class QpType : uint8_t { kRc, kUc, kUd, kGsi };
constexpr bool is_datagram(QpType type) { return type == QpType::kUd || type == QpType::kGsi; }
enum class QpState : uint8_t { kReset, kInit, kRtr, kRts, kSqd, kSqe, kErr };
inline constexpr size_t kQpStates = 7;

// Path MTU codes are the wire's: 1 = 256 ... 5 = 4096 bytes.
enum class PathMtu : uint8_t { k256 = 1, k512 = 2, k1024 = 3, k2048 = 4, k4096 = 5 };
constexpr uint32_t bytes_of(PathMtu mtu) { return 128u << static_cast<unsigned>(mtu); }

// Access rights of regions, windows and QPs (bit values of enum ibv_access_flags).
enum Access : uint32_t {
  kLocalWrite = 1,
  kRemoteWrite = 2,
  kRemoteRead = 4,
  kRemoteAtomic = 8,
  kMwBind = 16,
  kZeroBased = 32,
};

enum class SendOpcode : uint8_t {
  kWrite,
  kWriteWithImmediate,
  kSend,
  kSendWithImmediate,
  kRead,
  kCompareSwap,
  kFetchAdd,
  kLocalInvalidate,
  kBindWindow,
  kSendWithInvalidate,
};
const char* to_string(SendOpcode opcode);

enum SendFlags : uint32_t { kFence = 1, kSignaled = 2, kSolicited = 4, kInline = 8 };

struct ScatterGatherElement {
  uint64_t address = 0;
  uint32_t length = 0;  // bytes
  MemoryKey lkey;
};

// Where a datagram or a connected QP's packets go.
struct AddressVector {
  Gid destination_gid{};
  uint8_t source_gid_index = 0;
  uint8_t hop_limit = 64;
  uint8_t traffic_class = 0;  // DSCP and ECN octet
  uint32_t flow_label = 0;
  uint8_t service_level = 0;
  uint8_t port_number = 1;
  uint16_t udp_port = kRoceUdpPort;  // destination port; other than 4791 only by agreement
};

struct SendWorkRequest {
  uint64_t wr_id = 0;
  SendOpcode opcode = SendOpcode::kSend;
  uint32_t flags = 0;  // SendFlags
  std::span<const ScatterGatherElement> sges;
  uint32_t immediate = 0;       // host order; SEND and WRITE with immediate
  MemoryKey invalidate_key;     // SEND with invalidate, local invalidate
  uint64_t remote_address = 0;  // WRITE, READ, atomics
  MemoryKey remote_key;  // WRITE, READ, atomics; bind of a type 2 window: low 8 bits of its new key
  uint64_t compare_add = 0;                       // atomics: compare value, or addend
  uint64_t swap = 0;                              // CMP_SWP
  const AddressVector* address_vector = nullptr;  // UD; copied at post
  Qpn remote_qpn;                                 // UD
  uint32_t remote_qkey = 0;                       // UD
  // Bind window: the window's handle, its new key goes to the window itself.
  struct MemoryEntry* window = nullptr;
  MemoryKey bind_region_lkey;
  uint64_t bind_address = 0;
  uint64_t bind_length = 0;
  uint32_t bind_access = 0;
};

struct ReceiveWorkRequest {
  uint64_t wr_id = 0;
  std::span<const ScatterGatherElement> sges;
};

// Values of enum ibv_wc_status.
enum class CompletionStatus : uint8_t {
  kSuccess = 0,
  kLocalLengthError = 1,
  kLocalQpOperationError = 2,
  kLocalProtectionError = 4,
  kWorkRequestFlushed = 5,
  kWindowBindError = 6,
  kBadResponse = 7,
  kLocalAccessError = 8,
  kRemoteInvalidRequest = 9,
  kRemoteAccessError = 10,
  kRemoteOperationError = 11,
  kRetryExceeded = 12,
  kRnrRetryExceeded = 13,
  kGeneralError = 21,
};
const char* to_string(CompletionStatus status);

enum class CompletionOpcode : uint8_t {
  kSend,
  kWrite,
  kRead,
  kCompareSwap,
  kFetchAdd,
  kBindWindow,
  kLocalInvalidate,
  kReceive,
  kReceiveWithImmediate,  // an RDMA WRITE with immediate consumed a receive
};

enum CompletionFlags : uint8_t {
  kGrhPresent = 1,
  kWithImmediate = 2,
  kWithInvalidate = 8,
  kOverIpv4 = 16,  // UD receives: the GRH's place holds an IPv4 header
};

// For any status but success only wr_id, status, qpn and vendor_error are valid.
struct WorkCompletion {
  uint64_t wr_id = 0;
  CompletionStatus status = CompletionStatus::kSuccess;
  CompletionOpcode opcode = CompletionOpcode::kSend;
  uint8_t flags = 0;  // CompletionFlags
  uint8_t service_level = 0;
  uint32_t vendor_error = 0;
  uint32_t byte_length = 0;
  uint32_t immediate = 0;  // host order
  MemoryKey invalidated_key;
  Qpn qpn;
  Qpn source_qpn;  // UD receives
  uint16_t pkey_index = 0;
  Time time;  // when it was pushed, if its queue stamps completions
};

struct QpCapabilities {
  uint32_t max_send_wr = 0;
  uint32_t max_recv_wr = 0;
  uint32_t max_send_sge = 1;
  uint32_t max_recv_sge = 1;
  uint32_t max_inline_data = 0;  // bytes
};

// Attribute mask bits (values of enum ibv_qp_attr_mask).
enum QpAttributeMask : uint32_t {
  kAttrState = 1 << 0,
  kAttrCurrentState = 1 << 1,
  kAttrEnableSqdNotify = 1 << 2,
  kAttrAccessFlags = 1 << 3,
  kAttrPkeyIndex = 1 << 4,
  kAttrPort = 1 << 5,
  kAttrQkey = 1 << 6,
  kAttrAddressVector = 1 << 7,
  kAttrPathMtu = 1 << 8,
  kAttrTimeout = 1 << 9,
  kAttrRetryCount = 1 << 10,
  kAttrRnrRetry = 1 << 11,
  kAttrRqPsn = 1 << 12,
  kAttrMaxRdAtomic = 1 << 13,
  kAttrAlternatePath = 1 << 14,
  kAttrMinRnrTimer = 1 << 15,
  kAttrSqPsn = 1 << 16,
  kAttrMaxDestRdAtomic = 1 << 17,
  kAttrPathMigrationState = 1 << 18,
  kAttrCapabilities = 1 << 19,
  kAttrDestinationQpn = 1 << 20,
};

struct QpAttributes {
  QpState state = QpState::kReset;
  QpState current_state = QpState::kReset;
  bool enable_sqd_notify = false;
  uint32_t access_flags = 0;  // remote rights the QP grants (Access)
  uint16_t pkey_index = 0;
  uint8_t port_number = 1;
  uint32_t qkey = 0;
  AddressVector address_vector;
  PathMtu path_mtu = PathMtu::k1024;
  uint8_t timeout = 14;            // 4.096 us * 2^timeout; 0: never
  uint8_t retry_count = 7;         // 0..7, seven means seven
  uint8_t rnr_retry = 7;           // 0..7, seven means for ever
  uint8_t min_rnr_timer = 12;      // code of the RNR NAK timer table
  uint8_t max_rd_atomic = 1;       // outstanding READs and atomics as requester
  uint8_t max_dest_rd_atomic = 1;  // ... as responder
  Psn rq_psn;
  Psn sq_psn;
  Qpn destination_qpn;
  QpCapabilities capabilities;
};

enum class AsyncEventType : uint8_t {
  kCqError,
  kQpFatal,
  kQpRequestError,  // invalid request local work queue error
  kQpAccessError,
  kCommunicationEstablished,
  kSqDrained,
  kLastWqeReached,
  kSrqLimitReached,
  kSrqError,
  kPortActive,
  kPortError,
  kGidChange,
  kDeviceFatal,
};
const char* to_string(AsyncEventType type);

// The object it is about, by the pointer its owner gave at creation (`context`).
struct AsyncEvent {
  AsyncEventType type = AsyncEventType::kDeviceFatal;
  void* element = nullptr;
};

}  // namespace farverbs::model
