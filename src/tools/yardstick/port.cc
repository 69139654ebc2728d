// The ping-pong and the stream again, over UdpPort: what the port itself costs, beside the bare
// figures of the same run.
#include <poll.h>

#include <algorithm>
#include <array>
#include <vector>

#include "farverbs/io/os_clock.h"
#include "farverbs/io/udp_port.h"
#include "tools/common/latency_histogram.h"
#include "tools/yardstick/side.h"

namespace farverbs::tools::yardstick {
namespace {

constexpr Duration kLost = Duration::milliseconds(200);
constexpr int kPauseMs = 10;

struct Side {
  std::unique_ptr<io::UdpPort> port;
  io::TxFlow flow;  // to the other side
};

Result<Side> open_side(Control& control) {
  io::UdpOptions options;
  options.local = {control.local().address, 0};
  Side side;
  FV_ASSIGN(side.port, io::UdpPort::open(options));
  FV_TRY(control.send({{"port", side.port->local().port}}));
  FV_ASSIGN(const Json offer, control.receive());
  FV_ASSIGN(const uint64_t port, json_unsigned(offer, "port", 1, 65'535));
  side.flow.destination = {control.peer().address, static_cast<uint16_t>(port)};
  return side;
}

// False after a pause without anything to receive.
bool wait_for(const io::Port& port) {
  pollfd p{port.wait_fd(), POLLIN, 0};
  return poll(&p, 1, kPauseMs) == 1;
}

wire::TxBurst burst_of(std::vector<std::byte>& memory, size_t size, size_t count) {
  memory.resize(size * count);
  wire::TxBurst burst;
  burst.reset(memory, count);
  for (size_t i = 0; i < count; ++i) burst.append(size);
  return burst;
}

Result<Json> ping(Control& control, const Settings& settings) {
  FV_ASSIGN(Side side, open_side(control));
  std::vector<std::byte> memory;
  const wire::TxBurst burst = burst_of(memory, settings.size, 1);
  std::array<io::RxBurst, 16> received;
  LatencyHistogram histogram;
  uint64_t lost = 0;
  const double cpu = thread_cpu_seconds();
  const Time start = io::os_now();
  const Time end = start + Duration::from_seconds(settings.seconds);
  Time sent = start;
  while (sent < end) {
    side.port->send(side.flow, burst);
    size_t got = 0;
    while ((got = side.port->receive(received)) == 0 && io::os_now() - sent < kLost) {
      if (!settings.spin) wait_for(*side.port);
    }
    const Time now = io::os_now();
    if (got > 0) {
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

Result<Json> pong(Control& control, const Settings& settings) {
  FV_ASSIGN(Side side, open_side(control));
  std::vector<std::byte> memory;
  const wire::TxBurst burst = burst_of(memory, settings.size, 1);
  std::array<io::RxBurst, 16> received;
  StopCheck stop(control);
  uint64_t count = 0;
  const double cpu = thread_cpu_seconds();
  for (;;) {
    const size_t got = side.port->receive(received);
    if (got > 0) {
      ++count;
      side.port->send(side.flow, burst);
    } else if (settings.spin) {
      if (stop.while_spinning()) break;
    } else if (!wait_for(*side.port) && stop.now()) {
      break;
    }
  }
  return Json{{"count", count}, {"cpu_seconds", thread_cpu_seconds() - cpu}};
}

// As in the bare stream: credit of a quarter of the window, as one small datagram.
Result<Json> blast(Control& control, const Settings& settings) {
  FV_ASSIGN(Side side, open_side(control));
  const size_t batch = std::min(settings.batch, side.port->limits().max_datagrams_per_burst);
  std::vector<std::byte> memory;
  const wire::TxBurst burst = burst_of(memory, settings.size, batch);
  std::array<io::RxBurst, 16> received;
  const uint64_t quarter = std::max<uint64_t>(settings.window / 4, 1);
  uint64_t sent = 0;
  uint64_t credited = 0;
  uint64_t stalls = 0;
  const double cpu = thread_cpu_seconds();
  const Time end = io::os_now() + Duration::from_seconds(settings.seconds);
  while (io::os_now() < end) {
    while (settings.window > 0 && sent >= credited + settings.window) {
      const size_t got = side.port->receive(received);
      credited += got * quarter;
      if (got > 0) continue;
      pollfd p{side.port->wait_fd(), POLLIN, 0};
      if (poll(&p, 1, 20) == 1) continue;
      ++stalls;
      credited = sent;
    }
    const io::SendStatus status = side.port->send(side.flow, burst);
    if (status == io::SendStatus::kSent) ++sent;
    if (status == io::SendStatus::kTooBig) return invalid("--size exceeds the path MTU");
  }
  return Json{
      {"messages", sent * batch}, {"stalls", stalls}, {"cpu_seconds", thread_cpu_seconds() - cpu}};
}

Result<Json> sink(Control& control, const Settings& settings) {
  FV_ASSIGN(Side side, open_side(control));
  std::vector<std::byte> memory;
  const wire::TxBurst credit = burst_of(memory, 8, 1);
  std::array<io::RxBurst, 16> received;
  const uint64_t quarter = std::max<uint64_t>(settings.window / 4, 1) * settings.batch;
  const StopCheck stop(control);
  const double cpu = thread_cpu_seconds();
  const io::PortCounters& counters = side.port->counters();
  uint64_t credited = 0;
  Time first;
  Time last;
  for (;;) {
    if (side.port->receive(received) == 0) {
      if (!wait_for(*side.port) && stop.now()) break;
      continue;
    }
    last = io::os_now();
    if (first == Time()) first = last;
    while (settings.window > 0 && counters.received_datagrams >= credited + quarter) {
      credited += quarter;
      side.port->send(side.flow, credit);
    }
  }
  const double seconds = (last - first).to_seconds();
  const auto rate = [&](uint64_t amount) {
    return seconds > 0 ? static_cast<double>(amount) / seconds : 0;
  };
  return Json{{"messages", counters.received_datagrams},
              {"bytes", counters.received_bytes},
              {"bursts", counters.received_bursts},
              {"overflows", counters.receive_overflows},
              {"seconds", seconds},
              {"bits_per_second", rate(counters.received_bytes * 8)},
              {"messages_per_second", rate(counters.received_datagrams)},
              {"cpu_seconds", thread_cpu_seconds() - cpu}};
}

}  // namespace

const Yardstick kPortPingPong{"port-pingpong", ping, pong};
const Yardstick kPortBlast{"port-blast", blast, sink};

}  // namespace farverbs::tools::yardstick
