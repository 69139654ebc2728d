// A shared counter: each client adds to a number in the server's memory with FETCH_ADD. The
// additions are atomic, so none is lost however many clients there are, and the server's code sees
// none of them. Usage: atomic_counter server [PORT [CLIENTS]] | atomic_counter client HOST [PORT]
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "farverbs/verbs/rendezvous.h"
#include "farverbs/verbs/verbs.h"

using namespace farverbs;
using namespace farverbs::verbs;

constexpr int kAdditions = 1000;
constexpr Duration kPatience = Duration::seconds(10);

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

QueuePair make_qp(ProtectionDomain& pd, const CompletionQueue& cq) {
  QueuePairInit init;
  init.send_cq = init.receive_cq = &cq;
  init.capabilities = {.max_send_wr = 16, .max_recv_wr = 1};
  return must(pd.create_qp(init));
}

int serve(uint16_t port, int clients) {
  RendezvousListener listener = must(RendezvousListener::listen(IpAddress(), port));
  std::vector<Rendezvous> peers;
  for (int i = 0; i < clients; ++i) peers.push_back(must(listener.accept()));
  Device device = must(Device::open({.address = peers.front().local_address()}));
  ProtectionDomain pd = must(device.allocate_pd());
  CompletionQueue cq = must(device.create_cq(16));
  MemoryRegion counter =
      must(pd.allocate_memory(sizeof(uint64_t), model::kLocalWrite | model::kRemoteAtomic));
  std::vector<QueuePair> qps;
  for (Rendezvous& peer : peers) {
    QueuePair& qp = qps.emplace_back(make_qp(pd, cq));
    must(qp.connect(must(peer.exchange(qp.address(), kPatience))));
    must(peer.send(std::to_string(counter.address()) + " " +
                   std::to_string(counter.rkey().value())));
  }
  for (Rendezvous& peer : peers) must(peer.receive());
  const uint64_t total = __atomic_load_n(static_cast<uint64_t*>(counter.data()), __ATOMIC_ACQUIRE);
  std::printf("the counter is %llu\n", static_cast<unsigned long long>(total));
  return total == static_cast<uint64_t>(clients) * kAdditions ? 0 : 1;
}

int count(const char* host, uint16_t port) {
  Rendezvous peer = must(Rendezvous::connect(host, port, kPatience));
  Device device = must(Device::open({.address = peer.local_address()}));
  ProtectionDomain pd = must(device.allocate_pd());
  CompletionQueue cq = must(device.create_cq(16));
  MemoryRegion before = must(pd.allocate_memory(sizeof(uint64_t), model::kLocalWrite));
  QueuePair qp = make_qp(pd, cq);
  must(qp.connect(must(peer.exchange(qp.address(), kPatience))));
  unsigned long long address = 0;
  unsigned key = 0;
  if (std::sscanf(must(peer.receive()).c_str(), "%llu %u", &address, &key) != 2) return 1;
  const ScatterGatherElement sge = before.sge(0, sizeof(uint64_t));
  SendWorkRequest add;
  add.opcode = SendOpcode::kFetchAdd;
  add.flags = model::kSignaled;
  add.sges = {&sge, 1};
  add.remote_address = address;
  add.remote_key = MemoryKey(key);
  add.compare_add = 1;
  for (int i = 0; i < kAdditions; ++i) {
    must(qp.post_send(add));
    WorkCompletion completion;
    while (cq.wait({&completion, 1}) == 0) {
    }
    if (completion.status != CompletionStatus::kSuccess) return 1;
  }
  std::printf("the last addition found %llu\n", *static_cast<unsigned long long*>(before.data()));
  must(peer.send("done"));
  return 0;
}

int main(int argc, char** argv) {
  const std::string role = argc >= 2 ? argv[1] : "";
  const auto number = [&](int at, int otherwise) {
    return argc > at ? std::atoi(argv[at]) : otherwise;
  };
  if (role == "server") return serve(static_cast<uint16_t>(number(2, 7471)), number(3, 1));
  if (role == "client" && argc >= 3) return count(argv[2], static_cast<uint16_t>(number(3, 7471)));
  std::fprintf(stderr, "usage: %s server [PORT [CLIENTS]] | client HOST [PORT]\n", argv[0]);
  return 2;
}
