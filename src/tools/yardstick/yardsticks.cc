#include "tools/yardstick/yardsticks.h"

#include <algorithm>
#include <array>

#include "tools/yardstick/side.h"

namespace farverbs::tools::yardstick {
namespace {

const std::array<const Yardstick*, 7> kYardsticks = {
    &kUdpPingPong, &kTcpPingPong, &kGsoBlast, &kMmsgRate, &kTcpCold, &kPortPingPong, &kPortBlast};

Result<const Yardstick*> find(const std::string& name) {
  for (const Yardstick* y : kYardsticks) {
    if (name == y->name) return y;
  }
  return invalid("no yardstick is called '" + name + "'");
}

// Both sides' CPU seconds for each 10^9 bytes that the server got.
void add_cpu_per_gigabyte(Json& result) {
  const Json& server = result["server"];
  if (!server.contains("bytes") || server["bytes"].get<double>() <= 0) return;
  const double cpu = result["cpu_seconds"].get<double>() + server["cpu_seconds"].get<double>();
  result["cpu_seconds_per_gigabyte"] = cpu / (server["bytes"].get<double>() * 1e-9);
}

}  // namespace

Json Settings::to_json() const {
  return {{"seconds", seconds}, {"size", size},     {"spin", spin},
          {"batch", batch},     {"window", window}, {"region", region},
          {"chunk", chunk},     {"rounds", rounds}, {"congestion", congestion}};
}

Result<Settings> Settings::from_json(const Json& json) {
  constexpr uint64_t kMuch = uint64_t{1} << 40;
  Settings s;
  FV_ASSIGN(s.seconds, json_number(json, "seconds"));
  FV_ASSIGN(s.size, json_unsigned(json, "size", 1, 65'507));
  FV_ASSIGN(s.spin, json_bool(json, "spin"));
  FV_ASSIGN(s.batch, json_unsigned(json, "batch", 1, 1024));
  FV_ASSIGN(s.window, json_unsigned(json, "window", 0, 1 << 20));
  FV_ASSIGN(s.region, json_unsigned(json, "region", 1, kMuch));
  FV_ASSIGN(s.chunk, json_unsigned(json, "chunk", 1, kMuch));
  FV_ASSIGN(s.rounds, json_unsigned(json, "rounds", 1, 1000));
  FV_ASSIGN(s.congestion, json_string(json, "congestion"));
  return s;
}

std::vector<std::string> network_yardsticks() {
  std::vector<std::string> names;
  for (const Yardstick* y : kYardsticks) names.emplace_back(y->name);
  return names;
}

Settings default_settings(const std::string& name) {
  Settings settings;
  if (name == "gso-blast" || name == "port-blast") {
    settings.size = 1040;  // a RoCEv2 packet of 1 KiB: BTH, payload, ICRC
    settings.batch = 62;
  }
  return settings;
}

Result<Json> measure(const std::string& name, const Endpoint& server, const Settings& settings) {
  FV_ASSIGN(const Yardstick* yardstick, find(name));
  FV_ASSIGN(Control control, Control::connect(server));
  FV_TRY(control.send({{"yardstick", name}, {"settings", settings.to_json()}}));
  FV_ASSIGN(const Json own, yardstick->client(control, settings));
  FV_TRY(control.send({{"done", true}}));
  FV_ASSIGN(const Json theirs, control.receive());
  Json result{{"yardstick", name}, {"settings", settings.to_json()}};
  // A stream's rate is what arrived.
  for (const char* rate : {"bits_per_second", "messages_per_second"}) {
    if (theirs.contains(rate)) result[rate] = theirs[rate];
  }
  result.update(own);
  result["server"] = theirs;
  add_cpu_per_gigabyte(result);
  return result;
}

Result<Json> serve(const Endpoint& local, const std::function<void(uint16_t)>& on_listen) {
  FV_ASSIGN(Control control, Control::accept_one(local, on_listen));
  FV_ASSIGN(const Json request, control.receive());
  FV_ASSIGN(const std::string name, json_string(request, "yardstick"));
  FV_ASSIGN(const Json wanted, json_object(request, "settings"));
  FV_ASSIGN(const Settings settings, Settings::from_json(wanted));
  FV_ASSIGN(const Yardstick* yardstick, find(name));
  FV_ASSIGN(const Json result, yardstick->server(control, settings));
  FV_TRY(control.receive());  // the client is done
  FV_TRY(control.send(result));
  return result;
}

}  // namespace farverbs::tools::yardstick
