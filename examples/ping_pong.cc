// SEND and RECEIVE: a message goes back and forth, and the client prints the mean round trip time.
// Usage: ping_pong server [PORT] | ping_pong client HOST [PORT]
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "farverbs/verbs/rendezvous.h"
#include "farverbs/verbs/verbs.h"

using namespace farverbs;
using namespace farverbs::verbs;

constexpr int kRounds = 1000;
constexpr uint32_t kMessageBytes = 64;

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

void post_receive(QueuePair& qp, const MemoryRegion& memory) {
  const ScatterGatherElement sge = memory.sge(kMessageBytes, kMessageBytes);
  must(qp.post_receive(ReceiveWorkRequest{.sges = {&sge, 1}}));
}

void send(QueuePair& qp, const MemoryRegion& memory) {
  const ScatterGatherElement sge = memory.sge(0, kMessageBytes);
  SendWorkRequest request;
  request.flags = model::kSignaled;
  request.sges = {&sge, 1};
  must(qp.post_send(request));
}

// What has completed so far.
struct Totals {
  int arrived = 0;
  int acknowledged = 0;
};

// Polls until so many messages have arrived and been acknowledged altogether. An acknowledgement
// may come after the answer to the message that it is about.
void await(CompletionQueue& cq, Totals& totals, const Totals& wanted) {
  while (totals.arrived < wanted.arrived || totals.acknowledged < wanted.acknowledged) {
    WorkCompletion completion;
    if (cq.poll({&completion, 1}) == 0) continue;
    if (completion.status != CompletionStatus::kSuccess) {
      std::fprintf(stderr, "failed: %s\n", model::to_string(completion.status));
      std::exit(1);
    }
    ++(completion.opcode == CompletionOpcode::kReceive ? totals.arrived : totals.acknowledged);
  }
}

int main(int argc, char** argv) {
  const bool server = argc >= 2 && std::string(argv[1]) == "server";
  if (!server && !(argc >= 3 && std::string(argv[1]) == "client")) {
    std::fprintf(stderr, "usage: %s server [PORT] | client HOST [PORT]\n", argv[0]);
    return 2;
  }
  const int port_at = server ? 2 : 3;
  const auto port = static_cast<uint16_t>(argc > port_at ? std::atoi(argv[port_at]) : 7471);
  Rendezvous peer = server ? must(must(RendezvousListener::listen(IpAddress(), port)).accept())
                           : must(Rendezvous::connect(argv[2], port, Duration::seconds(10)));
  Device device = must(Device::open({.address = peer.local_address()}));
  ProtectionDomain pd = must(device.allocate_pd());
  CompletionQueue cq = must(device.create_cq(16));
  MemoryRegion memory = must(pd.allocate_memory(2 * kMessageBytes, model::kLocalWrite));
  QueuePairInit init;
  init.send_cq = init.receive_cq = &cq;
  init.capabilities = {.max_send_wr = 4, .max_recv_wr = 4};
  QueuePair qp = must(pd.create_qp(init));
  must(qp.connect(must(peer.exchange(qp.address(), Duration::seconds(10)))));
  post_receive(qp, memory);
  must(peer.send("ready"));  // a message may come only once a receive is posted for it
  must(peer.receive());

  const auto begin = std::chrono::steady_clock::now();
  Totals totals;
  for (int round = 0; round < kRounds; ++round) {
    if (!server) send(qp, memory);
    await(cq, totals, {round + 1, round});
    post_receive(qp, memory);
    if (server) send(qp, memory);
  }
  await(cq, totals, {kRounds, kRounds});
  const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - begin;
  if (!server) std::printf("%d round trips, %.1f us each\n", kRounds, took.count() / kRounds);
  must(peer.send("done"));
  must(peer.receive());
  return 0;
}
