// What the yardsticks have in common: the shape of one, its sockets, and the CPU time of a thread.
#pragma once

#include <sys/resource.h>

#include "farverbs/io/file_descriptor.h"
#include "tools/common/latency_histogram.h"
#include "tools/yardstick/control.h"
#include "tools/yardstick/yardsticks.h"

namespace farverbs::tools::yardstick {

// Client and server first exchange what they need over the control connection, then measure; a
// server ends when the client sends its next message.
struct Yardstick {
  const char* name;
  Result<Json> (*client)(Control& control, const Settings& settings);
  Result<Json> (*server)(Control& control, const Settings& settings);
};

extern const Yardstick kUdpPingPong;
extern const Yardstick kTcpPingPong;
extern const Yardstick kGsoBlast;
extern const Yardstick kMmsgRate;
extern const Yardstick kTcpCold;
extern const Yardstick kPortPingPong;
extern const Yardstick kPortBlast;

// User and system time of the calling thread: each side of a yardstick is one.
inline double thread_cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_THREAD, &usage);
  const auto of = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  return of(usage.ru_utime) + of(usage.ru_stime);
}

// UDP sockets of both sides, connected to each other: the kernel's fastest way. Big buffers.
Result<io::FileDescriptor> connected_udp(Control& control);

// A TCP connection beside the control connection. TCP_NODELAY is set.
Result<io::FileDescriptor> data_tcp_server(Control& control, const Settings& settings);
Result<io::FileDescriptor> data_tcp_client(Control& control, const Settings& settings);

// Count, minimum, mean and percentiles, in microseconds.
Json round_trips(const LatencyHistogram& histogram);

// Blocking receives return after so long, for the loop to look whether it shall end.
void set_receive_timeout(int fd, int milliseconds);

}  // namespace farverbs::tools::yardstick
