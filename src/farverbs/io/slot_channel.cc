#include "farverbs/io/slot_channel.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "farverbs/base/byte_order.h"

namespace farverbs::io {
namespace {

// Processes of different versions may share a port; a header of another kind is rejected.
constexpr uint32_t kMagic = 0x4656'4601;
constexpr int kQueueBytes = 4 << 20;

void put_address(std::byte* place, const IpAddress& address) {
  std::memcpy(place, address.bytes().data(), 16);
}

IpAddress get_address(const std::byte* place, bool v6) {
  if (!v6) return IpAddress::v4(load_be<uint32_t>(place));
  std::array<std::byte, 16> bytes;
  std::memcpy(bytes.data(), place, bytes.size());
  return IpAddress::v6(bytes);
}

void put_header(std::byte* h, const RxBurst& burst) {
  store_be(h, kMagic);
  h[4] = std::byte{burst.traffic_class};
  h[5] = std::byte{0};
  store_be(h + 6, static_cast<uint16_t>(burst.segment_size));
  h[8] = std::byte{burst.source.address.is_v6()};
  h[9] = std::byte{burst.destination.address.is_v6()};
  store_be(h + 10, burst.source.port);
  store_be(h + 12, burst.destination.port);
  store_be(h + 14, uint16_t{0});
  put_address(h + 16, burst.source.address);
  put_address(h + 32, burst.destination.address);
}

bool get_header(const std::byte* h, RxBurst& burst) {
  if (load_be<uint32_t>(h) != kMagic) return false;
  burst.traffic_class = std::to_integer<uint8_t>(h[4]);
  burst.segment_size = load_be<uint16_t>(h + 6);
  burst.source = {get_address(h + 16, h[8] != std::byte{0}), load_be<uint16_t>(h + 10)};
  burst.destination = {get_address(h + 32, h[9] != std::byte{0}), load_be<uint16_t>(h + 12)};
  return burst.segment_size > 0;
}

bool from_this_user(const msghdr& message) {
  for (const cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr;
       c = CMSG_NXTHDR(const_cast<msghdr*>(&message), const_cast<cmsghdr*>(c))) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_CREDENTIALS) continue;
    ucred sender;
    std::memcpy(&sender, CMSG_DATA(c), sizeof sender);
    return sender.uid == 0 || sender.uid == geteuid();
  }
  return false;
}

}  // namespace

Result<SlotChannel> SlotChannel::claim(const Endpoint& endpoint) {
  FileDescriptor fd(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return Error::from_errno("cannot open a unix socket");
  const int on = 1;
  if (setsockopt(fd.get(), SOL_SOCKET, SO_PASSCRED, &on, sizeof on) != 0) {
    return Error::from_errno("cannot ask for senders' credentials on a unix socket");
  }
  // What is in an owner's queue is charged to the sender, so this bounds how much can be on its
  // way.
  if (setsockopt(fd.get(), SOL_SOCKET, SO_SNDBUFFORCE, &kQueueBytes, sizeof kQueueBytes) != 0) {
    setsockopt(fd.get(), SOL_SOCKET, SO_SNDBUF, &kQueueBytes, sizeof kQueueBytes);
  }
  const AbstractAddress slots(slot_prefix(endpoint));
  for (size_t slot = 0; slot < kSlots; ++slot) {
    const AbstractAddress name = slots.with_number(static_cast<uint8_t>(slot));
    if (::bind(fd.get(), name.generic(), name.size) == 0) {
      return SlotChannel(endpoint, static_cast<uint8_t>(slot), std::move(fd));
    }
    if (errno != EADDRINUSE)
      return Error::from_errno("cannot claim a slot of " + endpoint.to_string());
  }
  return Error{EUSERS, "256 processes share UDP " + endpoint.to_string() +
                           " already, which is the most; bind to another address or port"};
}

SlotChannel::SlotChannel(const Endpoint& endpoint, uint8_t slot, FileDescriptor fd)
    : slots_(slot_prefix(endpoint)),
      slot_(slot),
      fd_(std::move(fd)),
      payload_(std::make_unique<std::byte[]>(kPayloadBytes)) {}

Forwarding SlotChannel::forward(uint8_t slot, const RxBurst& burst) {
  std::byte header[kHeaderBytes];
  put_header(header, burst);
  iovec data[2] = {{header, kHeaderBytes},
                   {const_cast<std::byte*>(burst.bytes.data()), burst.bytes.size()}};
  AbstractAddress name = slots_.with_number(slot);
  msghdr message{};
  message.msg_name = &name.address;
  message.msg_namelen = name.size;
  message.msg_iov = data;
  message.msg_iovlen = 2;
  if (::sendmsg(fd_.get(), &message, MSG_NOSIGNAL) >= 0) return Forwarding::kForwarded;
  return errno == ECONNREFUSED || errno == ENOENT ? Forwarding::kNoOwner : Forwarding::kFull;
}

bool SlotChannel::receive(RxBurst& burst) {
  // What is rejected must not hide what follows, but must not keep the caller here either.
  for (int attempt = 0; attempt < 8; ++attempt) {
    std::byte header[kHeaderBytes];
    iovec data[2] = {{header, kHeaderBytes}, {payload_.get(), kPayloadBytes}};
    alignas(cmsghdr) std::byte control[CMSG_SPACE(sizeof(ucred))];
    msghdr message{};
    message.msg_iov = data;
    message.msg_iovlen = 2;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    const ssize_t length = ::recvmsg(fd_.get(), &message, MSG_CMSG_CLOEXEC);
    if (length < 0) return false;
    if (length > static_cast<ssize_t>(kHeaderBytes) && from_this_user(message) &&
        get_header(header, burst)) {
      burst.bytes = {payload_.get(), static_cast<size_t>(length) - kHeaderBytes};
      if (burst.segment_size > burst.bytes.size()) burst.segment_size = burst.bytes.size();
      return true;
    }
    ++rejected_;
  }
  return false;
}

}  // namespace farverbs::io
