#include "farverbs/io/slot_channel.h"

#include <cerrno>

#include "farverbs/io/handover.h"

namespace farverbs::io {
namespace {

constexpr int kQueueBytes = 4 << 20;

}  // namespace

Result<SlotChannel> SlotChannel::claim(const Endpoint& endpoint, std::optional<uint8_t> wanted) {
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
  const size_t first = wanted.value_or(0);
  const size_t end = wanted.has_value() ? first + 1 : kSlots;
  for (size_t slot = first; slot < end; ++slot) {
    const AbstractAddress name = slots.with_number(static_cast<uint8_t>(slot));
    if (::bind(fd.get(), name.generic(), name.size) == 0) {
      return SlotChannel(endpoint, static_cast<uint8_t>(slot), std::move(fd));
    }
    if (errno != EADDRINUSE)
      return Error::from_errno("cannot claim a slot of " + endpoint.to_string());
  }
  if (wanted.has_value()) {
    return Error{EADDRINUSE, "slot " + std::to_string(*wanted) + " of UDP " + endpoint.to_string() +
                                 " is another process's"};
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
  std::byte header[kHandoverHeaderBytes];
  put_handover_header(header, burst);
  iovec data[2] = {{header, kHandoverHeaderBytes},
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
    const Handover taken = receive_handover(fd_.get(), {payload_.get(), kPayloadBytes}, burst);
    if (taken == Handover::kNothing) return false;
    if (taken == Handover::kTaken) {
      if (burst.segment_size > burst.bytes.size()) burst.segment_size = burst.bytes.size();
      return true;
    }
    ++rejected_;
  }
  return false;
}

}  // namespace farverbs::io
