// The verbs state machine of a QP as a table: {type, from, to, required, optional attributes}.
// Source: IBTA vol. 1 section 10.3.1 and 11.2.5.2 tables, man ibv_modify_qp(3).
#pragma once

#include <cstdint>
#include <span>

#include "farverbs/base/result.h"
#include "farverbs/model/types.h"

namespace farverbs::model {

struct QpTransition {
  QpType type;
  QpState from;
  QpState to;
  uint32_t required;  // QpAttributeMask; state itself is understood
  uint32_t optional;
};

// Every allowed transition (any state to RESET and to ERR included).
std::span<const QpTransition> qp_transitions();
const QpTransition* find_transition(QpType type, QpState from, QpState to);

struct QpLimits {
  uint8_t max_rd_atomic = 128;
  uint8_t max_dest_rd_atomic = 128;
  PathMtu max_path_mtu = PathMtu::k4096;
  uint16_t pkey_count = 1;
  uint8_t port_count = 1;
  unsigned gid_count = 1;
};

// Checks a modify request against the table and the values' ranges. Changes nothing. The error
// (EINVAL) names the attribute that is missing, not allowed or out of range, and the transition.
Result<void> check_modify(QpType type, QpState current, const QpAttributes& attributes,
                          uint32_t mask, const QpLimits& limits);
// Copies the attributes that the mask names into `current` (state excluded).
void apply_attributes(QpAttributes& current, const QpAttributes& attributes, uint32_t mask);

// Of one QpAttributeMask bit: the field of QpAttributes that it stands for.
const char* attribute_name(uint32_t bit);
const char* to_string(QpState state);
const char* to_string(QpType type);

}  // namespace farverbs::model
