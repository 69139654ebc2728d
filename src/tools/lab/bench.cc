#include "tools/lab/bench.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstring>
#include <ctime>
#include <functional>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "farverbs/base/byte_order.h"
#include "tools/lab/process.h"

namespace farverbs::tools::lab {
namespace {

constexpr uint32_t kIpLength = 1500;
constexpr uint32_t kPayload = kIpLength - 28;
constexpr uint32_t kMostSegments = 44;  // 64 KB hold no more
constexpr uint16_t kPort = 9000;
constexpr int kUdpSegment = 103, kUdpGro = 104;   // linux/udp.h
constexpr uint64_t kWindow = 32 * kMostSegments;  // without a bottleneck, so that nothing overflows

struct Send {
  int64_t at_ns;
  uint32_t segments;
};

// What sender, receiver and the one who compares share. The arrays follow in the same mapping.
struct Shared {
  std::atomic<uint64_t> received{0};
  std::atomic<bool> ready{false};
  std::atomic<bool> done{false};
  uint64_t sends = 0;
  uint64_t sent = 0;
  uint64_t most = 0;  // packets that fit in the arrays
  int64_t* received_at = nullptr;
  Send* send = nullptr;
};

int64_t now_ns(clockid_t clock) {
  timespec t;
  ::clock_gettime(clock, &t);
  return int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

void sleep_until(int64_t ns) {
  const timespec until{static_cast<time_t>(ns / 1'000'000'000),
                       static_cast<long>(ns % 1'000'000'000)};
  ::clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr);
}

Result<Shared*> share(uint64_t packets) {
  const size_t bytes = sizeof(Shared) + packets * (sizeof(int64_t) + sizeof(Send));
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return Error::from_errno("cannot map memory for the benchmark");
  auto* shared = new (memory) Shared;
  shared->most = packets;
  shared->received_at = reinterpret_cast<int64_t*>(shared + 1);
  shared->send = reinterpret_cast<Send*>(shared->received_at + packets);
  return shared;
}

int udp_socket(const std::string& self, const std::string& peer) {
  const int fd = ::socket(AF_INET, SOCK_DGRAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(kPort);
  ::inet_pton(AF_INET, self.c_str(), &address.sin_addr);
  (void)::bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof address);
  ::inet_pton(AF_INET, peer.c_str(), &address.sin_addr);
  (void)::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address);
  return fd;
}

void send_burst(Shared& shared, int fd, uint32_t segments, std::vector<std::byte>& buffer) {
  segments = static_cast<uint32_t>(std::min<uint64_t>(segments, shared.most - shared.sent));
  for (uint32_t i = 0; i < segments; ++i) {
    store_be<uint32_t>(buffer.data() + size_t{i} * kPayload,
                       static_cast<uint32_t>(shared.sent + i));
  }
  const int64_t at = now_ns(CLOCK_REALTIME);
  if (::send(fd, buffer.data(), size_t{segments} * kPayload, 0) < 0) return;
  shared.send[shared.sends++] = {at, segments};
  shared.sent += segments;
}

// At a pace (`rate` in frames), or without one in a window.
int be_sender(Shared& shared, const NetPath& path, BitRate rate, double seconds) {
  if (!enter_end(path.a.netns).ok()) return 1;
  ::prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0);
  const int fd = udp_socket(path.a.address4, path.b.address4);
  const int segment = kPayload;
  if (::setsockopt(fd, IPPROTO_UDP, kUdpSegment, &segment, sizeof segment) != 0) return 1;
  std::vector<std::byte> buffer(size_t{kMostSegments} * kPayload);
  while (!shared.ready.load()) ::usleep(1000);
  ::usleep(200'000);  // the kernel starts to stamp packets a little after it is asked to
  const int64_t start = now_ns(CLOCK_MONOTONIC);
  const auto end = start + static_cast<int64_t>(seconds * 1e9);
  constexpr uint64_t kFrame = kIpLength + kFrameOverhead;
  const auto burst = static_cast<uint32_t>(
      std::clamp<uint64_t>(rate.bytes_for(Duration::microseconds(500)) / kFrame, 1, kMostSegments));
  int64_t progress_at = start;
  uint64_t progress = 0;
  while (now_ns(CLOCK_MONOTONIC) < end && shared.sent < shared.most) {
    if (!rate.is_zero()) {
      sleep_until(start + rate.time_for((shared.sent + burst) * kFrame).ns());
      send_burst(shared, fd, burst, buffer);
      continue;
    }
    const uint64_t received = shared.received.load();
    const int64_t now = now_ns(CLOCK_MONOTONIC);
    if (received != progress) progress_at = now;
    progress = received;
    if (shared.sent - received < kWindow) {
      send_burst(shared, fd, kMostSegments, buffer);
    } else if (now - progress_at > 20'000'000) {
      shared.received.fetch_add(shared.sent - received);  // lost: go on
    } else {
      ::usleep(20);
    }
  }
  return 0;
}

int64_t stamp_of(msghdr& message, int& segment) {
  int64_t at = 0;
  for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
    if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_TIMESTAMPNS) {
      timespec t;
      std::memcpy(&t, CMSG_DATA(c), sizeof t);
      at = int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
    }
    if (c->cmsg_level == IPPROTO_UDP && c->cmsg_type == kUdpGro) {
      std::memcpy(&segment, CMSG_DATA(c), sizeof segment);
    }
  }
  return at;
}

int be_receiver(Shared& shared, const NetPath& path) {
  if (!enter_end(path.b.netns).ok()) return 1;
  const int fd = udp_socket(path.b.address4, path.a.address4);
  const int on = 1, room = 64 << 20;
  const timeval patience{0, 100'000};
  ::setsockopt(fd, IPPROTO_UDP, kUdpGro, &on, sizeof on);
  ::setsockopt(fd, SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof on);
  ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  if (::setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &room, sizeof room) != 0) {
    ::setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &room, sizeof room);
  }
  std::vector<std::byte> buffer(65'536);
  alignas(cmsghdr) char control[128];
  shared.ready.store(true);
  while (true) {
    iovec piece{buffer.data(), buffer.size()};
    msghdr message{};
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    const ssize_t n = ::recvmsg(fd, &message, 0);
    if (n <= 0) {
      if (shared.done.load()) return 0;
      continue;
    }
    int segment = static_cast<int>(n);
    const int64_t at = stamp_of(message, segment);
    for (ssize_t offset = 0; offset + 4 <= n; offset += segment) {
      const uint32_t number = load_be<uint32_t>(buffer.data() + offset);
      if (number < shared.most) shared.received_at[number] = at;
      shared.received.fetch_add(1, std::memory_order_relaxed);
    }
  }
}

pid_t start(const std::function<int()>& body) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    ::_exit(body());
  }
  return pid;
}

// CPU seconds of a child that has ended; -1 if it failed.
double finish(pid_t pid) {
  int status = 0;
  rusage usage{};
  if (::wait4(pid, &status, 0, &usage) != pid || status != 0) return -1;
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

struct Part {
  Shared* shared = nullptr;
  LabStats stats;
  double sender_cpu = 0;
  double receiver_cpu = 0;
};

Result<Part> run_part(const EmulatorConfig& config, BitRate pace, double seconds,
                      uint64_t packets) {
  Part part;
  FV_ASSIGN(part.shared, share(packets));
  FV_ASSIGN(SharedStats* const stats, map_stats(-1));
  FV_ASSIGN(NetPath path, make_path(NetOptions{}));
  const pid_t self = ::getpid();
  const pid_t emulator = start([&] { return emulate(config, path, stats, self); });
  for (NetEnd* end : {&path.a, &path.b}) {
    ::close(end->tun);
    end->tun = -1;
  }
  const pid_t receiver = start([&] { return be_receiver(*part.shared, path); });
  const pid_t sender = start([&] { return be_sender(*part.shared, path, pace, seconds); });
  part.sender_cpu = finish(sender);
  const Duration longest = config.a_to_b.delay + Duration::milliseconds(200);
  ::usleep(static_cast<useconds_t>(longest.ns() / 1000));
  part.shared->done.store(true);
  part.receiver_cpu = finish(receiver);
  ::kill(emulator, SIGTERM);
  const bool worked = finish(emulator) >= 0 && stats->read(part.stats);
  close_end(path.a);
  close_end(path.b);
  if (!worked || part.sender_cpu < 0 || part.receiver_cpu < 0) {
    return Error{EIO, "a process of the benchmark failed"};
  }
  return part;
}

// The times at which packets should have arrived are those the same model gives.
void compare(const Part& part, const LinkConfig& config, BenchReport& report) {
  Link link(config);
  std::vector<double> errors;
  double sum = 0;
  uint64_t number = 0;
  for (uint64_t i = 0; i < part.shared->sends; ++i) {
    for (uint32_t k = 0; k < part.shared->send[i].segments; ++k, ++number) {
      const Fate fate = link.offer(Time::from_ns(part.shared->send[i].at_ns), kIpLength);
      const int64_t at = part.shared->received_at[number];
      if (fate.queue_drop || at == 0) continue;
      const double error = static_cast<double>(at - fate.due.ns()) * 1e-3;
      sum += error;
      errors.push_back(std::abs(error));
    }
  }
  report.compared = errors.size();
  if (errors.empty()) return;
  std::sort(errors.begin(), errors.end());
  report.error_p50_us = errors[errors.size() / 2];
  report.error_p99_us = errors[errors.size() * 99 / 100];
  report.bias_us = sum / static_cast<double>(errors.size());
}

}  // namespace

Result<BenchReport> run_bench(const EmulatorConfig& config, const BenchOptions& options) {
  const BitRate rate = config.a_to_b.rate;
  if (rate.is_zero()) return invalid("--rate: the benchmark needs a limited rate");
  BenchReport report;
  EmulatorConfig open;
  open.tick = config.tick;
  constexpr uint64_t kMostPerSecond = 5'000'000;
  FV_ASSIGN(const Part flood,
            run_part(open, BitRate(), options.seconds,
                     static_cast<uint64_t>(options.seconds * double{kMostPerSecond})));
  report.most_packets_per_second =
      static_cast<double>(flood.stats.a_to_b.packets_out) / options.seconds;
  report.most_bits_per_second = report.most_packets_per_second * kIpLength * 8;

  const auto pace = BitRate::bits_per_second(
      static_cast<uint64_t>(static_cast<double>(rate.bps()) * options.load));
  const uint64_t packets =
      pace.bytes_for(Duration::from_seconds(options.seconds)) / (kIpLength + kFrameOverhead) + 100;
  FV_ASSIGN(const Part paced, run_part(config, pace, options.seconds, packets));
  report.loaded = paced.stats;
  const double received = static_cast<double>(paced.shared->received.load());
  report.load_bits_per_second = received * (kIpLength + kFrameOverhead) * 8 / options.seconds;
  report.sender_cores = paced.sender_cpu / options.seconds;
  report.receiver_cores = paced.receiver_cpu / options.seconds;
  report.emulator_cores = static_cast<double>(paced.stats.cpu_ns) * 1e-9 / options.seconds;
  compare(paced, config.a_to_b, report);
  return report;
}

std::string to_text(const BenchReport& r) {
  const DirectionStats& d = r.loaded.a_to_b;
  std::string out = fmt::format("no bottleneck   {:.0f} thousand packets/s ({:.2f} Gb/s)\n",
                                r.most_packets_per_second * 1e-3, r.most_bits_per_second * 1e-9);
  out += fmt::format(
      "at the load     {:.0f} Mb/s, cores: emulator {:.2f}, sender {:.2f}, receiver {:.2f}\n",
      r.load_bits_per_second * 1e-6, r.emulator_cores, r.sender_cores, r.receiver_cores);
  out += fmt::format("delay error     p50 {:.0f} us, p99 {:.0f} us (the emulator's own measure)\n",
                     d.error.quantile(0.5).to_microseconds(),
                     d.error.quantile(0.99).to_microseconds());
  out += fmt::format(
      "end to end      p50 {:.0f} us, p99 {:.0f} us, bias {:+.0f} us (over {} packets)\n",
      r.error_p50_us, r.error_p99_us, r.bias_us, r.compared);
  for (const std::string& warning : overload_warnings(r.loaded))
    out += "WARNING: " + warning + "\n";
  return out;
}

nlohmann::json to_json(const BenchReport& r) {
  return {{"most_packets_per_second", r.most_packets_per_second},
          {"most_bits_per_second", r.most_bits_per_second},
          {"load_bits_per_second", r.load_bits_per_second},
          {"emulator_cores", r.emulator_cores},
          {"sender_cores", r.sender_cores},
          {"receiver_cores", r.receiver_cores},
          {"compared", r.compared},
          {"end_to_end_error_p50_us", r.error_p50_us},
          {"end_to_end_error_p99_us", r.error_p99_us},
          {"end_to_end_bias_us", r.bias_us},
          {"lab", to_json(r.loaded)}};
}

}  // namespace farverbs::tools::lab
