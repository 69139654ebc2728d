// A one-way stream over UDP: as segmented super-buffers (GSO to GRO), or as small messages, many a
// call (sendmmsg to recvmmsg). A window of calls bounds what is under way, for a stream that
// overruns its receiver measures how fast packets are thrown away; the receiver returns credit four
// times a window.
#include <netinet/in.h>
#include <netinet/udp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <vector>

#include "farverbs/io/os_clock.h"
#include "tools/yardstick/side.h"

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif
#ifndef UDP_GRO
#define UDP_GRO 104
#endif

namespace farverbs::tools::yardstick {
namespace {

constexpr size_t kBufferBytes = 64 << 10;
constexpr Duration kStalled =
    Duration::milliseconds(20);  // the credit was lost, or what it was for

// Grants the messages of the window; credit comes as the total of messages received.
class Credit {
 public:
  Credit(int fd, uint64_t window) : fd_(fd), window_(window) {}
  // Waits until `sent` messages may have been sent.
  void wait_for(uint64_t sent) {
    while (window_ > 0 && sent > credited_ + window_) {
      uint64_t total = 0;
      if (::recv(fd_, &total, sizeof total, 0) == static_cast<ssize_t>(sizeof total)) {
        credited_ = std::max(credited_, total + forgiven_);
      } else {
        const uint64_t missing = sent - window_ - credited_;
        credited_ += missing;  // goes on, as if lost messages had arrived
        forgiven_ += missing;
        ++stalls_;
      }
    }
  }
  uint64_t stalls() const { return stalls_; }

 private:
  int fd_;
  uint64_t window_;
  uint64_t credited_ = 0;
  uint64_t forgiven_ = 0;
  uint64_t stalls_ = 0;
};

struct Arrivals {
  uint64_t messages = 0;
  uint64_t bytes = 0;
  Time first;
  Time last;
  uint64_t credited = 0;

  void add(uint64_t more_messages, uint64_t more_bytes) {
    last = io::os_now();
    if (messages == 0) first = last;
    messages += more_messages;
    bytes += more_bytes;
  }
  void give_credit(int fd, uint64_t window) {
    if (window == 0 || messages - credited < std::max<uint64_t>(window / 4, 1)) return;
    credited = messages;
    [[maybe_unused]] const ssize_t sent = ::send(fd, &credited, sizeof credited, 0);
  }
  Json to_json(double cpu) const {
    const double seconds = (last - first).to_seconds();
    const auto rate = [&](double amount) { return seconds > 0 ? amount / seconds : 0; };
    return {{"messages", messages},
            {"bytes", bytes},
            {"seconds", seconds},
            {"bits_per_second", rate(static_cast<double>(bytes) * 8)},
            {"messages_per_second", rate(static_cast<double>(messages))},
            {"cpu_seconds", cpu}};
  }
};

template <typename SendCall>
Result<Json> stream(int fd, const Settings& settings, SendCall send_call) {
  set_receive_timeout(fd, static_cast<int>(kStalled.ns() / 1'000'000));
  Credit credit(fd, settings.window * settings.batch);
  uint64_t sent = 0;
  const double cpu = thread_cpu_seconds();
  const Time end = io::os_now() + Duration::from_seconds(settings.seconds);
  while (io::os_now() < end) {
    credit.wait_for(sent + settings.batch);
    const ssize_t messages = send_call();
    if (messages < 0) {
      if (errno == EAGAIN || errno == ENOBUFS || errno == ECONNREFUSED) continue;
      return Error::from_errno("cannot send");
    }
    sent += static_cast<uint64_t>(messages);
  }
  return Json{
      {"messages", sent}, {"stalls", credit.stalls()}, {"cpu_seconds", thread_cpu_seconds() - cpu}};
}

Result<Json> gso_client(Control& control, const Settings& settings) {
  FV_ASSIGN(const io::FileDescriptor fd, connected_udp(control));
  const int segment = static_cast<int>(settings.size);
  if (setsockopt(fd.get(), IPPROTO_UDP, UDP_SEGMENT, &segment, sizeof segment) != 0) {
    return Error::from_errno("this kernel has no UDP segmentation offload");
  }
  const std::vector<std::byte> buffer(settings.size * settings.batch);
  return stream(fd.get(), settings, [&]() -> ssize_t {
    const ssize_t n = ::send(fd.get(), buffer.data(), buffer.size(), 0);
    return n < 0 ? n : static_cast<ssize_t>(settings.batch);
  });
}

Result<Json> gso_server(Control& control, const Settings& settings) {
  FV_ASSIGN(const io::FileDescriptor fd, connected_udp(control));
  const int on = 1;
  setsockopt(fd.get(), IPPROTO_UDP, UDP_GRO, &on, sizeof on);
  set_receive_timeout(fd.get(), 10);
  std::vector<std::byte> buffer(kBufferBytes);
  Arrivals arrivals;
  const StopCheck stop(control);
  const double cpu = thread_cpu_seconds();
  for (;;) {
    const ssize_t n = ::recv(fd.get(), buffer.data(), buffer.size(), 0);
    if (n < 0) {
      if (stop.now()) break;
      continue;
    }
    const auto bytes = static_cast<size_t>(n);
    arrivals.add((bytes + settings.size - 1) / settings.size, bytes);
    arrivals.give_credit(fd.get(), settings.window * settings.batch);
  }
  return arrivals.to_json(thread_cpu_seconds() - cpu);
}

// The messages of one sendmmsg or recvmmsg call.
struct Batch {
  std::vector<std::byte> memory;
  std::vector<iovec> data;
  std::vector<mmsghdr> headers;

  explicit Batch(const Settings& settings)
      : memory(settings.size * settings.batch), data(settings.batch), headers(settings.batch) {
    for (size_t i = 0; i < settings.batch; ++i) {
      data[i] = {memory.data() + i * settings.size, settings.size};
      headers[i].msg_hdr.msg_iov = &data[i];
      headers[i].msg_hdr.msg_iovlen = 1;
    }
  }
};

Result<Json> mmsg_client(Control& control, const Settings& settings) {
  FV_ASSIGN(const io::FileDescriptor fd, connected_udp(control));
  Batch batch(settings);
  return stream(fd.get(), settings, [&]() -> ssize_t {
    return ::sendmmsg(fd.get(), batch.headers.data(), static_cast<unsigned>(settings.batch), 0);
  });
}

Result<Json> mmsg_server(Control& control, const Settings& settings) {
  FV_ASSIGN(const io::FileDescriptor fd, connected_udp(control));
  set_receive_timeout(fd.get(), 10);
  Batch batch(settings);
  Arrivals arrivals;
  const StopCheck stop(control);
  const double cpu = thread_cpu_seconds();
  for (;;) {
    const int n = ::recvmmsg(fd.get(), batch.headers.data(), static_cast<unsigned>(settings.batch),
                             MSG_WAITFORONE, nullptr);
    if (n < 0) {
      if (stop.now()) break;
      continue;
    }
    arrivals.add(static_cast<uint64_t>(n), static_cast<uint64_t>(n) * settings.size);
    arrivals.give_credit(fd.get(), settings.window * settings.batch);
  }
  return arrivals.to_json(thread_cpu_seconds() - cpu);
}

}  // namespace

const Yardstick kGsoBlast{"gso-blast", gso_client, gso_server};
const Yardstick kMmsgRate{"mmsg-rate", mmsg_client, mmsg_server};

}  // namespace farverbs::tools::yardstick
