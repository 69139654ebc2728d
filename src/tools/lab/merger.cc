#include "tools/lab/merger.h"

#include <cstring>

#include "farverbs/base/byte_order.h"

namespace farverbs::tools::lab {
namespace {

constexpr uint32_t kMaxIpLength = 65'535;
constexpr uint8_t kTcpPush = 0x08;
constexpr uint8_t kTcpAck = 0x10;

const std::byte* l4_of(const Packet& packet) { return packet.bytes + packet.ip_header; }

// TCP flags of one wire packet: FIN and PSH belong to the last, CWR to the first.
uint8_t tcp_flags(const Packet& packet, uint32_t index) {
  uint8_t flags = static_cast<uint8_t>(l4_of(packet)[13]);
  if (index + 1 < packet.segments) flags &= static_cast<uint8_t>(~0x09u);
  if (index > 0) flags &= 0x7F;
  return flags;
}

}  // namespace

bool Merger::append(const Packet& packet, uint32_t index, bool mark) {
  if (count_ > 0 && !follows(packet, index, mark)) return false;
  const bool start = count_ == 0;
  if (start) {
    first_ = &packet;
    first_index_ = index;
    mark_ = mark;
    payload_ = 0;
    pieces_ = 2;
  }
  const uint32_t bytes = packet.payload_of(index);
  if (!start && last_ == &packet) {
    pieces_at_[pieces_ - 1].iov_len += bytes;
  } else if (bytes > 0) {
    pieces_at_[pieces_++] = {const_cast<std::byte*>(packet.payload_at(index)), bytes};
  }
  last_ = &packet;
  last_index_ = index;
  payload_ += bytes;
  ++count_;
  return true;
}

bool Merger::follows(const Packet& packet, uint32_t index, bool mark) const {
  if (!packet.mergeable || !first_->mergeable || mark != mark_ || count_ == kMaxMerged) {
    return false;
  }
  const uint32_t size = first_->payload_of(first_index_);
  const uint32_t bytes = packet.payload_of(index);
  if (bytes > size || bytes == 0 || last_->payload_of(last_index_) < size) return false;
  if (first_->header + payload_ + bytes > kMaxIpLength) return false;
  if (last_ == &packet) return index == last_index_ + 1;
  return same_flow(packet) && next_in_order(packet, index);
}

bool Merger::same_flow(const Packet& packet) const {
  const Packet& p = *first_;
  if (p.version != packet.version || p.protocol != packet.protocol || p.header != packet.header ||
      p.ip_header != packet.ip_header) {
    return false;
  }
  const auto same = [&](size_t from, size_t bytes) {
    return std::memcmp(p.bytes + from, packet.bytes + from, bytes) == 0;
  };
  if (p.version == 4) {
    // Options are not compared but refused: they are rare and some are per packet.
    if (p.ip_header != 20 || !same(0, 2) || !same(6, 4) || !same(12, 8)) return false;
  } else if (!same(0, 4) || !same(6, 34)) {
    return false;
  }
  return same(p.ip_header, 4);
}

bool Merger::next_in_order(const Packet& packet, uint32_t index) const {
  if (packet.version == 4) {
    // Either each packet has the next identification, or none may be fragmented and all are equal,
    // as from a socket that sends one at a time.
    const auto id = [](const Packet& p, uint32_t i) {
      return static_cast<uint16_t>(load_be<uint16_t>(p.bytes + 4) + i);
    };
    const uint16_t first = id(*first_, first_index_);
    const uint16_t next = id(packet, index);
    const bool whole_only = (load_be<uint16_t>(packet.bytes + 6) & 0x4000) != 0;
    const bool constant =
        whole_only && next == first && (count_ == 1 || id(*last_, last_index_) == first);
    if (!constant && next != static_cast<uint16_t>(first + count_)) return false;
  }
  if (packet.protocol == kProtocolUdp) return true;
  const std::byte* l4 = l4_of(packet);
  const std::byte* previous = l4_of(*last_);
  const auto sequence = [](const Packet& p, uint32_t i) {
    return load_be<uint32_t>(l4_of(p) + 4) + i * p.segment_size;
  };
  if (sequence(packet, index) != sequence(*last_, last_index_) + last_->payload_of(last_index_)) {
    return false;
  }
  if (tcp_flags(*last_, last_index_) != kTcpAck ||
      (tcp_flags(packet, index) & ~kTcpPush) != kTcpAck) {
    return false;
  }
  const size_t options = packet.header - packet.ip_header - 20u;
  return std::memcmp(l4 + 8, previous + 8, 4) == 0 && std::memcmp(l4 + 14, previous + 14, 2) == 0 &&
         std::memcmp(l4 + 20, previous + 20, options) == 0;
}

std::span<const iovec> Merger::finish() {
  const bool last = last_index_ + 1 == last_->segments;
  if (last_ != first_ && first_->protocol == kProtocolTcp) {
    // Only a last packet may push, and it is not the one the header is taken from.
    vnet_ = write_header(*first_, first_index_, count_, payload_, false, mark_, header_.data());
    header_[first_->ip_header + 13u] |= std::byte(tcp_flags(*last_, last_index_) & kTcpPush);
  } else {
    vnet_ = write_header(*first_, first_index_, count_, payload_, last, mark_, header_.data());
  }
  // Not the super-packet's own size when its short last one leads here.
  if (count_ > 1) vnet_.gso_size = static_cast<uint16_t>(first_->payload_of(first_index_));
  pieces_at_[0] = {&vnet_, sizeof vnet_};
  pieces_at_[1] = {header_.data(), first_->header};
  return {pieces_at_.data(), pieces_};
}

}  // namespace farverbs::tools::lab
