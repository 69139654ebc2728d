#include "farverbs/io/handover.h"

#include <sys/socket.h>
#include <unistd.h>

#include <cstring>

#include "farverbs/base/byte_order.h"

namespace farverbs::io {
namespace {

// Processes of different versions may share a port; a header of another kind is rejected.
constexpr uint32_t kMagic = 0x4656'4601;

void put_address(std::byte* place, const IpAddress& address) {
  std::memcpy(place, address.bytes().data(), 16);
}

IpAddress get_address(const std::byte* place, bool v6) {
  if (!v6) return IpAddress::v4(load_be<uint32_t>(place));
  std::array<std::byte, 16> bytes;
  std::memcpy(bytes.data(), place, bytes.size());
  return IpAddress::v6(bytes);
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

void put_handover_header(std::byte* h, const RxBurst& burst) {
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

Handover receive_handover(int fd, std::span<std::byte> payload, RxBurst& burst) {
  std::byte header[kHandoverHeaderBytes];
  iovec data[2] = {{header, sizeof header}, {payload.data(), payload.size()}};
  alignas(cmsghdr) std::byte control[CMSG_SPACE(sizeof(ucred))];
  msghdr message{};
  message.msg_iov = data;
  message.msg_iovlen = 2;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  const ssize_t length = ::recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
  if (length < 0) return Handover::kNothing;
  if (length <= static_cast<ssize_t>(sizeof header) || !from_this_user(message) ||
      !get_header(header, burst)) {
    return Handover::kRejected;
  }
  burst.bytes = payload.first(static_cast<size_t>(length) - sizeof header);
  return Handover::kTaken;
}

}  // namespace farverbs::io
