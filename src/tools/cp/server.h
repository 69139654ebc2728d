// The server of `farverbs serve`: sessions of several clients at once, each in a thread of its own
// with bounded memory, all beneath one directory.
#pragma once

#include <atomic>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "farverbs/verbs/rendezvous.h"
#include "farverbs/verbs/verbs.h"
#include "tools/cp/fd.h"
#include "tools/cp/messages.h"
#include "tools/cp/verbs_link.h"

namespace farverbs::tools::copy {

struct ServerOptions {
  std::string root;
  IpAddress bind;
  uint16_t port = 0;  // 0: any
  bool read_only = false;
  unsigned max_clients = 64;
  LinkOptions link;
  // A line for the operator. Called from several threads.
  std::function<void(const std::string&)> log = [](const std::string&) {};
};

class Server {
 public:
  // ENOENT, ENOTDIR: the root; EADDRINUSE, EADDRNOTAVAIL: the address.
  static Result<std::unique_ptr<Server>> start(ServerOptions options);
  // Ends all sessions; what they had received stays to be resumed.
  ~Server();

  uint16_t port() const { return listener_.port(); }

 private:
  struct Session {
    std::thread thread;
    std::atomic<bool> done{false};
  };
  Server(ServerOptions options, Fd root, verbs::RendezvousListener listener);
  void accept_clients();
  void reap(bool all);
  void serve(verbs::Rendezvous rendezvous);
  Result<void> converse(verbs::Rendezvous rendezvous, const std::string& client);
  Result<void> send_files(verbs::Rendezvous rendezvous, const Hello& hello,
                          const std::string& client);
  Result<void> receive_files(verbs::Rendezvous rendezvous, const Hello& hello,
                             const std::string& client);
  // What the files of this client go over.
  LinkOptions link_for(const Hello& hello) const;
  Result<verbs::Device> device_at(const IpAddress& address);

  ServerOptions options_;
  Fd root_;
  verbs::RendezvousListener listener_;
  std::atomic<bool> stopping_{false};
  std::mutex device_mutex_;
  std::map<IpAddress, verbs::Device> devices_;
  std::list<Session> sessions_;  // of the accepting thread
  std::thread thread_;
};

}  // namespace farverbs::tools::copy
