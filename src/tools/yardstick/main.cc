// farverbs_yardstick: prints the figures of one yardstick as JSON. Not installed.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>
#include <vector>

#include "tools/yardstick/yardsticks.h"

namespace {

using farverbs::Endpoint;
using farverbs::IpAddress;
using farverbs::Result;
using farverbs::tools::Json;
namespace yardstick = farverbs::tools::yardstick;

constexpr uint16_t kDefaultPort = 4790;

struct Arguments {
  std::string address = "127.0.0.1";
  uint16_t port = kDefaultPort;
  yardstick::Settings settings;
  bool bare_stream = false;
};

int print(const Result<Json>& result) {
  if (!result.ok()) {
    std::fprintf(stderr, "farverbs_yardstick: %s\n", result.error().message.c_str());
    return 1;
  }
  std::printf("%s\n", result->dump().c_str());
  return 0;
}

int run_server(const Arguments& a) {
  const auto address = IpAddress::parse(a.address);
  if (!address.ok()) return print(address.error());
  return print(yardstick::serve({*address, a.port}, [](uint16_t port) {
    std::fprintf(stderr, "listening on port %u\n", unsigned{port});
  }));
}

int run_client(const std::string& name, const Arguments& a) {
  const auto address = IpAddress::parse(a.address);
  if (!address.ok()) return print(address.error());
  return print(yardstick::measure(name, {*address, a.port}, a.settings));
}

void add_client_options(CLI::App& client, const std::string& name, Arguments& a) {
  client.add_option("host", a.address, "Address of the server")->required();
  client.add_option("--port", a.port, "Port of the server")->capture_default_str();
  yardstick::Settings& s = a.settings;
  if (name == "tcp-cold") {
    client.add_option("--region", s.region, "Bytes of each side's buffer")->capture_default_str();
    client.add_option("--chunk", s.chunk, "Bytes a call")->capture_default_str();
    client.add_option("--rounds", s.rounds, "Times through the region")->capture_default_str();
  } else {
    client.add_option("--seconds", s.seconds)->capture_default_str();
    client.add_option("--size", s.size, "Bytes of a message or segment")->capture_default_str();
  }
  if (name.ends_with("pingpong")) {
    client.add_flag("--spin,!--blocking", s.spin, "Poll the sockets, or sleep in them (default)");
  }
  if (name.ends_with("blast") || name == "mmsg-rate") {
    client.add_option("--batch", s.batch, "Messages or segments a call")->capture_default_str();
    client.add_option("--window", s.window, "Calls under way; 0: no limit")->capture_default_str();
  }
  if (name.starts_with("tcp")) {
    client.add_option("--congestion", s.congestion, "TCP congestion control, such as cubic or bbr");
  }
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Bare figures of this machine's sockets and memory, as JSON");
  app.require_subcommand(1);
  int exit_code = 0;

  const std::vector<std::string> names = yardstick::network_yardsticks();
  std::vector<Arguments> arguments(names.size());
  for (size_t i = 0; i < names.size(); ++i) {
    const std::string& name = names[i];
    Arguments& a = arguments[i];
    a.settings = yardstick::default_settings(name);
    CLI::App* sub = app.add_subcommand(name);
    sub->require_subcommand(1);
    CLI::App* server = sub->add_subcommand("server", "Serve one client and end");
    server->add_option("--bind", a.address)->capture_default_str();
    server->add_option("--port", a.port)->capture_default_str();
    server->callback([&] { exit_code = run_server(a); });
    CLI::App* client = sub->add_subcommand("client", "Measure and print");
    add_client_options(*client, name, a);
    client->callback([&] { exit_code = run_client(name, a); });
  }

  std::vector<size_t> sizes = {64, 1024, 4096, 65'536, 1 << 20, 8 << 20, 256 << 20};
  double seconds = 0.2;
  CLI::App* copy = app.add_subcommand("memcpy", "Bytes per second of memcpy by size");
  copy->add_option("--sizes", sizes)->delimiter(',');
  copy->add_option("--seconds", seconds, "For each size")->capture_default_str();
  copy->callback([&] {
    exit_code =
        print(Json{{"yardstick", "memcpy"}, {"copies", yardstick::measure_memcpy(sizes, seconds)}});
  });

  CLI11_PARSE(app, argc, argv);
  return exit_code;
}
