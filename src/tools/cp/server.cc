#include "tools/cp/server.h"

#include <fmt/format.h>

#include "tools/common/process_usage.h"
#include "tools/cp/endpoints.h"
#include "tools/cp/location.h"
#include "tools/cp/progress.h"
#include "tools/cp/sender.h"
#include "tools/cp/session.h"
#include "tools/cp/tree.h"
#include "tools/ping/responder.h"

namespace farverbs::tools::copy {
namespace {

constexpr auto kAcceptTurn = Duration::milliseconds(100);
constexpr auto kHelloTimeout = Duration::seconds(10);

// Counts without showing: the client shows.
class SessionLog final : public Observer {
 public:
  void on_found(uint64_t, uint64_t) override {}
  void on_all_found() override {}
  void on_bytes(uint64_t count, bool resumed) override { bytes += resumed ? 0 : count; }
  void on_file_done(const std::string&, bool) override { ++files; }
  void on_retransmission() override {}
  void on_problem(const std::string&, const std::string&) override { ++problems; }
  void on_tick() override {}

  std::string text(const char* verb) const {
    return fmt::format("{} {} file{}, {} bytes{}", verb, files, files == 1 ? "" : "s", bytes,
                       problems == 0 ? "" : fmt::format(", {} problems", problems));
  }
  uint64_t files = 0;
  uint64_t bytes = 0;
  uint64_t problems = 0;
};

// Tells the client why not, and gives that reason.
Result<void> refuse(verbs::Rendezvous& rendezvous, Error why) {
  Welcome refusal;
  refusal.error = why.code;
  refusal.message = why.message.substr(0, kMaxTextBytes);
  (void)send_message(rendezvous, refusal);
  return why;
}

}  // namespace

Server::Server(ServerOptions options, Fd root, verbs::RendezvousListener listener)
    : options_(std::move(options)), root_(std::move(root)), listener_(std::move(listener)) {}

Result<std::unique_ptr<Server>> Server::start(ServerOptions options) {
  FV_ASSIGN(Fd root, open_local_directory(options.root));
  FV_ASSIGN(verbs::RendezvousListener listener,
            verbs::RendezvousListener::listen(options.bind, options.port));
  std::unique_ptr<Server> server(
      new Server(std::move(options), std::move(root), std::move(listener)));
  // An address that RDMA cannot use shows now, not when the first client comes.
  if (!server->options_.bind.is_unspecified()) {
    if (Result<verbs::Device> device = server->device_at(server->options_.bind); !device.ok()) {
      return std::move(device).error();
    }
  }
  server->thread_ = std::thread([raw = server.get()] { raw->accept_clients(); });
  return server;
}

Server::~Server() {
  stopping_ = true;
  if (thread_.joinable()) thread_.join();
}

void Server::accept_clients() {
  while (!stopping_) {
    Result<verbs::Rendezvous> client = listener_.accept(kAcceptTurn);
    reap(/*all=*/false);
    if (!client.ok()) continue;
    watch_connection(client->fd());
    if (sessions_.size() >= options_.max_clients) {
      (void)refuse(*client, {EBUSY, "the server has as many clients as it takes; try again later"});
      continue;
    }
    Session& session = sessions_.emplace_back();
    session.thread = std::thread([this, &session, rendezvous = std::move(*client)]() mutable {
      serve(std::move(rendezvous));
      session.done = true;
    });
  }
  reap(/*all=*/true);
}

void Server::reap(bool all) {
  for (auto session = sessions_.begin(); session != sessions_.end();) {
    if (!all && !session->done) {
      ++session;
      continue;
    }
    session->thread.join();
    session = sessions_.erase(session);
  }
}

void Server::serve(verbs::Rendezvous rendezvous) {
  const std::string client = rendezvous.peer_address().to_string();
  if (const Result<void> result = converse(std::move(rendezvous), client); !result.ok()) {
    options_.log(fmt::format("{}: {}", client, result.error().message));
  }
}

Result<void> Server::converse(verbs::Rendezvous rendezvous, const std::string& client) {
  const Result<std::string> first = rendezvous.receive(kHelloTimeout);
  if (!first.ok()) return refuse(rendezvous, first.error());
  if (const std::optional<Json> ping_hello = ping::ping_hello(*first)) {
    FV_ASSIGN(verbs::Device device, device_at(rendezvous.local_address()));
    return ping::respond(device, rendezvous, *ping_hello, [this] { return stopping_.load(); });
  }
  const Result<Hello> hello = message_of<Hello>(*first);
  if (!hello.ok()) return refuse(rendezvous, hello.error());
  if (hello->version != kProtocolVersion) {
    return refuse(rendezvous,
                  {EPROTO, fmt::format("the server speaks version {} of the copy protocol, not {}",
                                       kProtocolVersion, hello->version)});
  }
  return hello->put ? receive_files(std::move(rendezvous), *hello, client)
                    : send_files(std::move(rendezvous), *hello, client);
}

Result<verbs::Device> Server::device_at(const IpAddress& address) {
  const std::lock_guard lock(device_mutex_);
  if (const auto at = devices_.find(address); at != devices_.end()) return at->second;
  verbs::DeviceOptions options;
  options.address = address;
  options.stats = true;
  options.transport = options_.link.transport;
  FV_ASSIGN(verbs::Device device, verbs::Device::open(options));
  devices_.emplace(address, device);
  return device;
}

LinkOptions Server::link_for(const Hello& hello) const {
  LinkOptions link = options_.link;
  link.traffic = hello.traffic;
  return link;
}

Result<void> Server::send_files(verbs::Rendezvous rendezvous, const Hello& hello,
                                const std::string& client) {
  Result<SourceRoot> source = resolve_served_source(root_.get(), hello.path, hello.recursive);
  if (!source.ok()) return refuse(rendezvous, source.error());
  Result<verbs::Device> device = device_at(rendezvous.local_address());
  if (!device.ok()) return refuse(rendezvous, device.error());
  Welcome welcome;
  welcome.name = source->own_name;
  welcome.directory = source->directory;
  FV_TRY(send_message(rendezvous, welcome));
  FV_ASSIGN(const auto link,
            VerbsLink::establish(std::move(*device), std::move(rendezvous), link_for(hello)));
  SessionLog log;
  Sender sender(*link, Walk(source->base.get(), source->entry, hello.recursive), log);
  FV_TRY(run_end(sender, *link, [this] { return stopping_.load(); }));
  options_.log(fmt::format("{}: {}", client, log.text("sent")));
  return {};
}

Result<void> Server::receive_files(verbs::Rendezvous rendezvous, const Hello& hello,
                                   const std::string& client) {
  if (options_.read_only) {
    return refuse(rendezvous, {EROFS, "the server is read-only (it was started with --read-only)"});
  }
  if (Result<void> checked = check_peer_name(hello.name); !checked.ok()) {
    return refuse(rendezvous, checked.error());
  }
  Result<Target> target = resolve_served_target(
      root_.get(), {hello.path, hello.wants_directory, hello.name, hello.directory});
  if (!target.ok()) return refuse(rendezvous, target.error());
  Result<verbs::Device> device = device_at(rendezvous.local_address());
  if (!device.ok()) return refuse(rendezvous, device.error());
  FV_TRY(send_message(rendezvous, Welcome{}));
  FV_ASSIGN(const auto link,
            VerbsLink::establish(std::move(*device), std::move(rendezvous), link_for(hello)));
  ReceiverOptions options;
  options.always = hello.always;
  options.sync = hello.sync;
  options.source_name = hello.name;
  SessionLog log;
  Receiver receiver(*link, std::move(*target), options, log);
  FV_TRY(run_end(receiver, *link, [this] { return stopping_.load(); }));
  options_.log(fmt::format("{}: {}", client, log.text("received")));
  return {};
}

}  // namespace farverbs::tools::copy
