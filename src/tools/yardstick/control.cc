#include "tools/yardstick/control.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "farverbs/io/os_clock.h"
#include "farverbs/io/socket_address.h"

namespace farverbs::tools::yardstick {
namespace {

using io::FileDescriptor;
using io::SocketAddress;

constexpr int kSilenceMs = 30'000;
constexpr size_t kLongestLine = 1 << 20;

Endpoint name_of(int fd, int (*get_name)(int, sockaddr*, socklen_t*)) {
  SocketAddress name = SocketAddress::empty();
  return get_name(fd, &name.generic, &name.size) == 0 ? name.to_endpoint() : Endpoint{};
}

}  // namespace

Control::Control(FileDescriptor fd)
    : fd_(std::move(fd)),
      local_(name_of(fd_.get(), ::getsockname)),
      peer_(name_of(fd_.get(), ::getpeername)) {
  const int on = 1;
  setsockopt(fd_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

Result<Control> Control::accept_one(const Endpoint& local,
                                    const std::function<void(uint16_t)>& on_listen) {
  const SocketAddress address(local);
  const FileDescriptor listener(::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (::bind(listener.get(), &address.generic, address.size) != 0 ||
      ::listen(listener.get(), 1) != 0) {
    return Error::from_errno("cannot listen on TCP " + local.to_string());
  }
  on_listen(name_of(listener.get(), ::getsockname).port);
  FileDescriptor fd(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (!fd.valid()) return Error::from_errno("cannot accept a connection");
  return Control(std::move(fd));
}

Result<Control> Control::connect(const Endpoint& server) {
  const SocketAddress address(server);
  const Time deadline = io::os_now() + Duration::seconds(3);
  for (;;) {
    FileDescriptor fd(::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (::connect(fd.get(), &address.generic, address.size) == 0) return Control(std::move(fd));
    if (io::os_now() >= deadline) {
      return Error::from_errno("cannot connect to TCP " + server.to_string());
    }
    ::usleep(10'000);
  }
}

Result<void> Control::send(const Json& message) {
  std::string line = message.dump() + "\n";
  size_t sent = 0;
  while (sent < line.size()) {
    const ssize_t n = ::send(fd_.get(), line.data() + sent, line.size() - sent, MSG_NOSIGNAL);
    if (n < 0) return Error::from_errno("the other side of the yardstick is gone");
    sent += static_cast<size_t>(n);
  }
  return {};
}

Result<Json> Control::receive() {
  size_t end;
  while ((end = unread_.find('\n')) == std::string::npos) {
    pollfd p{fd_.get(), POLLIN, 0};
    char buffer[4096];
    if (poll(&p, 1, kSilenceMs) != 1) {
      return Error{ETIMEDOUT, "the other side of the yardstick is silent"};
    }
    const ssize_t n = ::recv(fd_.get(), buffer, sizeof buffer, 0);
    if (n <= 0 || unread_.size() > kLongestLine) {
      return Error{ECONNRESET, "the other side of the yardstick is gone"};
    }
    unread_.append(buffer, static_cast<size_t>(n));
  }
  const std::string line = unread_.substr(0, end);
  unread_.erase(0, end + 1);
  FV_ASSIGN(Json message, parse_json_object(line));
  FV_TRY(json_no_error(message));
  return message;
}

bool Control::readable() const {
  pollfd p{fd_.get(), POLLIN, 0};
  return poll(&p, 1, 0) == 1;
}

}  // namespace farverbs::tools::yardstick
