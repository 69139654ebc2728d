#include "tools/demo/tcp_file.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

namespace farverbs::tools::demo {
namespace {

constexpr char kRequest = 'G';
constexpr size_t kBufferBytes = size_t{1} << 20;

/// A descriptor that is closed with its owner.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&&) = delete;
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t size = 0;
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
};

SocketAddress to_socket_address(const Endpoint& endpoint) {
  SocketAddress address;
  if (endpoint.address.is_v4()) {
    auto* v4 = reinterpret_cast<sockaddr_in*>(&address.storage);
    v4->sin_family = AF_INET;
    v4->sin_port = htons(endpoint.port);
    v4->sin_addr.s_addr = htonl(endpoint.address.v4_value());
    address.size = sizeof(sockaddr_in);
  } else {
    auto* v6 = reinterpret_cast<sockaddr_in6*>(&address.storage);
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(endpoint.port);
    std::memcpy(&v6->sin6_addr, endpoint.address.bytes().data(), sizeof v6->sin6_addr);
    address.size = sizeof(sockaddr_in6);
  }
  return address;
}

/// The sender's first bytes: the file's size, then an errno value that is 0 if the file follows.
struct Preamble {
  uint64_t file_bytes = 0;
  int32_t refusal = 0;
};

Result<void> send_preamble(int socket, const Preamble& preamble) {
  if (::send(socket, &preamble, sizeof preamble, MSG_NOSIGNAL) != sizeof preamble) {
    return Error::from_errno("sending the file's size");
  }
  return {};
}

Result<void> send_contents(int socket, int file, uint64_t file_bytes) {
  off_t offset = 0;
  while (static_cast<uint64_t>(offset) < file_bytes) {
    const ssize_t sent = ::sendfile(socket, file, &offset, kBufferBytes);
    if (sent < 0 && errno != EINTR) return Error::from_errno("sending the file");
    if (sent == 0) return Error{EIO, "the file became shorter while it was sent"};
  }
  return {};
}

Result<void> receive_contents(int socket, int file, uint64_t file_bytes) {
  std::vector<char> buffer(kBufferBytes);
  uint64_t received = 0;
  while (received < file_bytes) {
    const ssize_t got = ::recv(socket, buffer.data(), buffer.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Error::from_errno("receiving the file");
    if (got == 0) return Error{EPIPE, "the sender closed the connection early"};
    if (::write(file, buffer.data(), static_cast<size_t>(got)) != got) {
      return Error::from_errno("writing the copy");
    }
    received += static_cast<uint64_t>(got);
  }
  return {};
}

Result<Descriptor> listen_on(const Endpoint& local) {
  SocketAddress address = to_socket_address(local);
  Descriptor listener(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  ::setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (::bind(listener.get(), address.get(), address.size) != 0 ||
      ::listen(listener.get(), 1) != 0) {
    return Error::from_errno("listening on " + local.to_string());
  }
  return listener;
}

/// The first connection whose peer asks for the file. One that closes only wanted to know whether
/// anybody listens.
Result<Descriptor> accept_request(const Descriptor& listener) {
  while (true) {
    Descriptor connection(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (connection.get() < 0) return Error::from_errno("accepting a connection");
    char request = 0;
    if (::recv(connection.get(), &request, 1, 0) == 1 && request == kRequest) return connection;
  }
}

}  // namespace

Result<int> connect_patiently(const Endpoint& peer, Duration patience) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point deadline = Clock::now() + std::chrono::nanoseconds(patience.ns());
  SocketAddress address = to_socket_address(peer);
  while (true) {
    Descriptor socket(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (socket.get() < 0) return Error::from_errno("making a TCP socket");
    if (::connect(socket.get(), address.get(), address.size) == 0) return ::dup(socket.get());
    if (Clock::now() >= deadline) return Error::from_errno("connecting to " + peer.to_string());
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

Result<void> send_file(const Endpoint& local, const std::string& path,
                       const std::string& congestion) {
  Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat info {};
  if (file.get() < 0 || ::fstat(file.get(), &info) != 0) return Error::from_errno(path);
  FV_ASSIGN(const Descriptor listener, listen_on(local));
  FV_ASSIGN(const Descriptor socket, accept_request(listener));
  Preamble preamble{static_cast<uint64_t>(info.st_size), 0};
  if (::setsockopt(socket.get(), IPPROTO_TCP, TCP_CONGESTION, congestion.data(),
                   static_cast<socklen_t>(congestion.size())) != 0) {
    preamble.refusal = errno;
  }
  FV_TRY(send_preamble(socket.get(), preamble));
  if (preamble.refusal == 0) FV_TRY(send_contents(socket.get(), file.get(), preamble.file_bytes));
  ::shutdown(socket.get(), SHUT_WR);
  char rest = 0;
  while (::recv(socket.get(), &rest, 1, 0) > 0) continue;
  return {};
}

Result<void> receive_file(const Endpoint& peer, const std::string& path, Duration patience) {
  FV_ASSIGN(const int fd, connect_patiently(peer, patience));
  const Descriptor socket(fd);
  if (::send(socket.get(), &kRequest, 1, MSG_NOSIGNAL) != 1) {
    return Error::from_errno("asking for the file");
  }
  Preamble preamble;
  if (::recv(socket.get(), &preamble, sizeof preamble, MSG_WAITALL) != sizeof preamble) {
    return Error{EPIPE, "the sender closed the connection before it named the file's size"};
  }
  if (preamble.refusal != 0) {
    return Error{ENOPROTOOPT, std::string("the kernel does not offer this congestion control: ") +
                                  std::strerror(preamble.refusal)};
  }
  const std::string partial = path + ".partial";
  const Descriptor file(::open(partial.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (file.get() < 0) return Error::from_errno(partial);
  FV_TRY(receive_contents(socket.get(), file.get(), preamble.file_bytes));
  if (::rename(partial.c_str(), path.c_str()) != 0) return Error::from_errno(path);
  return {};
}

}  // namespace farverbs::tools::demo
