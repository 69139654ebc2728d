// Capture files from arbitrary bytes; see packet_check.h.
#include "farverbs/wire/packet_check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  farverbs::wire::check_capture(std::as_bytes(std::span(data, size)));
  return 0;
}
