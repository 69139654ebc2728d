#include "tools/yardstick/side.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/time.h>

#include "farverbs/io/socket_address.h"

namespace farverbs::tools::yardstick {
namespace {

using io::FileDescriptor;
using io::SocketAddress;

constexpr int kBufferBytes = 4 << 20;

void grow_buffers(int fd) {
  for (const auto& [forced, plain] :
       {std::pair(SO_RCVBUFFORCE, SO_RCVBUF), std::pair(SO_SNDBUFFORCE, SO_SNDBUF)}) {
    if (setsockopt(fd, SOL_SOCKET, forced, &kBufferBytes, sizeof kBufferBytes) != 0) {
      setsockopt(fd, SOL_SOCKET, plain, &kBufferBytes, sizeof kBufferBytes);
    }
  }
}

Result<uint16_t> port_of(int fd) {
  SocketAddress name = SocketAddress::empty();
  if (getsockname(fd, &name.generic, &name.size) != 0) return Error::from_errno("no local port");
  return name.to_endpoint().port;
}

Result<uint16_t> exchange_ports(Control& control, uint16_t own) {
  FV_TRY(control.send({{"port", own}}));
  FV_ASSIGN(const Json answer, control.receive());
  FV_ASSIGN(const uint64_t port, json_unsigned(answer, "port", 1, 65'535));
  return static_cast<uint16_t>(port);
}

Result<void> prepare_tcp(int fd, const Settings& settings) {
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  if (!settings.congestion.empty() &&
      setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, settings.congestion.data(),
                 static_cast<socklen_t>(settings.congestion.size())) != 0) {
    return Error::from_errno("no congestion control '" + settings.congestion + "'");
  }
  return {};
}

}  // namespace

Result<FileDescriptor> connected_udp(Control& control) {
  SocketAddress local(Endpoint{control.local().address, 0});
  FileDescriptor fd(::socket(local.family(), SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!fd.valid() || ::bind(fd.get(), &local.generic, local.size) != 0) {
    return Error::from_errno("cannot open a UDP socket");
  }
  grow_buffers(fd.get());
  FV_ASSIGN(const uint16_t own, port_of(fd.get()));
  FV_ASSIGN(const uint16_t theirs, exchange_ports(control, own));
  const SocketAddress peer(Endpoint{control.peer().address, theirs});
  if (::connect(fd.get(), &peer.generic, peer.size) != 0) {
    return Error::from_errno("cannot connect a UDP socket");
  }
  // Nobody sends before both are connected.
  FV_TRY(control.send({{"ready", true}}));
  FV_TRY(control.receive());
  return fd;
}

Result<FileDescriptor> data_tcp_server(Control& control, const Settings& settings) {
  const SocketAddress local(Endpoint{control.local().address, 0});
  const FileDescriptor listener(::socket(local.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
  FV_TRY(prepare_tcp(listener.get(), settings));
  if (::bind(listener.get(), &local.generic, local.size) != 0 || ::listen(listener.get(), 1) != 0) {
    return Error::from_errno("cannot listen");
  }
  FV_ASSIGN(const uint16_t own, port_of(listener.get()));
  FV_TRY(control.send({{"port", own}}));
  FileDescriptor fd(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (!fd.valid()) return Error::from_errno("cannot accept a connection");
  FV_TRY(prepare_tcp(fd.get(), settings));
  return fd;
}

Result<FileDescriptor> data_tcp_client(Control& control, const Settings& settings) {
  FV_ASSIGN(const Json offer, control.receive());
  FV_ASSIGN(const uint64_t port, json_unsigned(offer, "port", 1, 65'535));
  const SocketAddress peer(Endpoint{control.peer().address, static_cast<uint16_t>(port)});
  FileDescriptor fd(::socket(peer.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
  FV_TRY(prepare_tcp(fd.get(), settings));
  if (::connect(fd.get(), &peer.generic, peer.size) != 0) {
    return Error::from_errno("cannot connect the data connection");
  }
  return fd;
}

Json round_trips(const LatencyHistogram& histogram) {
  return {{"count", histogram.count()},
          {"min", histogram.min().to_microseconds()},
          {"p50", histogram.quantile(0.5).to_microseconds()},
          {"p99", histogram.quantile(0.99).to_microseconds()},
          {"p99_9", histogram.quantile(0.999).to_microseconds()},
          {"mean", histogram.mean().to_microseconds()}};
}

void set_receive_timeout(int fd, int milliseconds) {
  const timeval timeout{milliseconds / 1000, milliseconds % 1000 * 1000};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof timeout);
}

}  // namespace farverbs::tools::yardstick
