// A message goes forth and back, over UDP or TCP, with both ends spinning on their sockets or both
// sleeping in them.
#include <sys/socket.h>

#include <cerrno>
#include <vector>

#include "farverbs/io/os_clock.h"
#include "tools/yardstick/side.h"

namespace farverbs::tools::yardstick {
namespace {

constexpr Duration kLost = Duration::milliseconds(200);
constexpr int kPauseMs = 10;  // after which a sleeping end looks around

// Receives a message of the buffer's size, or as much as came before `keep_on` said to end.
template <typename KeepOn>
bool receive_message(int fd, std::vector<std::byte>& buffer, bool spin, KeepOn keep_on) {
  size_t got = 0;
  while (got < buffer.size()) {
    const ssize_t n = ::recv(fd, buffer.data() + got, buffer.size() - got, spin ? MSG_DONTWAIT : 0);
    if (n > 0) {
      got += static_cast<size_t>(n);
    } else if (n == 0 || (errno != EAGAIN && errno != ECONNREFUSED) || !keep_on()) {
      return false;
    }
  }
  return true;
}

Result<Json> ping(int fd, const Settings& settings) {
  if (!settings.spin) set_receive_timeout(fd, kPauseMs);
  std::vector<std::byte> message(settings.size);
  LatencyHistogram histogram;
  uint64_t lost = 0;
  const double cpu = thread_cpu_seconds();
  const Time start = io::os_now();
  const Time end = start + Duration::from_seconds(settings.seconds);
  Time sent = start;
  while (sent < end) {
    if (::send(fd, message.data(), message.size(), MSG_NOSIGNAL) < 0 && errno != ECONNREFUSED) {
      return Error::from_errno("cannot send");
    }
    // The clock is read once a round trip, and once more in each while waiting in vain.
    const bool came =
        receive_message(fd, message, settings.spin, [&] { return io::os_now() - sent < kLost; });
    const Time now = io::os_now();
    if (came) {
      histogram.add(now - sent);
    } else {
      ++lost;
    }
    sent = now;
  }
  return Json{{"round_trip_us", round_trips(histogram)},
              {"lost", lost},
              {"seconds", (sent - start).to_seconds()},
              {"cpu_seconds", thread_cpu_seconds() - cpu}};
}

Result<Json> pong(Control& control, int fd, const Settings& settings) {
  if (!settings.spin) set_receive_timeout(fd, kPauseMs);
  std::vector<std::byte> message(settings.size);
  StopCheck stop(control);
  uint64_t count = 0;
  const double cpu = thread_cpu_seconds();
  while (receive_message(fd, message, settings.spin,
                         [&] { return !(settings.spin ? stop.while_spinning() : stop.now()); })) {
    ++count;
    if (::send(fd, message.data(), message.size(), MSG_NOSIGNAL) < 0 && errno != ECONNREFUSED) {
      break;
    }
  }
  return Json{{"count", count}, {"cpu_seconds", thread_cpu_seconds() - cpu}};
}

Result<Json> udp_client(Control& control, const Settings& settings) {
  FV_ASSIGN(const io::FileDescriptor fd, connected_udp(control));
  return ping(fd.get(), settings);
}

Result<Json> udp_server(Control& control, const Settings& settings) {
  FV_ASSIGN(const io::FileDescriptor fd, connected_udp(control));
  return pong(control, fd.get(), settings);
}

Result<Json> tcp_client(Control& control, const Settings& settings) {
  FV_ASSIGN(const io::FileDescriptor fd, data_tcp_client(control, settings));
  return ping(fd.get(), settings);
}

Result<Json> tcp_server(Control& control, const Settings& settings) {
  FV_ASSIGN(const io::FileDescriptor fd, data_tcp_server(control, settings));
  return pong(control, fd.get(), settings);
}

}  // namespace

const Yardstick kUdpPingPong{"udp-pingpong", udp_client, udp_server};
const Yardstick kTcpPingPong{"tcp-pingpong", tcp_client, tcp_server};

}  // namespace farverbs::tools::yardstick
