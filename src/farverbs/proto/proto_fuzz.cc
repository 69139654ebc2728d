#include "farverbs/proto/proto_fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  farverbs::proto::FuzzedPair({data, size}).run();
  return 0;
}
