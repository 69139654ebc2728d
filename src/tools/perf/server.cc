#include "tools/perf/server.h"

#include <list>
#include <thread>

#include <fmt/format.h>

#include "tools/ping/responder.h"

namespace farverbs::tools::perf {
namespace {

constexpr Duration kHelloTimeout = Duration::seconds(10);
constexpr Duration kAcceptTurn = Duration::milliseconds(200);
constexpr size_t kMaxSessions = 64;

// A session in a thread of its own.
struct Worker {
  std::thread thread;
  std::atomic<bool> over{false};
};

void join_finished(std::list<Worker>& workers, bool all) {
  for (auto worker = workers.begin(); worker != workers.end();) {
    if (!all && !worker->over.load()) {
      ++worker;
      continue;
    }
    worker->thread.join();
    worker = workers.erase(worker);
  }
}

Result<verbs::RendezvousListener> listen_at(const ServerOptions& options) {
  if (options.bind) return verbs::RendezvousListener::listen(*options.bind, options.port);
  // Both families where the machine has both.
  auto both = verbs::RendezvousListener::listen(IpAddress::v6({}), options.port);
  if (both.ok() || both.error().code == EADDRINUSE) return both;
  return verbs::RendezvousListener::listen(IpAddress(), options.port);
}

}  // namespace

Result<std::unique_ptr<Server>> Server::listen(const ServerOptions& options, Log log) {
  FV_ASSIGN(verbs::RendezvousListener listener, listen_at(options));
  return std::unique_ptr<Server>(new Server(options, std::move(log), std::move(listener)));
}

Endpoint Server::endpoint() const {
  return {options_.bind.value_or(IpAddress()), listener_.port()};
}

Result<void> Server::run() {
  std::list<Worker> workers;
  Result<void> outcome;
  while (!stopping_.load()) {
    join_finished(workers, false);
    Result<verbs::Rendezvous> connection = listener_.accept(kAcceptTurn);
    if (!connection.ok()) {
      if (connection.error().code == ETIMEDOUT) continue;
      log_(connection.error().message);
      // Out of descriptors, most likely: sessions that end will give some back.
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      continue;
    }
    if (options_.once) {
      if (serve(std::move(connection).value(), &outcome)) break;
      continue;
    }
    if (workers.size() >= kMaxSessions) {
      (void)connection->send(json_error_message("the server is busy with other clients"));
      continue;
    }
    Worker& worker = workers.emplace_back();
    worker.thread = std::thread([this, &worker, taken = std::move(connection).value()]() mutable {
      Result<void> ignored;
      serve(std::move(taken), &ignored);
      worker.over.store(true);
    });
  }
  join_finished(workers, true);
  return outcome;
}

bool Server::serve(verbs::Rendezvous connection, Result<void>* outcome) {
  const std::string peer = fmt::format("client {}", connection.peer_address().to_string());
  Result<std::string> text = connection.receive(kHelloTimeout);
  Result<Json> hello = text.ok() ? parse_json_object(*text) : Result<Json>(text.error());
  Result<std::string> kind =
      hello.ok() ? json_string(*hello, "farverbs") : Result<std::string>(hello.error());
  if (!kind.ok()) {
    // Whoever connects and leaves again is no news.
    if (kind.error().code != EPIPE) log_(fmt::format("{}: {}", peer, kind.error().message));
    return false;
  }
  Result<std::string> done = serve_client(connection, *hello, *kind, peer);
  if (done.ok()) {
    log_(fmt::format("{}: {}", peer, *done));
  } else {
    (void)connection.send(json_error_message(done.error().message));
    log_(fmt::format("{}: {}", peer, done.error().message));
    *outcome = done.error();
  }
  return true;
}

Result<std::string> Server::serve_client(verbs::Rendezvous& connection, const Json& hello,
                                         const std::string& kind, const std::string& peer) {
  const IpAddress address = connection.local_address();
  if (kind == ping::kSessionKind) {
    FV_ASSIGN(const auto device, device_at(address, verbs::DeviceOptions().spin));
    FV_TRY(ping::respond(*device, connection, hello, [this] { return stopping_.load(); }));
    return std::string("ping");
  }
  if (kind != "perf") {
    return Error{EPROTO, fmt::format("this server answers perf and ping, not '{}'", kind)};
  }
  FV_ASSIGN(const Options options, read_hello(hello, options_.limits));
  FV_ASSIGN(auto device, device_at(address, options.spin));
  Link link(connection, peer);
  Result<std::string> done =
      serve_measurement(std::move(device), link, options, hello, connection.peer_address());
  if (!done.ok()) return link.explain(done.error());
  return done;
}

Result<std::shared_ptr<verbs::Device>> Server::device_at(const IpAddress& address, Duration spin) {
  const std::lock_guard lock(devices_mutex_);
  std::shared_ptr<verbs::Device>& device = devices_[{address, spin}];
  if (device == nullptr) {
    verbs::DeviceOptions device_options;
    device_options.address = address;
    device_options.udp_port = options_.udp_port;
    device_options.spin = spin;
    device_options.stats = true;
    device_options.transport = options_.transport;
    Result<verbs::Device> opened = verbs::Device::open(device_options);
    if (!opened.ok()) return opened.error();
    device = std::make_shared<verbs::Device>(std::move(opened).value());
  }
  return device;
}

}  // namespace farverbs::tools::perf
