// One-sided operations: the client writes into the server's memory and reads it back, while the
// server's process sleeps. Usage: one_sided server [PORT] | one_sided client HOST [PORT]
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "farverbs/verbs/rendezvous.h"
#include "farverbs/verbs/verbs.h"

using namespace farverbs;
using namespace farverbs::verbs;

constexpr uint64_t kBytes = 4096;

// The value, or the end of the program with the reason.
template <typename T>
T must(Result<T> result) {
  if (result.ok()) return std::move(result).value();
  std::fprintf(stderr, "%s\n", result.error().message.c_str());
  std::exit(1);
}
void must(Result<void> result) {
  if (!result.ok()) must<int>(result.error());
}

// Posts one request and waits for its completion.
void perform(QueuePair& qp, CompletionQueue& cq, SendOpcode opcode, ScatterGatherElement sge,
             uint64_t remote_address, MemoryKey remote_key) {
  SendWorkRequest request;
  request.opcode = opcode;
  request.flags = model::kSignaled;
  request.sges = {&sge, 1};
  request.remote_address = remote_address;
  request.remote_key = remote_key;
  must(qp.post_send(request));
  WorkCompletion completion;
  while (cq.wait({&completion, 1}) == 0) {
  }
  if (completion.status == CompletionStatus::kSuccess) return;
  std::fprintf(stderr, "failed: %s\n", model::to_string(completion.status));
  std::exit(1);
}

int main(int argc, char** argv) {
  const bool server = argc >= 2 && std::string(argv[1]) == "server";
  if (!server && !(argc >= 3 && std::string(argv[1]) == "client")) {
    std::fprintf(stderr, "usage: %s server [PORT] | client HOST [PORT]\n", argv[0]);
    return 2;
  }
  const int port_at = server ? 2 : 3;
  const auto port = static_cast<uint16_t>(argc > port_at ? std::atoi(argv[port_at]) : 7471);
  // The two processes meet over TCP, and use the device at the address where they met.
  Rendezvous peer = server ? must(must(RendezvousListener::listen(IpAddress(), port)).accept())
                           : must(Rendezvous::connect(argv[2], port, Duration::seconds(10)));
  Device device = must(Device::open({.address = peer.local_address()}));
  ProtectionDomain pd = must(device.allocate_pd());
  CompletionQueue cq = must(device.create_cq(16));
  MemoryRegion memory = must(
      pd.allocate_memory(kBytes, model::kLocalWrite | model::kRemoteWrite | model::kRemoteRead));
  QueuePairInit init;
  init.send_cq = init.receive_cq = &cq;
  init.capabilities = {.max_send_wr = 16, .max_recv_wr = 1};
  QueuePair qp = must(pd.create_qp(init));
  must(qp.connect(must(peer.exchange(qp.address(), Duration::seconds(10)))));

  if (server) {
    // Whoever knows address and key may write; then there is nothing left to do but to wait.
    must(peer.send(std::to_string(memory.address()) + " " + std::to_string(memory.rkey().value())));
    must(peer.receive());
    std::printf("a peer wrote: %s\n", static_cast<const char*>(memory.data()));
    return 0;
  }
  unsigned long long remote_address = 0;
  unsigned remote_key = 0;
  const std::string where = must(peer.receive());
  if (std::sscanf(where.c_str(), "%llu %u", &remote_address, &remote_key) != 2) return 1;
  const std::string text = "hello, remote memory";
  std::memcpy(memory.data(), text.c_str(), text.size() + 1);
  perform(qp, cq, SendOpcode::kWrite, memory.sge(0, 1024), remote_address, MemoryKey(remote_key));
  perform(qp, cq, SendOpcode::kRead, memory.sge(2048, 1024), remote_address, MemoryKey(remote_key));
  std::printf("read back: %s\n", reinterpret_cast<const char*>(memory.bytes().data()) + 2048);
  must(peer.send("done"));
  return std::memcmp(memory.bytes().data(), memory.bytes().data() + 2048, 1024) == 0 ? 0 : 1;
}
