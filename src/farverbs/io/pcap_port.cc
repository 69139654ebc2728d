#include "farverbs/io/pcap_port.h"

#include <algorithm>
#include <vector>

#include "farverbs/wire/frame.h"
#include "farverbs/wire/icrc.h"
#include "farverbs/wire/roce.h"

namespace farverbs::io {
namespace {

constexpr uint8_t kUsualHopLimit = 64;  // what a received datagram had is not known

// The identification of a received datagram: what explains its ICRC, else its index in the burst.
uint16_t identification(const Endpoint& source, const Endpoint& destination,
                        std::span<const std::byte> datagram, uint16_t index) {
  const wire::ParseResult packet = wire::parse(datagram);
  if (!packet) return index;
  const wire::IcrcFlow flow = wire::IcrcFlow::roce_v2(source, destination);
  const wire::IcrcCheck check = wire::verify(flow, *packet, index);
  return check ? check.ip_id : index;
}

}  // namespace

SendStatus PcapPort::send(const TxFlow& flow, const wire::TxBurst& burst) {
  const SendStatus status = inner_->send(flow, burst);
  if (status == SendStatus::kSent) {
    write({local_at(flow.source), flow.destination, flow.traffic_class, flow.hop_limit,
           burst.bytes(), burst.segment_size(), false});
  }
  return status;
}

size_t PcapPort::receive(std::span<RxBurst> bursts) {
  const size_t count = inner_->receive(bursts);
  for (const RxBurst& b : bursts.first(count)) {
    write(
        {b.source, b.destination, b.traffic_class, kUsualHopLimit, b.bytes, b.segment_size, true});
  }
  return count;
}

void PcapPort::write(const Burst& burst) {
  const Time now = now_();
  uint16_t index = 0;
  for (size_t at = 0; at < burst.bytes.size(); at += burst.segment_size, ++index) {
    const auto datagram =
        burst.bytes.subspan(at, std::min(burst.segment_size, burst.bytes.size() - at));
    wire::FrameOptions options;
    options.ip_id = burst.received && burst.source.address.is_v4()
                        ? identification(burst.source, burst.destination, datagram, index)
                        : index;
    options.traffic_class = burst.traffic_class;
    options.hop_limit = burst.hop_limit;
    const std::vector<std::byte> frame =
        wire::frame_of(burst.source, burst.destination, datagram, options);
    if (!writer_.write(now, frame).ok()) ++not_written_;
  }
}

}  // namespace farverbs::io
