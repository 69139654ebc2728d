#include "farverbs/io/udp_port.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "farverbs/io/socket_options.h"

namespace farverbs::io {
namespace {

// Appends a control message at `control`, which the caller has zeroed; returns the bytes it takes.
template <typename T>
size_t put_control(std::byte* control, int level, int type, const T& value) {
  cmsghdr header{};
  header.cmsg_level = level;
  header.cmsg_type = type;
  header.cmsg_len = CMSG_LEN(sizeof value);
  std::memcpy(control, &header, sizeof header);
  std::memcpy(control + CMSG_LEN(0), &value, sizeof value);
  return CMSG_SPACE(sizeof value);
}

template <typename T>
T control_value(const cmsghdr* message) {
  T value;
  std::memcpy(&value, CMSG_DATA(message), sizeof value);
  return value;
}

}  // namespace

Result<std::unique_ptr<UdpPort>> UdpPort::open(const UdpOptions& options) {
  FV_ASSIGN(UdpSocket socket, open_udp_socket(options));
  std::unique_ptr<UdpPort> port(new UdpPort(options, std::move(socket)));
  if (!port->map_buffers()) return Error::from_errno("no memory for receive buffers");
  return port;
}

UdpPort::UdpPort(const UdpOptions& options, UdpSocket socket)
    : socket_(std::move(socket)),
      traffic_class_(options.traffic_class),
      hop_limit_(options.hop_limit) {
  const bool segments = socket_.max_segments > 1;
  // Without GSO every datagram leaves with IPv4 identification 0, while a burst's datagrams promise
  // 0, 1, 2, ... in their ICRCs; IPv6 has no identification, so there a burst can be sent one by
  // one.
  limits_.max_datagrams_per_burst =
      segments ? socket_.max_segments : (socket_.local.address.is_v4() ? 1 : kMaxBatch);
  limits_.max_burst_bytes = kMaxUdpPayload;
  limits_.max_datagram = socket_.max_datagram;
  limits_.receive_buffer_bytes = socket_.receive_buffer;
  limits_.receives_merged = socket_.merges;
  if (!segments) {
    tx_messages_.resize(limits_.max_datagrams_per_burst);
    tx_data_.resize(limits_.max_datagrams_per_burst);
  }
  destination_.address = socket_.local.address;  // the family of the first comparison
  destination_address_ = SocketAddress(destination_);
  std::memset(&controls_, 0, sizeof controls_);
  std::memset(&messages_, 0, sizeof messages_);
}

UdpPort::~UdpPort() {
  if (buffers_ != nullptr) munmap(buffers_, kMaxBatch * kStride);
}

bool UdpPort::map_buffers() {
  void* memory = mmap(nullptr, kMaxBatch * kStride, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return false;
  buffers_ = static_cast<std::byte*>(memory);
  std::memset(buffers_, 0, kBufferBytes);  // the one that is always used: no fault later
  for (size_t i = 0; i < kMaxBatch; ++i) {
    buffers_[i * kStride] = std::byte{0};
    slots_[i].data = {buffers_ + i * kStride, kBufferBytes};
    prepare(messages_[i].msg_hdr, i);
  }
  return true;
}

// ---- Sending

SendStatus UdpPort::send(const TxFlow& flow, const wire::TxBurst& burst) {
  if (burst.empty()) return SendStatus::kSent;
  if (flow.any_port && !no_side_) {
    if (const auto status = send_aside(flow, burst)) return *status;
  }
  if (!(flow.destination == destination_)) set_destination(flow.destination);
  if (flow.traffic_class != traffic_class_) adopt(flow.traffic_class);
  if (burst.count() == 1 && flow.traffic_class == traffic_class_ && flow.hop_limit == hop_limit_) {
    const auto bytes = burst.bytes();
    if (::sendto(socket_.fd.get(), bytes.data(), bytes.size(), 0, &destination_address_.generic,
                 destination_address_.size) < 0) {
      return failed(errno, burst);
    }
    return sent(burst);
  }
  if (burst.count() == 1 || socket_.max_segments > 1) return send_segmented(flow, burst);
  return send_one_by_one(flow, burst);
}

std::optional<SendStatus> UdpPort::send_aside(const TxFlow& flow, const wire::TxBurst& burst) {
  if (side_ == nullptr) {
    no_side_ = socket_.max_segments <= 1 || socket_.link_local;
    if (no_side_) return std::nullopt;
    side_ = std::make_unique<SideSender>(socket_.local.address);
  }
  const std::optional<SendStatus> status = side_->send(flow, burst);
  no_side_ = side_->refused();
  if (!status.has_value()) return std::nullopt;
  if (*status == SendStatus::kSent) return sent(burst);
  ++(*status == SendStatus::kWouldBlock ? counters_.send_would_block : counters_.send_failures);
  return status;
}

std::vector<int> UdpPort::sockets() const {
  std::vector<int> sockets;
  if (side_ != nullptr) sockets = side_->sockets();
  sockets.push_back(socket_.fd.get());
  return sockets;
}

// A control message with each send costs more than to tell the socket once, where most that is
// sent has one traffic class.
void UdpPort::adopt(uint8_t traffic_class) {
  constexpr unsigned kOften = 16;
  if (traffic_class != wanted_class_) wanted_for_ = 0;
  wanted_class_ = traffic_class;
  if (++wanted_for_ < kOften) return;
  wanted_for_ = 0;
  const bool v4 = socket_.local.address.is_v4();
  const int value = traffic_class;
  if (::setsockopt(socket_.fd.get(), v4 ? IPPROTO_IP : IPPROTO_IPV6, v4 ? IP_TOS : IPV6_TCLASS,
                   &value, sizeof value) == 0) {
    traffic_class_ = traffic_class;
  }
}

void UdpPort::set_destination(const Endpoint& destination) {
  destination_ = destination;
  destination_address_ = SocketAddress(destination);
}

// The control messages that differ from what the socket does by itself; returns their bytes.
size_t UdpPort::flow_control(const TxFlow& flow, std::byte* control) const {
  size_t used = 0;
  const bool v4 = socket_.local.address.is_v4();
  const int level = v4 ? IPPROTO_IP : IPPROTO_IPV6;
  if (flow.traffic_class != traffic_class_) {
    used += put_control<int>(control + used, level, v4 ? IP_TOS : IPV6_TCLASS, flow.traffic_class);
  }
  if (flow.hop_limit != hop_limit_) {
    used += put_control<int>(control + used, level, v4 ? IP_TTL : IPV6_HOPLIMIT, flow.hop_limit);
  }
  return used;
}

SendStatus UdpPort::send_segmented(const TxFlow& flow, const wire::TxBurst& burst) {
  Control control{};
  size_t used = flow_control(flow, control.bytes);
  if (burst.count() > 1) {
    const auto size = static_cast<uint16_t>(burst.segment_size());
    used += put_control(control.bytes + used, IPPROTO_UDP, UDP_SEGMENT, size);
  }
  const auto bytes = burst.bytes();
  iovec data{const_cast<std::byte*>(bytes.data()), bytes.size()};
  msghdr message{};
  message.msg_name = &destination_address_.generic;
  message.msg_namelen = destination_address_.size;
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = used > 0 ? control.bytes : nullptr;
  message.msg_controllen = used;
  if (::sendmsg(socket_.fd.get(), &message, 0) < 0) return failed(errno, burst);
  return sent(burst);
}

SendStatus UdpPort::send_one_by_one(const TxFlow& flow, const wire::TxBurst& burst) {
  Control control{};
  const size_t used = flow_control(flow, control.bytes);
  auto bytes = burst.bytes();
  const size_t count = std::min(burst.count(), tx_messages_.size());
  for (size_t i = 0; i < count; ++i) {
    const size_t size = std::min(bytes.size(), burst.segment_size());
    tx_data_[i] = {const_cast<std::byte*>(bytes.data()), size};
    bytes = bytes.subspan(size);
    msghdr& message = tx_messages_[i].msg_hdr;
    message = {};
    message.msg_name = &destination_address_.generic;
    message.msg_namelen = destination_address_.size;
    message.msg_iov = &tx_data_[i];
    message.msg_iovlen = 1;
    message.msg_control = used > 0 ? control.bytes : nullptr;
    message.msg_controllen = used;
  }
  const int done =
      ::sendmmsg(socket_.fd.get(), tx_messages_.data(), static_cast<unsigned>(count), 0);
  if (done < 0) return failed(errno, burst);
  // What follows a datagram that the kernel refused is lost, as it could be on the wire.
  counters_.send_failures += burst.count() - static_cast<size_t>(done);
  return sent(burst);
}

SendStatus UdpPort::sent(const wire::TxBurst& burst) {
  ++counters_.sent_bursts;
  counters_.sent_datagrams += burst.count();
  counters_.sent_bytes += burst.bytes().size();
  return SendStatus::kSent;
}

SendStatus UdpPort::failed(int code, const wire::TxBurst& burst) {
  if (code == EAGAIN || code == ENOBUFS || code == ENOMEM) {
    ++counters_.send_would_block;
    return SendStatus::kWouldBlock;
  }
  ++counters_.send_failures;
  // Older kernels say EINVAL where newer ones say EMSGSIZE for a segment that exceeds the MTU.
  if (code == EMSGSIZE || (code == EINVAL && burst.count() > 1)) return SendStatus::kTooBig;
  if (code == EIO && burst.count() > 1) {
    // An interface that cannot checksum takes no GSO from some kernels: from now on one by one.
    limits_.max_datagrams_per_burst = 1;
  }
  return SendStatus::kFailed;
}

// ---- Receiving

void UdpPort::prepare(msghdr& header, size_t index) {
  header.msg_name = &slots_[index].source;
  header.msg_namelen = sizeof slots_[index].source;
  header.msg_iov = &slots_[index].data;
  header.msg_iovlen = 1;
  header.msg_control = controls_[index].bytes;
  header.msg_controllen = kControlBytes;
}

size_t UdpPort::receive(std::span<RxBurst> bursts) {
  if (bursts.empty()) return 0;
  if (batch_ == 1 || bursts.size() == 1) {
    if (!receive_one(bursts[0])) return 0;
    // An unmerged datagram may have others behind it. Looking for them costs time, so where they
    // were looked for in vain, as in a ping-pong, the next look comes later and later.
    if (bursts[0].bytes.size() == bursts[0].segment_size && ++singles_ >= patience_) batch_ = 2;
    return 1;
  }
  return receive_many(bursts.first(std::min(bursts.size(), batch_)));
}

bool UdpPort::receive_one(RxBurst& burst) {
  msghdr& header = messages_[0].msg_hdr;
  const ssize_t length = ::recvmsg(socket_.fd.get(), &header, 0);
  if (length < 0) return false;
  const bool useful = describe(header, 0, static_cast<size_t>(length), burst);
  prepare(header, 0);
  return useful;
}

size_t UdpPort::receive_many(std::span<RxBurst> bursts) {
  const int got = ::recvmmsg(socket_.fd.get(), messages_.data(),
                             static_cast<unsigned>(bursts.size()), 0, nullptr);
  if (got <= 0) return 0;
  size_t filled = 0;
  bool merged = false;
  for (size_t i = 0; i < static_cast<size_t>(got); ++i) {
    msghdr& header = messages_[i].msg_hdr;
    RxBurst& burst = bursts[filled];
    if (describe(header, i, messages_[i].msg_len, burst)) {
      merged |= burst.bytes.size() > burst.segment_size;
      ++filled;
    }
    prepare(header, i);
  }
  // The batch follows the traffic: merged bursts are best taken one by one through one hot buffer,
  // single datagrams as many as there are.
  if (merged) {
    batch_ = 1;
  } else if (static_cast<size_t>(got) == bursts.size()) {
    batch_ = std::min(batch_ * 2, kMaxBatch);
  } else {
    batch_ = static_cast<size_t>(got);
  }
  patience_ = got > 1 ? 1 : std::min(patience_ * 2, kMostPatience);
  singles_ = 0;
  return filled;
}

bool UdpPort::describe(const msghdr& header, size_t index, size_t length, RxBurst& burst) {
  ++counters_.received_bursts;
  size_t segment = length;
  burst.traffic_class = 0;
  burst.destination = socket_.local;
  for (const cmsghdr* c = CMSG_FIRSTHDR(&header); c != nullptr;
       c = CMSG_NXTHDR(const_cast<msghdr*>(&header), const_cast<cmsghdr*>(c))) {
    if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_TOS) {
      burst.traffic_class = control_value<uint8_t>(c);
    } else if (c->cmsg_level == IPPROTO_UDP && c->cmsg_type == UDP_GRO) {
      const int merged = control_value<int>(c);
      if (merged > 0) segment = std::min(length, static_cast<size_t>(merged));
    } else if (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_TCLASS) {
      burst.traffic_class = static_cast<uint8_t>(control_value<int>(c));
    } else if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SO_RXQ_OVFL) {
      const uint32_t total = control_value<uint32_t>(c);
      counters_.receive_overflows += total - overflows_seen_;
      overflows_seen_ = total;
    } else if (c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_PKTINFO) {
      burst.destination.address = to_ip_address(control_value<in_pktinfo>(c).ipi_addr);
    } else if (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_PKTINFO) {
      burst.destination.address = to_ip_address(control_value<in6_pktinfo>(c).ipi6_addr);
    }
  }
  if (length == 0) {
    ++counters_.received_datagrams;
    return false;
  }
  const sockaddr_in6& source = slots_[index].source;
  const size_t source_size = std::min<size_t>(header.msg_namelen, sizeof source);
  if (std::memcmp(&source, &last_source_, source_size) != 0) {
    std::memcpy(&last_source_, &source, source_size);
    SocketAddress address;
    std::memcpy(&address.v6, &source, source_size);
    last_endpoint_ = address.to_endpoint();
  }
  burst.source = last_endpoint_;
  burst.bytes = {buffers_ + index * kStride, length};
  burst.segment_size = segment;
  counters_.received_datagrams += (length + segment - 1) / segment;
  counters_.received_bytes += length;
  return true;
}

}  // namespace farverbs::io
