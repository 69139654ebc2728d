#include "tools/cp/client.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "tools/cp/endpoints.h"
#include "tools/cp/sender.h"
#include "tools/cp/session.h"
#include "tools/cp/tree.h"

namespace farverbs::tools::copy {
namespace {

constexpr auto kConnectTimeout = Duration::seconds(10);
constexpr auto kWelcomeTimeout = Duration::seconds(30);

// Whether another connection may do better.
bool is_passing(const Error& error) {
  switch (error.code) {
    case EPIPE:
    case ECONNRESET:
    case ECONNABORTED:
    case ETIMEDOUT:
    case EIO:
    case ESTALE:
    case ENETDOWN:
    case ENETUNREACH:
    case EHOSTUNREACH:
    case ESHUTDOWN:
      return true;
    default:
      return false;
  }
}

class Copy {
 public:
  Copy(const CopyOptions& options, Progress& progress, const std::function<bool()>& stop)
      : options_(options), progress_(progress), stop_(stop) {}

  // One connection. `connected` tells whether there was a server.
  Result<void> attempt(bool& connected) {
    const bool put = options_.destination.remote;
    const Location& remote = put ? options_.destination : options_.source;
    SourceRoot source;
    if (put) {
      FV_ASSIGN(source, resolve_local_source(options_.source.path, options_.recursive));
    }
    FV_ASSIGN(verbs::Rendezvous rendezvous,
              verbs::Rendezvous::connect(remote.host, remote.port, kConnectTimeout));
    connected = true;
    watch_connection(rendezvous.fd());
    Hello hello;
    hello.put = put;
    hello.path = remote.path;
    hello.wants_directory = put && remote.wants_directory;
    hello.name = source.own_name;
    hello.directory = source.directory;
    hello.recursive = options_.recursive;
    hello.always = options_.always;
    hello.sync = options_.sync;
    hello.traffic = options_.link.traffic;
    FV_TRY(send_message(rendezvous, hello));
    Result<Welcome> welcome = receive_message<Welcome>(rendezvous, kWelcomeTimeout);
    if (!welcome.ok() && welcome.error().code == ETIMEDOUT) {
      return Error{ETIMEDOUT, fmt::format("{} port {} accepts connections but does not answer",
                                          remote.host, remote.port)};
    }
    if (!welcome.ok()) return std::move(welcome).error();
    if (welcome->error != 0) {
      return Error{welcome->error,
                   fmt::format("the server refuses: {}", printable(welcome->message))};
    }
    if (welcome->version != kProtocolVersion) {
      return Error{EPROTO, fmt::format("the server speaks version {} of the copy protocol, not {}",
                                       welcome->version, kProtocolVersion)};
    }
    verbs::DeviceOptions device_options;
    device_options.address = rendezvous.local_address();
    device_options.stats = true;
    device_options.transport = options_.link.transport;
    // The device outlives the connections: its background thread need not start anew.
    if (!device_.has_value() || device_->options().address != device_options.address) {
      FV_ASSIGN(device_, verbs::Device::open(device_options));
    }
    return put ? send(std::move(rendezvous), std::move(source))
               : receive(std::move(rendezvous), *welcome);
  }

 private:
  Result<void> send(verbs::Rendezvous rendezvous, SourceRoot source) {
    FV_ASSIGN(const auto link,
              VerbsLink::establish(*device_, std::move(rendezvous), options_.link));
    progress_.begin_connection();
    Sender sender(*link, Walk(source.base.get(), source.entry, options_.recursive), progress_);
    return run_end(sender, *link, stop_);
  }

  Result<void> receive(verbs::Rendezvous rendezvous, const Welcome& welcome) {
    FV_TRY(check_peer_name(welcome.name));
    FV_ASSIGN(Target target,
              resolve_local_target({options_.destination.path, options_.destination.wants_directory,
                                    welcome.name, welcome.directory}));
    FV_ASSIGN(const auto link,
              VerbsLink::establish(*device_, std::move(rendezvous), options_.link));
    progress_.begin_connection();
    ReceiverOptions receiver_options;
    receiver_options.always = options_.always;
    receiver_options.sync = options_.sync;
    receiver_options.source_name = welcome.name;
    Receiver receiver(*link, std::move(target), receiver_options, progress_);
    return run_end(receiver, *link, stop_);
  }

  const CopyOptions& options_;
  Progress& progress_;
  const std::function<bool()>& stop_;
  std::optional<verbs::Device> device_;
};

}  // namespace

Result<void> run_copy(const CopyOptions& options, Progress& progress,
                      const std::function<bool()>& stop) {
  Copy copy(options, progress, stop);
  bool ever_connected = false;
  unsigned fruitless = 0;
  while (true) {
    const uint64_t moved = progress.totals().bytes_moved;
    bool connected = false;
    Result<void> result = copy.attempt(connected);
    ever_connected |= connected;
    if (result.ok()) return result;
    // A server that was there a moment ago may be restarting.
    const bool restarting = ever_connected && result.error().code == ECONNREFUSED;
    if (!ever_connected || !(is_passing(result.error()) || restarting)) return result;
    fruitless = progress.totals().bytes_moved > moved ? 0 : fruitless + 1;
    if (fruitless > options.retries || options.retries == 0) return result;
    progress.clear();
    fmt::print(stderr, "farverbs cp: {}; connecting again\n", result.error().message);
    const auto pause = std::chrono::milliseconds(200 << std::min(fruitless, 4u));
    const auto until = std::chrono::steady_clock::now() + pause;
    while (std::chrono::steady_clock::now() < until) {
      if (stop()) return Error{ECANCELED, "interrupted"};
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }
}

}  // namespace farverbs::tools::copy
