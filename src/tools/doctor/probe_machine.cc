#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <sstream>
#include <vector>

#include <fmt/format.h>

#include "tools/common/format.h"
#include "tools/common/latency_histogram.h"
#include "tools/common/process_usage.h"
#include "tools/doctor/finding.h"
#include "tools/doctor/system_file.h"

namespace farverbs::tools::doctor {
namespace {

std::vector<std::string> words(const std::string& text) {
  std::istringstream in(text);
  return {std::istream_iterator<std::string>(in), {}};
}

bool has(const std::vector<std::string>& list, const char* word) {
  return std::find(list.begin(), list.end(), word) != list.end();
}

Finding probe_kernel() {
  utsname name{};
  ::uname(&name);
  return {"kernel", Status::kOk, fmt::format("{} {} {}", name.sysname, name.release, name.machine),
          ""};
}

Finding probe_cores() {
  const long cores = ::sysconf(_SC_NPROCESSORS_ONLN);
  if (cores >= 2) return {"cores", Status::kOk, std::to_string(cores), ""};
  return {"cores", Status::kWarn, std::to_string(cores),
          "with one core an application that polls and its packet loop take turns"};
}

Finding probe_cpu() {
  const std::string info = read_file("/proc/cpuinfo").value_or("");
  const size_t begin = info.find("\nflags");
  const std::string line =
      begin == std::string::npos ? "" : info.substr(begin, info.find('\n', begin + 1) - begin);
  const std::vector<std::string> flags = words(line);
  std::string found;
  for (const char* feature : {"pclmulqdq", "avx2", "vpclmulqdq", "avx512f", "aes", "vaes"}) {
    if (has(flags, feature)) found += (found.empty() ? "" : " ") + std::string(feature);
  }
  if (has(flags, "vpclmulqdq")) return {"cpu", Status::kOk, found, ""};
  if (has(flags, "pclmulqdq")) {
    return {"cpu", Status::kOk, found + " (no vpclmulqdq: checksums at about half the speed)", ""};
  }
  return {"cpu", Status::kWarn, found.empty() ? "no carry-less multiplication" : found,
          "checksums of packets are computed slowly on this CPU"};
}

Finding probe_clock() {
  const std::string source =
      read_file("/sys/devices/system/clocksource/clocksource0/current_clocksource")
          .value_or("unknown");
  constexpr int kReads = 20'000;
  const Time begin = clock_now();
  for (int i = 0; i < kReads; ++i) (void)clock_now();
  const Duration each = (clock_now() - begin) / kReads;
  const std::string found = fmt::format("{}, {} a reading", source, format_duration(each));
  if (each < Duration::nanoseconds(200)) return {"clock", Status::kOk, found, ""};
  return {"clock", Status::kWarn, found,
          "reading the clock enters the kernel: boot with clocksource=tsc if the machine allows"};
}

// How late a sleep of 100 us wakes, with the least timer slack.
Finding probe_timer() {
  const int slack = ::prctl(PR_GET_TIMERSLACK);
  ::prctl(PR_SET_TIMERSLACK, 1UL);
  LatencyHistogram late;
  constexpr Duration kSleep = Duration::microseconds(100);
  for (int i = 0; i < 100; ++i) {
    const Time begin = clock_now();
    const timespec t{0, static_cast<long>(kSleep.ns())};
    ::nanosleep(&t, nullptr);
    late.add(clock_now() - begin - kSleep);
  }
  if (slack > 0) ::prctl(PR_SET_TIMERSLACK, static_cast<unsigned long>(slack));
  const std::string found =
      fmt::format("a sleep wakes {} late (p99 {})", format_duration(late.quantile(0.5)),
                  format_duration(late.quantile(0.99)));
  if (late.quantile(0.5) < Duration::microseconds(200)) return {"timer", Status::kOk, found, ""};
  return {"timer", Status::kWarn, found,
          "timers are coarse here: paced traffic leaves in larger bursts"};
}

Finding probe_descriptors() {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  const std::string found = fmt::format("{} open files", limit.rlim_cur);
  if (limit.rlim_cur >= 1024) return {"descriptors", Status::kOk, found, ""};
  return {"descriptors", Status::kWarn, found, "ulimit -n 1024 or more for servers"};
}

Finding probe_congestion_control() {
  const std::string found =
      read_file("/proc/sys/net/ipv4/tcp_available_congestion_control").value_or("");
  const std::vector<std::string> list = words(found);
  if (has(list, "cubic") && has(list, "bbr")) {
    return {"tcp_congestion_control", Status::kOk, found, ""};
  }
  return {"tcp_congestion_control", Status::kWarn, found.empty() ? "unknown" : found,
          "only for comparisons with TCP: modprobe tcp_bbr tcp_cubic"};
}

}  // namespace

std::vector<Finding> probe_machine() {
  return {probe_kernel(),
          probe_cores(),
          probe_cpu(),
          probe_clock(),
          probe_timer(),
          probe_descriptors(),
          probe_congestion_control()};
}

}  // namespace farverbs::tools::doctor
