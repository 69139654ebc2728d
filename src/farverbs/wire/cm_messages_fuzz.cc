// Management datagrams from arbitrary bytes: whatever is taken for a message is re-emitted as it
// was.
#include <cstdlib>

#include "farverbs/wire/cm_check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  if (farverbs::wire::cm_header(bytes) && !farverbs::wire::reemits(bytes)) std::abort();
  return 0;
}
