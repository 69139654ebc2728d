// Rendezvous: how two tools meet before RDMA flows: a TCP connection that carries small messages
// (QP numbers, keys, requests). Each message is a 4-byte big-endian length and that many bytes. The
// standard connection manager is another matter; this is for programs that are both ours.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "farverbs/base/ip_address.h"
#include "farverbs/base/result.h"
#include "farverbs/base/time.h"
#include "farverbs/verbs/verbs.h"

namespace farverbs::verbs {

inline constexpr uint16_t kRendezvousPort = 7471;
inline constexpr size_t kMaxRendezvousMessage = 16 << 20;

class Rendezvous {
 public:
  // host: name or address. ECONNREFUSED, ETIMEDOUT ... with host and port in the message.
  static Result<Rendezvous> connect(const std::string& host, uint16_t port, Duration timeout);
  explicit Rendezvous(int fd);  // takes a connected socket
  Rendezvous(Rendezvous&& other) noexcept;
  Rendezvous& operator=(Rendezvous&& other) noexcept;
  ~Rendezvous();

  Result<void> send(std::string_view message);
  // EPIPE: the peer closed; ETIMEDOUT; EMSGSIZE: the announced length is absurd.
  Result<std::string> receive(Duration timeout = Duration::max());
  // Both sides call it: sends ours, gives theirs.
  Result<QpAddress> exchange(const QpAddress& mine, Duration timeout);

  IpAddress local_address() const;
  IpAddress peer_address() const;
  int fd() const { return fd_; }

 private:
  int fd_ = -1;
};

class RendezvousListener {
 public:
  // port 0: any free one. EADDRINUSE, EADDRNOTAVAIL with the endpoint in the message.
  static Result<RendezvousListener> listen(const IpAddress& address, uint16_t port);
  RendezvousListener(RendezvousListener&& other) noexcept;
  RendezvousListener& operator=(RendezvousListener&& other) noexcept;
  ~RendezvousListener();

  Result<Rendezvous> accept(Duration timeout = Duration::max());
  uint16_t port() const { return port_; }
  int fd() const { return fd_; }

 private:
  RendezvousListener() = default;
  int fd_ = -1;
  uint16_t port_ = 0;
};

}  // namespace farverbs::verbs
