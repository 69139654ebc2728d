#include "farverbs/wire/roce.h"

namespace farverbs::wire {

const char* to_string(ParseError error) {
  switch (error) {
    case ParseError::none:
      return "no error";
    case ParseError::too_short:
      return "too short for a BTH and an ICRC";
    case ParseError::unknown_opcode:
      return "unknown opcode";
    case ParseError::bad_version:
      return "transport header version is not 0";
    case ParseError::bad_length:
      return "length is no multiple of 4";
    case ParseError::headers_cut:
      return "too short for the opcode's extended headers";
    case ParseError::bad_pad:
      return "more padding than payload";
    case ParseError::unexpected_payload:
      return "payload after headers that have none";
  }
  return "unknown error";
}

}  // namespace farverbs::wire
