// For tests and the fuzzer: a message of the connection manager parses and re-emits to its bytes.
#pragma once

#include <algorithm>
#include <vector>

#include "farverbs/wire/cm_messages.h"

namespace farverbs::wire {

template <class Message>
bool reemits_as(std::span<const std::byte> mad) {
  Mad again;
  emit_header(parse_header<MadHeader>(mad.data()), again.data());
  emit_header(cm_body<Message>(mad), again.data() + MadHeader::kSize);
  return std::equal(mad.begin(), mad.end(), again.begin(), again.end());
}

// True if it does; `mad` is one that cm_header() takes.
inline bool reemits(std::span<const std::byte> mad) {
  switch (static_cast<CmAttribute>(cm_header(mad)->attribute)) {
    case CmAttribute::req:
      return reemits_as<CmReq>(mad);
    case CmAttribute::mra:
      return reemits_as<CmMra>(mad);
    case CmAttribute::rej:
      return reemits_as<CmRej>(mad);
    case CmAttribute::rep:
      return reemits_as<CmRep>(mad);
    case CmAttribute::rtu:
      return reemits_as<CmRtu>(mad);
    case CmAttribute::dreq:
      return reemits_as<CmDreq>(mad);
    case CmAttribute::drep:
      return reemits_as<CmDrep>(mad);
    case CmAttribute::sidr_req:
      return reemits_as<CmSidrReq>(mad);
    case CmAttribute::sidr_rep:
      return reemits_as<CmSidrRep>(mad);
    case CmAttribute::lap:
      return reemits_as<CmLap>(mad);
    case CmAttribute::apr:
      return reemits_as<CmApr>(mad);
  }
  return false;
}

}  // namespace farverbs::wire
