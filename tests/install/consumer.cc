// A program of somebody else's that uses the installed library: registers memory on a soft NIC on
// loopback. The install test builds it with pkg-config and with find_package(Farverbs).
#include <cstdio>

#include "farverbs/verbs/rendezvous.h"
#include "farverbs/verbs/verbs.h"

namespace {

farverbs::Result<void> use() {
  using namespace farverbs;
  verbs::DeviceOptions options;
  FV_ASSIGN(options.address, IpAddress::parse("127.0.0.1"));
  FV_ASSIGN(auto device, verbs::Device::open(options));
  FV_ASSIGN(auto pd, device.allocate_pd());
  FV_ASSIGN(auto region, pd.allocate_memory(4096, model::kRemoteRead));
  std::printf("registered %zu bytes\n", region.bytes().size());
  return {};
}

}  // namespace

int main() {
  const farverbs::Result<void> result = use();
  if (!result.ok()) std::printf("consumer: %s\n", result.error().message.c_str());
  return result.ok() ? 0 : 1;
}
