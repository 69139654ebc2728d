// Rsocket: what streams and datagram sockets have in common: a number, options, whether calls wait,
// and what poll(2) would say of them. All calls return as their namesakes of the socket interface,
// with errno; what a kind of socket does not have is refused with EOPNOTSUPP.
#pragma once

#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace farverbs::rdmacm {

struct RsocketOptions {
  uint32_t send_bytes = 512 * 1024;
  uint32_t receive_bytes = 512 * 1024;
  uint16_t send_requests = 384;
  uint16_t receive_requests = 384;
  uint16_t inline_bytes = 64;
  uint8_t mappings = 0;
  bool reuse_address = false;
  bool v6_only = false;
  bool no_delay = false;
  bool keep_alive = false;
};

class Rsocket {
 public:
  virtual ~Rsocket() = default;
  virtual int number() const = 0;
  virtual int bind(const sockaddr* address) = 0;
  virtual int listen(int) { return refuse(); }
  virtual std::shared_ptr<Rsocket> accept() {
    refuse();
    return nullptr;
  }
  virtual int connect(const sockaddr* address) = 0;
  virtual ssize_t send(const void* from, size_t size, int flags, const sockaddr* to) = 0;
  // `peer` may be nullptr.
  virtual ssize_t receive(void* to, size_t size, int flags, sockaddr* peer, socklen_t* length) = 0;
  virtual int shut_down(int how) = 0;
  // Returns when everything that was sent has arrived, or never will.
  virtual void close() = 0;
  virtual int name(bool of_peer, sockaddr* address, socklen_t* size) = 0;
  virtual int take_error() { return 0; }

  // What poll(2) would say; `arm`: the descriptors that it waits on become readable when that may
  // have changed.
  virtual short ready(short events, bool arm) = 0;
  virtual void add_waits(std::vector<pollfd>& waits) = 0;

  virtual int64_t map(void*, size_t, int, int64_t) { return refuse(); }
  virtual int unmap(void*, size_t) { return refuse(); }
  virtual size_t write_at(const void*, size_t, int64_t, int) {
    return static_cast<size_t>(ssize_t{refuse()});
  }

  std::mutex& mutex() { return mutex_; }
  RsocketOptions& options() { return options_; }
  void set_blocking(bool blocking) { blocking_ = blocking; }
  bool blocking() const { return blocking_; }

 protected:
  static int refuse() {
    errno = EOPNOTSUPP;
    return -1;
  }
  std::mutex mutex_;
  RsocketOptions options_;
  std::atomic<bool> blocking_{true};
};

}  // namespace farverbs::rdmacm
