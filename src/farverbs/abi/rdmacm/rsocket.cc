// rsocket(7): the socket interface over RDMA. What the sockets do is in rsocket_stream.h and
// rsocket_datagrams.h.
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <rdma/rsocket.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstring>
#include <unordered_map>
#include <vector>

#include "farverbs/abi/rdmacm/library.h"
#include "farverbs/abi/rdmacm/rsocket_datagrams.h"
#include "farverbs/abi/rdmacm/rsocket_stream.h"
#include "farverbs/io/os_clock.h"

namespace farverbs::rdmacm {
namespace {

std::mutex streams_mutex;
std::unordered_map<int, std::shared_ptr<Rsocket>>& streams() {
  // Never destroyed: threads may use streams until the process is gone.
  static auto* all = new std::unordered_map<int, std::shared_ptr<Rsocket>>;
  return *all;
}

std::shared_ptr<Rsocket> find(int number) {
  const std::lock_guard lock(streams_mutex);
  const auto found = streams().find(number);
  if (found != streams().end()) return found->second;
  errno = EBADF;
  return nullptr;
}

int add(std::shared_ptr<Rsocket> stream) {
  if (stream == nullptr) return -1;
  const std::lock_guard lock(streams_mutex);
  const int number = stream->number();
  streams()[number] = std::move(stream);
  return number;
}

// An option's place in the options, and its value's size there.
int set_number(RsocketOptions& options, int level, int name, int value) {
  const auto at_least = [&](int least) { return std::max(value, least); };
  const auto requests = [&] { return static_cast<uint16_t>(std::clamp(value, 16, 8192)); };
  if (level == SOL_SOCKET) {
    constexpr int kMostBytes = 1 << 30;
    switch (name) {
      case SO_RCVBUF:
        options.receive_bytes = static_cast<uint32_t>(std::min(at_least(8192), kMostBytes));
        return 0;
      case SO_SNDBUF:
        options.send_bytes = static_cast<uint32_t>(std::min(at_least(8192), kMostBytes));
        return 0;
      case SO_REUSEADDR:
        options.reuse_address = value != 0;
        return 0;
      case SO_KEEPALIVE:
        options.keep_alive = value != 0;
        return 0;
      case SO_LINGER:
      case SO_OOBINLINE:
        return 0;
      default:
        return fail(ENOPROTOOPT);
    }
  }
  if (level == IPPROTO_TCP && name == TCP_NODELAY) {
    options.no_delay = value != 0;  // nothing is ever held back
    return 0;
  }
  if (level == IPPROTO_TCP && (name == TCP_KEEPIDLE || name == TCP_MAXSEG)) return 0;
  if (level == IPPROTO_IPV6 && name == IPV6_V6ONLY) {
    options.v6_only = value != 0;
    return 0;
  }
  if (level == SOL_RDMA) {
    switch (name) {
      case RDMA_SQSIZE:
        options.send_requests = requests();
        return 0;
      case RDMA_RQSIZE:
        options.receive_requests = requests();
        return 0;
      case RDMA_INLINE:
        options.inline_bytes = static_cast<uint16_t>(std::clamp(value, 0, 512));
        return 0;
      case RDMA_IOMAPSIZE:
        options.mappings = static_cast<uint8_t>(std::clamp(value, 0, 128));
        return 0;
      case RDMA_ROUTE:
        return 0;
      default:
        break;
    }
  }
  return fail(ENOPROTOOPT);
}

int get_number(Rsocket& stream, int level, int name, int& value) {
  const RsocketOptions& options = stream.options();
  if (level == SOL_SOCKET) {
    switch (name) {
      case SO_RCVBUF:
        value = static_cast<int>(options.receive_bytes);
        return 0;
      case SO_SNDBUF:
        value = static_cast<int>(options.send_bytes);
        return 0;
      case SO_REUSEADDR:
        value = options.reuse_address;
        return 0;
      case SO_KEEPALIVE:
        value = options.keep_alive;
        return 0;
      case SO_ERROR:
        value = stream.take_error();
        return 0;
      default:
        return fail(ENOPROTOOPT);
    }
  }
  if (level == IPPROTO_TCP && name == TCP_NODELAY) {
    value = options.no_delay;
    return 0;
  }
  if (level == IPPROTO_TCP && name == TCP_MAXSEG) {
    value = 1024;
    return 0;
  }
  if (level == IPPROTO_IPV6 && name == IPV6_V6ONLY) {
    value = options.v6_only;
    return 0;
  }
  if (level == SOL_RDMA) {
    switch (name) {
      case RDMA_SQSIZE:
        value = options.send_requests;
        return 0;
      case RDMA_RQSIZE:
        value = options.receive_requests;
        return 0;
      case RDMA_INLINE:
        value = options.inline_bytes;
        return 0;
      case RDMA_IOMAPSIZE:
        value = options.mappings;
        return 0;
      default:
        break;
    }
  }
  return fail(ENOPROTOOPT);
}

// As poll(2), for rsockets and plain descriptors together.
int poll_all(pollfd* fds, nfds_t count, int timeout_ms) {
  std::vector<std::shared_ptr<Rsocket>> found(count);
  bool any_stream = false;
  {
    const std::lock_guard lock(streams_mutex);
    for (nfds_t i = 0; i < count; ++i) {
      const auto stream = streams().find(fds[i].fd);
      if (stream == streams().end()) continue;
      found[i] = stream->second;
      any_stream = true;
    }
  }
  if (!any_stream) return ::poll(fds, count, timeout_ms);
  const Time deadline =
      timeout_ms < 0 ? Time::never() : io::os_now() + Duration::milliseconds(timeout_ms);
  std::vector<pollfd> waits;
  for (bool arm = false;; arm = true) {
    int ready = 0;
    waits.clear();
    for (nfds_t i = 0; i < count; ++i) {
      fds[i].revents = 0;
      if (found[i] != nullptr) {
        fds[i].revents = found[i]->ready(fds[i].events, arm);
        if (fds[i].revents == 0 && arm) {
          found[i]->add_waits(waits);
        }
      } else {
        pollfd one = fds[i];
        ::poll(&one, 1, 0);
        fds[i].revents = one.revents;
        waits.push_back({fds[i].fd, fds[i].events, 0});
      }
      ready += fds[i].revents != 0;
    }
    if (ready > 0 || timeout_ms == 0) return ready;
    if (!arm) continue;
    int left = -1;
    if (!deadline.is_never()) {
      const int64_t ns = (deadline - io::os_now()).ns();
      if (ns <= 0) return 0;
      left = static_cast<int>((ns + 999'999) / 1'000'000);
    }
    if (::poll(waits.data(), waits.size(), left) < 0) return -1;
  }
}

// No kernel looks at the addresses for us.
bool is_there(const void* buffer, size_t size) { return buffer != nullptr || size == 0; }

ssize_t send_all(Rsocket& stream, const iovec* pieces, size_t count, int flags) {
  ssize_t total = 0;
  if (!is_there(pieces, count)) return fail(EFAULT);
  for (size_t i = 0; i < count; ++i) {
    if (pieces[i].iov_len == 0) continue;
    if (pieces[i].iov_base == nullptr) return total > 0 ? total : fail(EFAULT);
    const ssize_t sent = stream.send(pieces[i].iov_base, pieces[i].iov_len, flags, nullptr);
    if (sent < 0) return total > 0 ? total : sent;
    total += sent;
    if (static_cast<size_t>(sent) < pieces[i].iov_len) break;
  }
  return total;
}

ssize_t receive_all(Rsocket& stream, const iovec* pieces, size_t count, int flags) {
  ssize_t total = 0;
  if (!is_there(pieces, count)) return fail(EFAULT);
  for (size_t i = 0; i < count; ++i) {
    if (pieces[i].iov_len == 0) continue;
    if (pieces[i].iov_base == nullptr) return total > 0 ? total : fail(EFAULT);
    // After the first only what is there.
    const int how = total > 0 && (flags & MSG_WAITALL) == 0 ? flags | MSG_DONTWAIT : flags;
    const ssize_t got =
        stream.receive(pieces[i].iov_base, pieces[i].iov_len, how, nullptr, nullptr);
    if (got < 0) return total > 0 ? total : got;
    total += got;
    if (static_cast<size_t>(got) < pieces[i].iov_len) break;
  }
  return total;
}

}  // namespace
}  // namespace farverbs::rdmacm

using namespace farverbs;
using namespace farverbs::rdmacm;

extern "C" {

int rsocket(int domain, int type, int protocol) {
  if (domain != AF_INET && domain != AF_INET6) return fail(ENOTSUP);
  if (type == SOCK_STREAM && (protocol == 0 || protocol == IPPROTO_TCP)) {
    return add(Stream::create(domain));
  }
  if (type == SOCK_DGRAM && (protocol == 0 || protocol == IPPROTO_UDP)) {
    return add(Datagrams::create(domain));
  }
  return fail(ENOTSUP);
}

int rbind(int socket, const sockaddr* addr, socklen_t addrlen) {
  const auto stream = find(socket);
  if (stream == nullptr) return -1;
  if (addr == nullptr || addrlen < sizeof(sockaddr_in)) return fail(EINVAL);
  return stream->bind(addr);
}

int rlisten(int socket, int backlog) {
  const auto stream = find(socket);
  return stream != nullptr ? stream->listen(backlog) : -1;
}

int raccept(int socket, sockaddr* addr, socklen_t* addrlen) {
  const auto listener = find(socket);
  if (listener == nullptr) return -1;
  auto stream = listener->accept();
  if (stream == nullptr) return -1;
  if (addr != nullptr && addrlen != nullptr) (void)stream->name(true, addr, addrlen);
  return add(std::move(stream));
}

int rconnect(int socket, const sockaddr* addr, socklen_t addrlen) {
  const auto stream = find(socket);
  if (stream == nullptr) return -1;
  if (addr == nullptr || addrlen < sizeof(sockaddr_in)) return fail(EINVAL);
  if (addr->sa_family != AF_INET && addr->sa_family != AF_INET6) return fail(EAFNOSUPPORT);
  if (addrlen < sockaddr_size(addr)) return fail(EINVAL);
  return stream->connect(addr);
}

int rshutdown(int socket, int how) {
  const auto stream = find(socket);
  return stream != nullptr ? stream->shut_down(how) : -1;
}

int rclose(int socket) {
  const auto stream = find(socket);
  if (stream == nullptr) return -1;
  stream->close();
  const std::lock_guard lock(streams_mutex);
  streams().erase(socket);
  return 0;
}

ssize_t rrecv(int socket, void* buf, size_t len, int flags) {
  const auto stream = find(socket);
  if (stream == nullptr) return -1;
  return is_there(buf, len) ? stream->receive(buf, len, flags, nullptr, nullptr) : fail(EFAULT);
}

ssize_t rrecvfrom(int socket, void* buf, size_t len, int flags, sockaddr* src_addr,
                  socklen_t* addrlen) {
  const auto stream = find(socket);
  if (stream == nullptr) return -1;
  return is_there(buf, len) ? stream->receive(buf, len, flags, src_addr, addrlen) : fail(EFAULT);
}

ssize_t rrecvmsg(int socket, msghdr* msg, int flags) {
  const auto stream = find(socket);
  if (stream == nullptr) return -1;
  if (msg == nullptr) return fail(EFAULT);
  if (msg->msg_control != nullptr && msg->msg_controllen != 0) return fail(ENOTSUP);
  return receive_all(*stream, msg->msg_iov, msg->msg_iovlen, flags);
}

ssize_t rread(int socket, void* buf, size_t count) { return rrecv(socket, buf, count, 0); }

ssize_t rreadv(int socket, const iovec* iov, int iovcnt) {
  const auto stream = find(socket);
  if (stream == nullptr) return -1;
  return iovcnt < 0 ? fail(EINVAL) : receive_all(*stream, iov, static_cast<size_t>(iovcnt), 0);
}

ssize_t rsend(int socket, const void* buf, size_t len, int flags) {
  const auto stream = find(socket);
  if (stream == nullptr) return -1;
  return is_there(buf, len) ? stream->send(buf, len, flags, nullptr) : fail(EFAULT);
}

ssize_t rsendto(int socket, const void* buf, size_t len, int flags, const sockaddr* dest_addr,
                socklen_t) {
  const auto stream = find(socket);
  if (stream == nullptr) return -1;
  return is_there(buf, len) ? stream->send(buf, len, flags, dest_addr) : fail(EFAULT);
}

ssize_t rsendmsg(int socket, const msghdr* msg, int flags) {
  const auto stream = find(socket);
  if (stream == nullptr) return -1;
  if (msg == nullptr) return fail(EFAULT);
  if (msg->msg_control != nullptr && msg->msg_controllen != 0) return fail(ENOTSUP);
  return send_all(*stream, msg->msg_iov, msg->msg_iovlen, flags);
}

ssize_t rwrite(int socket, const void* buf, size_t count) { return rsend(socket, buf, count, 0); }

ssize_t rwritev(int socket, const iovec* iov, int iovcnt) {
  const auto stream = find(socket);
  if (stream == nullptr) return -1;
  return iovcnt < 0 ? fail(EINVAL) : send_all(*stream, iov, static_cast<size_t>(iovcnt), 0);
}

int rpoll(pollfd* fds, nfds_t nfds, int timeout) { return poll_all(fds, nfds, timeout); }

int rselect(int nfds, fd_set* readfds, fd_set* writefds, fd_set* exceptfds, timeval* timeout) {
  std::vector<pollfd> fds;
  for (int fd = 0; fd < nfds; ++fd) {
    short events = 0;
    if (readfds != nullptr && FD_ISSET(fd, readfds)) events |= POLLIN;
    if (writefds != nullptr && FD_ISSET(fd, writefds)) events |= POLLOUT;
    if (exceptfds != nullptr && FD_ISSET(fd, exceptfds)) events |= POLLPRI;
    if (events != 0) fds.push_back({fd, events, 0});
  }
  const int wait = timeout == nullptr
                       ? -1
                       : static_cast<int>(timeout->tv_sec * 1000 + (timeout->tv_usec + 999) / 1000);
  if (poll_all(fds.data(), fds.size(), wait) < 0) return -1;
  for (fd_set* set : {readfds, writefds, exceptfds}) {
    if (set != nullptr) FD_ZERO(set);
  }
  int count = 0;
  const auto mark = [&](fd_set* set, const pollfd& fd, int events) {
    if (set == nullptr || (fd.revents & events) == 0) return;
    FD_SET(fd.fd, set);
    ++count;
  };
  for (const pollfd& fd : fds) {
    if ((fd.events & POLLIN) != 0) mark(readfds, fd, POLLIN | POLLHUP | POLLERR);
    if ((fd.events & POLLOUT) != 0) mark(writefds, fd, POLLOUT | POLLERR);
    if ((fd.events & POLLPRI) != 0) mark(exceptfds, fd, POLLPRI);
  }
  return count;
}

int rgetpeername(int socket, sockaddr* addr, socklen_t* addrlen) {
  const auto stream = find(socket);
  return stream != nullptr ? stream->name(true, addr, addrlen) : -1;
}

int rgetsockname(int socket, sockaddr* addr, socklen_t* addrlen) {
  const auto stream = find(socket);
  return stream != nullptr ? stream->name(false, addr, addrlen) : -1;
}

int rsetsockopt(int socket, int level, int optname, const void* optval, socklen_t optlen) {
  const auto stream = find(socket);
  if (stream == nullptr) return -1;
  if (optval == nullptr || optlen < sizeof(int)) return fail(EINVAL);
  int value = 0;
  std::memcpy(&value, optval, sizeof value);
  const std::lock_guard lock(stream->mutex());
  return set_number(stream->options(), level, optname, value);
}

int rgetsockopt(int socket, int level, int optname, void* optval, socklen_t* optlen) {
  const auto stream = find(socket);
  if (stream == nullptr) return -1;
  if (optval == nullptr || optlen == nullptr || *optlen < sizeof(int)) return fail(EINVAL);
  const std::lock_guard lock(stream->mutex());
  int value = 0;
  if (get_number(*stream, level, optname, value) != 0) return -1;
  std::memcpy(optval, &value, sizeof value);
  *optlen = sizeof value;
  return 0;
}

int rfcntl(int socket, int cmd, ...) {
  const auto stream = find(socket);
  if (stream == nullptr) return -1;
  if (cmd == F_GETFL) return stream->blocking() ? 0 : O_NONBLOCK;
  if (cmd != F_SETFL) return fail(ENOTSUP);
  va_list arguments;
  va_start(arguments, cmd);
  const auto flags = va_arg(arguments, long);
  va_end(arguments);
  stream->set_blocking((flags & O_NONBLOCK) == 0);
  return 0;
}

off_t riomap(int socket, void* buf, size_t len, int prot, int, off_t offset) {
  const auto stream = find(socket);
  return stream != nullptr ? stream->map(buf, len, prot, offset) : -1;
}

int riounmap(int socket, void* buf, size_t len) {
  const auto stream = find(socket);
  return stream != nullptr ? stream->unmap(buf, len) : -1;
}

size_t riowrite(int socket, const void* buf, size_t count, off_t offset, int flags) {
  const auto stream = find(socket);
  return stream != nullptr ? stream->write_at(buf, count, offset, flags) : size_t{0} - 1;
}

}  // extern "C"
