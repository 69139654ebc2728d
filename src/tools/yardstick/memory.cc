// What moves memory: memcpy, and TCP between cold buffers. Cold means larger than any cache, with
// its pages present: each side has touched every page of its region before, and a round goes
// through the whole region once, so that no byte is in a cache when its turn comes, and no page
// faults.
#include <sys/mman.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "farverbs/io/os_clock.h"
#include "tools/yardstick/side.h"

namespace farverbs::tools::yardstick {
namespace {

// Memory that is present, page by page.
class Region {
 public:
  explicit Region(size_t size) : size_(size) {
    void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return;
    data_ = static_cast<std::byte*>(memory);
    std::memset(data_, 0x5A, size);
  }
  ~Region() {
    if (data_ != nullptr) munmap(data_, size_);
  }
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;
  std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  Result<void> check() const {
    if (data_ != nullptr) return {};
    return Error{ENOMEM, "no memory for a region of " + std::to_string(size_) + " bytes"};
  }

 private:
  size_t size_;
  std::byte* data_ = nullptr;
};

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

Result<Json> cold_client(Control& control, const Settings& settings) {
  FV_ASSIGN(const io::FileDescriptor fd, data_tcp_client(control, settings));
  const Region region(settings.region);
  FV_TRY(region.check());
  std::vector<double> rates;
  double cpu_total = 0;
  for (size_t round = 0; round < settings.rounds; ++round) {
    FV_TRY(control.receive());  // the server's region is ready
    const double cpu = thread_cpu_seconds();
    const Time start = io::os_now();
    for (size_t at = 0; at < region.size();) {
      const size_t size = std::min(settings.chunk, region.size() - at);
      const ssize_t n = ::send(fd.get(), region.data() + at, size, MSG_NOSIGNAL);
      if (n < 0) return Error::from_errno("cannot send");
      at += static_cast<size_t>(n);
    }
    FV_TRY(control.receive());  // the server has everything
    const double seconds = (io::os_now() - start).to_seconds();
    cpu_total += thread_cpu_seconds() - cpu;
    rates.push_back(static_cast<double>(region.size()) * 8 / seconds);
  }
  return Json{{"bits_per_second", median(rates)},
              {"rounds_bits_per_second", rates},
              {"bytes", region.size() * settings.rounds},
              {"cpu_seconds", cpu_total}};
}

Result<Json> cold_server(Control& control, const Settings& settings) {
  FV_ASSIGN(const io::FileDescriptor fd, data_tcp_server(control, settings));
  const Region region(settings.region);
  FV_TRY(region.check());
  double cpu_total = 0;
  for (size_t round = 0; round < settings.rounds; ++round) {
    FV_TRY(control.send({{"ready", round}}));
    const double cpu = thread_cpu_seconds();
    for (size_t at = 0; at < region.size();) {
      const size_t size = std::min(settings.chunk, region.size() - at);
      const ssize_t n = ::recv(fd.get(), region.data() + at, size, 0);
      if (n <= 0) return Error{ECONNRESET, "the client is gone"};
      at += static_cast<size_t>(n);
    }
    cpu_total += thread_cpu_seconds() - cpu;
    FV_TRY(control.send({{"received", round}}));
  }
  return Json{{"bytes", region.size() * settings.rounds}, {"cpu_seconds", cpu_total}};
}

}  // namespace

const Yardstick kTcpCold{"tcp-cold", cold_client, cold_server};

Json measure_memcpy(const std::vector<size_t>& sizes, double seconds_each) {
  Json result = Json::array();
  for (const size_t size : sizes) {
    const Region from(size);
    const Region to(size);
    if (!from.check().ok() || !to.check().ok() || size == 0) continue;
    // The clock is read about once per megabyte.
    const size_t copies_a_look = std::max<size_t>(1, (size_t{1} << 20) / size);
    uint64_t copies = 0;
    const Time start = io::os_now();
    const Time end = start + Duration::from_seconds(seconds_each);
    Time now = start;
    do {
      for (size_t i = 0; i < copies_a_look; ++i) {
        std::memcpy(to.data(), from.data(), size);
        asm volatile("" : : "r"(to.data()) : "memory");  // every copy counts for the compiler
      }
      copies += copies_a_look;
      now = io::os_now();
    } while (now < end);
    const double bytes = static_cast<double>(copies) * static_cast<double>(size);
    result.push_back({{"size", size}, {"bytes_per_second", bytes / (now - start).to_seconds()}});
  }
  return result;
}

}  // namespace farverbs::tools::yardstick
