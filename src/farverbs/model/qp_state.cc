#include "farverbs/model/qp_state.h"

#include <string>

namespace farverbs::model {
namespace {

using enum QpType;
using enum QpState;

constexpr uint32_t kPath = kAttrAlternatePath | kAttrPathMigrationState;

// What RTS lets change while it runs; the same when it is entered again from SQD.
constexpr uint32_t kRunningRc = kAttrCurrentState | kAttrAccessFlags | kAttrMinRnrTimer | kPath;
constexpr uint32_t kRunningUc = kAttrCurrentState | kAttrAccessFlags | kPath;
constexpr uint32_t kRunningUd = kAttrCurrentState | kAttrQkey;

constexpr uint32_t kInitConnected = kAttrPkeyIndex | kAttrPort | kAttrAccessFlags;
constexpr uint32_t kInitUd = kAttrPkeyIndex | kAttrPort | kAttrQkey;

constexpr uint32_t kReceiveConnected =
    kAttrAddressVector | kAttrPathMtu | kAttrDestinationQpn | kAttrRqPsn;
constexpr uint32_t kReceiveOptional = kAttrAlternatePath | kAttrAccessFlags | kAttrPkeyIndex;

// Every state may be reset and may fail, without further attributes.
#define ALWAYS(type, from) \
  {type, from, kReset, 0, 0}, { type, from, kErr, 0, 0 }

constexpr QpTransition kTransitions[] = {
    {kRc, kReset, kInit, kInitConnected, 0},
    {kRc, kInit, kInit, 0, kInitConnected},
    {kRc, kInit, kRtr, kReceiveConnected | kAttrMaxDestRdAtomic | kAttrMinRnrTimer,
     kReceiveOptional},
    {kRc, kRtr, kRts,
     kAttrTimeout | kAttrRetryCount | kAttrRnrRetry | kAttrSqPsn | kAttrMaxRdAtomic, kRunningRc},
    {kRc, kRts, kRts, 0, kRunningRc},
    {kRc, kRts, kSqd, 0, kAttrEnableSqdNotify},
    {kRc, kSqd, kRts, 0, kRunningRc},
    {kRc, kSqd, kSqd, 0,
     kAttrPort | kAttrAddressVector | kAttrTimeout | kAttrRetryCount | kAttrRnrRetry |
         kAttrMaxRdAtomic | kAttrMaxDestRdAtomic | kAttrAccessFlags | kAttrPkeyIndex |
         kAttrMinRnrTimer | kPath},
    ALWAYS(kRc, kReset),
    ALWAYS(kRc, kInit),
    ALWAYS(kRc, kRtr),
    ALWAYS(kRc, kRts),
    ALWAYS(kRc, kSqd),
    ALWAYS(kRc, kErr),

    {kUc, kReset, kInit, kInitConnected, 0},
    {kUc, kInit, kInit, 0, kInitConnected},
    {kUc, kInit, kRtr, kReceiveConnected, kReceiveOptional},
    {kUc, kRtr, kRts, kAttrSqPsn, kRunningUc},
    {kUc, kRts, kRts, 0, kRunningUc},
    {kUc, kRts, kSqd, 0, kAttrEnableSqdNotify},
    {kUc, kSqd, kRts, 0, kRunningUc},
    {kUc, kSqd, kSqd, 0, kAttrAddressVector | kAttrAccessFlags | kAttrPkeyIndex | kPath},
    {kUc, kSqe, kRts, 0, kAttrCurrentState | kAttrAccessFlags},
    ALWAYS(kUc, kReset),
    ALWAYS(kUc, kInit),
    ALWAYS(kUc, kRtr),
    ALWAYS(kUc, kRts),
    ALWAYS(kUc, kSqd),
    ALWAYS(kUc, kSqe),
    ALWAYS(kUc, kErr),

    {kUd, kReset, kInit, kInitUd, 0},
    {kUd, kInit, kInit, 0, kInitUd},
    {kUd, kInit, kRtr, 0, kAttrPkeyIndex | kAttrQkey},
    {kUd, kRtr, kRts, kAttrSqPsn, kRunningUd},
    {kUd, kRts, kRts, 0, kRunningUd},
    {kUd, kRts, kSqd, 0, kAttrEnableSqdNotify},
    {kUd, kSqd, kRts, 0, kRunningUd},
    {kUd, kSqd, kSqd, 0, kAttrPkeyIndex | kAttrQkey},
    {kUd, kSqe, kRts, 0, kRunningUd},
    ALWAYS(kUd, kReset),
    ALWAYS(kUd, kInit),
    ALWAYS(kUd, kRtr),
    ALWAYS(kUd, kRts),
    ALWAYS(kUd, kSqd),
    ALWAYS(kUd, kSqe),
    ALWAYS(kUd, kErr),
};

#undef ALWAYS

constexpr bool consistent() {
  for (size_t i = 0; i < std::size(kTransitions); ++i) {
    const QpTransition& a = kTransitions[i];
    if ((a.required & a.optional) != 0) return false;
    for (size_t j = i + 1; j < std::size(kTransitions); ++j) {
      const QpTransition& b = kTransitions[j];
      if (a.type == b.type && a.from == b.from && a.to == b.to) return false;
    }
  }
  return true;
}
static_assert(consistent(), "a transition stands once, an attribute is required or optional");

constexpr uint32_t kKnownAccess =
    kLocalWrite | kRemoteWrite | kRemoteRead | kRemoteAtomic | kMwBind | kZeroBased;
constexpr uint32_t kHighestAttribute = kAttrDestinationQpn;
constexpr uint32_t kMaxFlowLabel = 0xF'FFFF;  // 20 bits, RFC 8200
constexpr uint8_t kMaxServiceLevel = 15;      // 4 bits, IBTA vol. 1 section 7.6.5

std::string names(uint32_t mask) {
  std::string text;
  for (uint32_t bit = 1; bit <= kHighestAttribute; bit <<= 1) {
    if ((mask & bit) == 0) continue;
    if (!text.empty()) text += ", ";
    text += attribute_name(bit);
  }
  return text;
}

Result<void> check_range(const char* name, uint64_t low, uint64_t high, uint64_t value) {
  if (value >= low && value <= high) return {};
  return invalid(std::string(name) + " must be " + std::to_string(low) + " to " +
                 std::to_string(high) + ", got " + std::to_string(value));
}

Result<void> check_address_vector(const AddressVector& av, const QpLimits& limits) {
  FV_TRY(check_range("address_vector.source_gid_index", 0, limits.gid_count - 1u,
                     av.source_gid_index));
  FV_TRY(check_range("address_vector.port_number", 1, limits.port_count, av.port_number));
  FV_TRY(check_range("address_vector.service_level", 0, kMaxServiceLevel, av.service_level));
  return check_range("address_vector.flow_label", 0, kMaxFlowLabel, av.flow_label);
}

Result<void> check_path_mtu(PathMtu mtu, PathMtu most) {
  const auto code = static_cast<unsigned>(mtu);
  if (code >= static_cast<unsigned>(PathMtu::k256) && code <= static_cast<unsigned>(most))
    return {};
  return invalid("path_mtu must be code 1 (256 bytes) to " +
                 std::to_string(static_cast<unsigned>(most)) + " (" +
                 std::to_string(bytes_of(most)) + " bytes), got code " + std::to_string(code));
}

Result<void> check_values(const QpAttributes& a, uint32_t mask, const QpLimits& limits) {
  const auto has = [mask](uint32_t bit) { return (mask & bit) != 0; };
  if (has(kPath)) {
    return invalid(names(mask & kPath) +
                   " not supported: this device has no automatic path migration");
  }
  if (has(kAttrAccessFlags) && (a.access_flags & ~kKnownAccess) != 0) {
    return invalid("access_flags has unknown bits, got " + std::to_string(a.access_flags));
  }
  if (has(kAttrPkeyIndex)) {
    FV_TRY(check_range("pkey_index", 0, limits.pkey_count - 1u, a.pkey_index));
  }
  if (has(kAttrPort)) FV_TRY(check_range("port_number", 1, limits.port_count, a.port_number));
  if (has(kAttrAddressVector)) FV_TRY(check_address_vector(a.address_vector, limits));
  if (has(kAttrPathMtu)) FV_TRY(check_path_mtu(a.path_mtu, limits.max_path_mtu));
  if (has(kAttrTimeout)) FV_TRY(check_range("timeout", 0, 31, a.timeout));
  if (has(kAttrRetryCount)) FV_TRY(check_range("retry_count", 0, 7, a.retry_count));
  if (has(kAttrRnrRetry)) FV_TRY(check_range("rnr_retry", 0, 7, a.rnr_retry));
  if (has(kAttrMinRnrTimer)) FV_TRY(check_range("min_rnr_timer", 0, 31, a.min_rnr_timer));
  if (has(kAttrMaxRdAtomic)) {
    FV_TRY(check_range("max_rd_atomic", 0, limits.max_rd_atomic, a.max_rd_atomic));
  }
  if (has(kAttrMaxDestRdAtomic)) {
    FV_TRY(check_range("max_dest_rd_atomic", 0, limits.max_dest_rd_atomic, a.max_dest_rd_atomic));
  }
  return {};
}

}  // namespace

std::span<const QpTransition> qp_transitions() { return kTransitions; }

const QpTransition* find_transition(QpType type, QpState from, QpState to) {
  if (type == kGsi) type = kUd;
  for (const QpTransition& transition : kTransitions) {
    if (transition.type == type && transition.from == from && transition.to == to) {
      return &transition;
    }
  }
  return nullptr;
}

const char* attribute_name(uint32_t bit) {
  switch (bit) {
    case kAttrState:
      return "state";
    case kAttrCurrentState:
      return "current_state";
    case kAttrEnableSqdNotify:
      return "enable_sqd_notify";
    case kAttrAccessFlags:
      return "access_flags";
    case kAttrPkeyIndex:
      return "pkey_index";
    case kAttrPort:
      return "port_number";
    case kAttrQkey:
      return "qkey";
    case kAttrAddressVector:
      return "address_vector";
    case kAttrPathMtu:
      return "path_mtu";
    case kAttrTimeout:
      return "timeout";
    case kAttrRetryCount:
      return "retry_count";
    case kAttrRnrRetry:
      return "rnr_retry";
    case kAttrRqPsn:
      return "rq_psn";
    case kAttrMaxRdAtomic:
      return "max_rd_atomic";
    case kAttrAlternatePath:
      return "alternate_path";
    case kAttrMinRnrTimer:
      return "min_rnr_timer";
    case kAttrSqPsn:
      return "sq_psn";
    case kAttrMaxDestRdAtomic:
      return "max_dest_rd_atomic";
    case kAttrPathMigrationState:
      return "path_migration_state";
    case kAttrCapabilities:
      return "capabilities";
    case kAttrDestinationQpn:
      return "destination_qpn";
  }
  return "unknown attribute";
}

Result<void> check_modify(QpType type, QpState current, const QpAttributes& attributes,
                          uint32_t mask, const QpLimits& limits) {
  if ((mask & ~(kHighestAttribute * 2 - 1)) != 0) {
    return invalid("attribute mask has unknown bits, got " + std::to_string(mask));
  }
  if ((mask & kAttrCurrentState) != 0 && attributes.current_state != current) {
    return invalid(std::string("current_state says ") + to_string(attributes.current_state) +
                   ", but the QP is in " + to_string(current));
  }
  const QpState to = (mask & kAttrState) != 0 ? attributes.state : current;
  const std::string move = std::string(to_string(current)) + " to " + to_string(to);
  const QpTransition* transition = find_transition(type, current, to);
  if (transition == nullptr) {
    return invalid(move + " is not a transition of a " + to_string(type) + " QP");
  }
  const uint32_t given = mask & ~static_cast<uint32_t>(kAttrState);
  if (const uint32_t missing = transition->required & ~given; missing != 0) {
    const bool one = (missing & (missing - 1)) == 0;
    return invalid(move + " needs the attribute" + (one ? " " : "s ") + names(missing));
  }
  if (const uint32_t extra = given & ~(transition->required | transition->optional); extra != 0) {
    const bool one = (extra & (extra - 1)) == 0;
    return invalid(move + " does not take the attribute" + (one ? " " : "s ") + names(extra));
  }
  return check_values(attributes, given, limits);
}

void apply_attributes(QpAttributes& current, const QpAttributes& attributes, uint32_t mask) {
  const auto has = [mask](uint32_t bit) { return (mask & bit) != 0; };
  if (has(kAttrEnableSqdNotify)) current.enable_sqd_notify = attributes.enable_sqd_notify;
  if (has(kAttrAccessFlags)) current.access_flags = attributes.access_flags;
  if (has(kAttrPkeyIndex)) current.pkey_index = attributes.pkey_index;
  if (has(kAttrPort)) current.port_number = attributes.port_number;
  if (has(kAttrQkey)) current.qkey = attributes.qkey;
  if (has(kAttrAddressVector)) current.address_vector = attributes.address_vector;
  if (has(kAttrPathMtu)) current.path_mtu = attributes.path_mtu;
  if (has(kAttrTimeout)) current.timeout = attributes.timeout;
  if (has(kAttrRetryCount)) current.retry_count = attributes.retry_count;
  if (has(kAttrRnrRetry)) current.rnr_retry = attributes.rnr_retry;
  if (has(kAttrRqPsn)) current.rq_psn = attributes.rq_psn;
  if (has(kAttrMaxRdAtomic)) current.max_rd_atomic = attributes.max_rd_atomic;
  if (has(kAttrMinRnrTimer)) current.min_rnr_timer = attributes.min_rnr_timer;
  if (has(kAttrSqPsn)) current.sq_psn = attributes.sq_psn;
  if (has(kAttrMaxDestRdAtomic)) current.max_dest_rd_atomic = attributes.max_dest_rd_atomic;
  if (has(kAttrDestinationQpn)) current.destination_qpn = attributes.destination_qpn;
}

const char* to_string(QpState state) {
  switch (state) {
    case kReset:
      return "RESET";
    case kInit:
      return "INIT";
    case kRtr:
      return "RTR";
    case kRts:
      return "RTS";
    case kSqd:
      return "SQD";
    case kSqe:
      return "SQE";
    case kErr:
      return "ERR";
  }
  return "unknown state";
}

const char* to_string(QpType type) {
  switch (type) {
    case kRc:
      return "RC";
    case kUc:
      return "UC";
    case kUd:
      return "UD";
    case kGsi:
      return "GSI";
  }
  return "unknown type";
}

}  // namespace farverbs::model
