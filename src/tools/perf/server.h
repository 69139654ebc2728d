// The server of `farverbs perf`: answers measurements and pings, several clients at a time. Each
// session uses the device of the address on which its client came in.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "farverbs/base/result.h"
#include "farverbs/verbs/rendezvous.h"
#include "farverbs/verbs/verbs.h"
#include "tools/perf/session.h"

namespace farverbs::tools::perf {

struct ServerOptions {
  std::optional<IpAddress> bind;  // absent: all addresses
  uint16_t port = verbs::kRendezvousPort;
  uint16_t udp_port = kRoceUdpPort;
  verbs::Transport transport = verbs::Transport::kAuto;  // as the client wants, or this alone
  bool once = false;                                     // ends after one session
  SessionLimits limits;
};

class Server {
 public:
  // A line for people about what happened, from any session's thread.
  using Log = std::function<void(const std::string& line)>;

  static Result<std::unique_ptr<Server>> listen(const ServerOptions& options, Log log);

  Endpoint endpoint() const;
  // Serves until stop(), or with `once` until the first session is over, whose error it gives.
  Result<void> run();
  // From any thread: takes no more clients; run() returns when the sessions are over.
  void stop() { stopping_.store(true); }

 private:
  Server(const ServerOptions& options, Log log, verbs::RendezvousListener listener)
      : options_(options), log_(std::move(log)), listener_(std::move(listener)) {}

  // False: it was no client of ours.
  bool serve(verbs::Rendezvous connection, Result<void>* outcome);
  Result<std::string> serve_client(verbs::Rendezvous& connection, const Json& hello,
                                   const std::string& kind, const std::string& peer);
  Result<std::shared_ptr<verbs::Device>> device_at(const IpAddress& address, Duration spin);

  const ServerOptions options_;
  const Log log_;
  verbs::RendezvousListener listener_;
  std::atomic<bool> stopping_{false};
  std::mutex devices_mutex_;
  // Kept from session to session: a device is an address of the network rather than of a client.
  std::map<std::pair<IpAddress, Duration>, std::shared_ptr<verbs::Device>> devices_;
};

}  // namespace farverbs::tools::perf
