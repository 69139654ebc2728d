// The bare figures that benchmarks are divided by: what sockets and memory can do on this machine
// at this moment with the least code around them. Each has a client, which decides and prints, and
// a server (but for memcpy), so that the two can run in different network namespaces.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "farverbs/base/ip_address.h"
#include "farverbs/base/result.h"
#include "tools/common/json_fields.h"

namespace farverbs::tools::yardstick {

struct Settings {
  double seconds = 2;
  size_t size = 64;               // of a message; for gso-blast of a segment
  bool spin = false;              // ping-pongs: poll the socket, do not sleep in it
  size_t batch = 32;              // messages a call; for gso-blast segments a call
  size_t window = 16;             // calls in flight
  size_t region = 1'000'000'000;  // tcp-cold: bytes of each side's buffer, and of a round
  size_t chunk = 128 << 10;       // tcp-cold: bytes a call
  size_t rounds = 3;              // tcp-cold
  std::string congestion;         // TCP's congestion control; empty: the system's

  Json to_json() const;
  static Result<Settings> from_json(const Json& json);
};

// The names of the yardsticks that have a server.
std::vector<std::string> network_yardsticks();
// What a user gets who says nothing else.
Settings default_settings(const std::string& name);

// Measures against the server. All times, rates and CPU seconds of both sides.
Result<Json> measure(const std::string& name, const Endpoint& server, const Settings& settings);
// Serves one client, of any yardstick; returns this side's figures. on_listen is told the port.
Result<Json> serve(const Endpoint& local, const std::function<void(uint16_t)>& on_listen);

// GB/s of memcpy by size, each over a buffer of its own that stays in place.
Json measure_memcpy(const std::vector<size_t>& sizes, double seconds_each);

}  // namespace farverbs::tools::yardstick
