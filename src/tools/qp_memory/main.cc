// farverbs_qp_memory: bytes per idle connected RC queue pair, as JSON. Two devices of this process
// are connected by many queue pairs over loopback. Their memory is taken twice: when they are
// connected and have never been used, and when each has carried a message and has been idle for
// some seconds. It is counted twice as well: by asking the allocator (which holds the queue pairs,
// the tables and handles that know them, and the allocator's own losses), and by asking each queue
// pair. Not installed.
#include <malloc.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "farverbs/io/os_clock.h"
#include "farverbs/verbs/state.h"
#include "farverbs/verbs/verbs.h"
#include "tools/common/json_fields.h"

namespace {

using namespace farverbs;
using farverbs::tools::Json;

constexpr uint16_t kPort = 4789;
constexpr uint32_t kRing = 4;  // requests: the user's choice, and taken off
constexpr Duration kPatience = Duration::seconds(10);
// What only busy queue pairs need goes back after a second or two without packets.
constexpr Duration kIdle = proto::kQuiet * 3;

struct Memory {
  uint64_t heap = 0;
  uint64_t resident = 0;
};

Memory take_memory() {
  const struct mallinfo2 info = ::mallinfo2();
  uint64_t pages = 0;
  if (FILE* file = std::fopen("/proc/self/statm", "r"); file != nullptr) {
    unsigned long long size = 0;
    unsigned long long resident = 0;
    if (std::fscanf(file, "%llu %llu", &size, &resident) == 2) pages = resident;
    std::fclose(file);
  }
  return {info.uordblks + info.hblkhd, pages * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE))};
}

// One of the two devices, with its half of the queue pairs.
struct Side {
  verbs::Device device;
  verbs::ProtectionDomain pd;
  verbs::CompletionQueue cq;
  verbs::MemoryRegion region;
  std::vector<verbs::QueuePair> qps;

  static Result<Side> open(const IpAddress& address, uint16_t port, uint32_t count) {
    verbs::DeviceOptions options;
    options.address = address;
    options.udp_port = port;
    options.share_port = false;
    options.background_progress = false;
    FV_ASSIGN(verbs::Device device, verbs::Device::open(options));
    FV_ASSIGN(verbs::ProtectionDomain pd, device.allocate_pd());
    FV_ASSIGN(verbs::CompletionQueue cq, device.create_cq(2 * kRing * count));
    FV_ASSIGN(verbs::MemoryRegion region,
              pd.allocate_memory(4096, model::kLocalWrite | model::kRemoteWrite));
    std::vector<verbs::QueuePair> qps;
    qps.reserve(count);
    return Side{std::move(device), std::move(pd), std::move(cq), std::move(region), std::move(qps)};
  }

  Result<void> create_qp() {
    verbs::QueuePairInit init;
    init.send_cq = init.receive_cq = &cq;
    init.capabilities.max_send_wr = init.capabilities.max_recv_wr = kRing;
    FV_ASSIGN(verbs::QueuePair qp, pd.create_qp(init));
    qps.push_back(std::move(qp));
    return {};
  }

  // All queue pairs of the side.
  proto::QueuePair::Footprint footprint() const {
    proto::QueuePair::Footprint sum{0, 0};
    for (const auto& shard : device.state()->shards) {
      shard->with_loop([&](engine::Loop& loop, Time) {
        loop.for_each_qp([&](const engine::LoopQp& qp) {
          const proto::QueuePair::Footprint one = qp.pair.footprint();
          sum.total_bytes += one.total_bytes;
          sum.ring_bytes += one.ring_bytes;
        });
      });
    }
    return sum;
  }
};

Result<void> connect_all(Side& a, Side& b, uint32_t count) {
  for (uint32_t i = 0; i < count; ++i) {
    FV_TRY(a.create_qp());
    FV_TRY(b.create_qp());
    FV_TRY(a.qps[i].connect(b.qps[i].address()));
    FV_TRY(b.qps[i].connect(a.qps[i].address()));
  }
  return {};
}

// A WRITE of `from` to `to` over one queue pair, to its completion.
Result<void> write_once(Side& from, Side& to, size_t i) {
  const verbs::ScatterGatherElement sge = from.region.sge(0, 64);
  verbs::SendWorkRequest request;
  request.opcode = verbs::SendOpcode::kWrite;
  request.flags = model::kSignaled;
  request.sges = {&sge, 1};
  request.remote_address = to.region.address();
  request.remote_key = to.region.rkey();
  FV_TRY(from.qps[i].post_send(request));
  const Time deadline = io::os_now() + kPatience;
  verbs::WorkCompletion completion;
  while (from.cq.poll({&completion, 1}) == 0) {
    to.device.progress();
    if (io::os_now() > deadline) return Error{ETIMEDOUT, "a WRITE over loopback did not complete"};
  }
  if (completion.status == verbs::CompletionStatus::kSuccess) return {};
  return Error{EIO,
               std::string("a WRITE over loopback failed: ") + model::to_string(completion.status)};
}

Json per_qp(const Memory& before, const Side& a, const Side& b) {
  const Memory now = take_memory();
  const auto count = static_cast<double>(a.qps.size() + b.qps.size());
  const proto::QueuePair::Footprint at_a = a.footprint();
  const proto::QueuePair::Footprint at_b = b.footprint();
  const double rings = static_cast<double>(at_a.ring_bytes + at_b.ring_bytes) / count;
  const double objects = static_cast<double>(at_a.total_bytes + at_b.total_bytes) / count - rings;
  const double heap = static_cast<double>(now.heap - before.heap) / count;
  const double resident =
      (static_cast<double>(now.resident) - static_cast<double>(before.resident)) / count;
  return {{"bytes_per_qp", heap - rings},
          {"footprint_bytes", objects},
          {"ring_bytes", rings},
          {"heap_bytes_per_qp", heap},
          {"resident_bytes_per_qp", resident}};
}

void let_rest(Side& a, Side& b) {
  for (const Time end = io::os_now() + kIdle; io::os_now() < end;) {
    ::usleep(20'000);
    a.device.progress();
    b.device.progress();
  }
}

Result<Json> measure(const IpAddress& address, uint32_t count) {
  FV_ASSIGN(Side a, Side::open(address, kPort, count));
  FV_ASSIGN(Side b, Side::open(address, kPort + 1, count));
  const Memory before = take_memory();
  FV_TRY(connect_all(a, b, count));
  const Json connected = per_qp(before, a, b);
  for (size_t i = 0; i < count; ++i) {
    FV_TRY(write_once(a, b, i));
    FV_TRY(write_once(b, a, i));
  }
  const Json used = per_qp(before, a, b);
  let_rest(a, b);
  Json result = per_qp(before, a, b);
  result["just_used"] = used;
  result["queue_pairs"] = a.qps.size() + b.qps.size();
  result["never_used"] = connected;
  return result;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Bytes of memory per idle connected RC queue pair, as JSON");
  uint32_t count = 10'000;
  double most = 0;
  std::string address_text = "127.0.0.1";
  app.add_option("--qps", count, "Connections; each has a queue pair at both ends")
      ->check(CLI::Range(1u, 60'000u))
      ->capture_default_str();
  app.add_option("--address", address_text, "Local address of both ends")->capture_default_str();
  app.add_option("--most", most, "Fail if an idle queue pair takes more bytes");
  CLI11_PARSE(app, argc, argv);
  const auto address = IpAddress::parse(address_text);
  const Result<Json> result =
      address.ok() ? measure(*address, count) : Result<Json>(address.error());
  if (!result.ok()) {
    std::fprintf(stderr, "farverbs_qp_memory: %s\n", result.error().message.c_str());
    return 1;
  }
  std::printf("%s\n", result->dump().c_str());
  if (most > 0 && result->at("bytes_per_qp").get<double>() > most) {
    std::fprintf(stderr, "farverbs_qp_memory: more than %g bytes\n", most);
    return 1;
  }
  return 0;
}
