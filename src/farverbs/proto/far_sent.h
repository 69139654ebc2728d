// FarSent: every packet that was sent and may still be acknowledged, and which of them are lost:
// RACK (RFC 8985) on packet numbers that are never used twice (docs/far-transport.md sections 3, 5
// and 6). A number that was skipped on purpose shows who acknowledges what was never sent.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "farverbs/base/ids.h"
#include "farverbs/base/ring.h"
#include "farverbs/base/time.h"
#include "farverbs/proto/queue_pair.h"
#include "farverbs/wire/far_headers.h"

namespace farverbs::proto {

enum class FarContent : uint8_t {
  kSkipped,   // no packet has this number
  kData,      // of a SEND or WRITE
  kRequest,   // READ request or atomic
  kResponse,  // of a READ
  kAtomicResponse,
  kProbe,     // asks for an acknowledgement, nothing else
  kMtuProbe,  // its loss says nothing but that it was too long
  kRepair,    // redundancy: not sent again
};

struct FarPacket {
  Time sent;
  uint32_t request = 0;  // requests: index in the send queue, low bits; responses: message number
  uint32_t offset = 0;   // of the payload in the message
  uint16_t length = 0;   // of the payload
  uint16_t bytes = 0;    // UDP payload
  FarContent content = FarContent::kSkipped;
  bool lost = false;
  uint32_t mark = 0;  // index of its FlightMark, low bits
};

// What one acknowledgement says, decoded.
struct FarAcknowledged {
  PacketNumber greatest = 0;
  uint32_t first_range = 0;
  std::span<const std::byte> ranges;  // FarRange each
  Duration delay;
};

class FarSent {
 public:
  // Packets that may be remembered: above that nothing is sent but probes, for which the ring of
  // records has room left.
  static constexpr size_t kMostPackets = (size_t{1} << 20) - 4'096;

  void start(PacketNumber first, uint64_t seed);
  PacketNumber next() const { return next_; }
  bool full() const { return next_ - base_ >= kMostPackets; }
  size_t in_flight() const { return in_flight_; }  // packets
  size_t memory_bytes() const;
  // A quiet time: gives back what nothing is kept in.
  void trim();

  // Packets that may be added with consecutive numbers.
  uint64_t run_room() const {
    return full() ? 0 : std::min(next_skip_ - next_, kMostPackets - (next_ - base_));
  }

  // A packet leaves with number next(). `mark`: what the path was like.
  void add(const FarPacket& packet, const FlightMark& mark);

  // Calls on_acked(packet) for each that it newly acknowledges (packet.lost: it had been taken for
  // lost) and on_lost(packet) for what is lost by now. False, and nothing happens: it acknowledges
  // what was never sent.
  template <typename Acked, typename Lost>
  bool on_acknowledge(Time now, const FarAcknowledged& told, Feedback& feedback, Acked&& on_acked,
                      Lost&& on_lost);
  // The loss deadline has come.
  template <typename Lost>
  void detect_lost(Time now, Lost&& on_lost);
  Time loss_deadline() const { return loss_deadline_; }
  // Takes the oldest packet in flight for lost (a probe timeout); false if none is in flight.
  template <typename Lost>
  bool give_up_oldest(Lost&& on_lost);
  // Takes all of them for lost.
  template <typename Lost>
  void give_up_all(Lost&& on_lost);
  // Everything leaves the flight: bytes.
  uint64_t take_back();
  // What was measured is of another path.
  void forget_path();

  bool has_rtt() const { return smoothed_.ns() > 0; }
  Duration smoothed_rtt() const { return smoothed_; }
  Duration rtt_variation() const { return variation_; }
  Duration least_rtt() const { return least_; }
  Duration latest_rtt() const { return latest_; }
  // Of the last packet that asks for an acknowledgement.
  Time last_sent() const { return last_sent_; }
  PacketNumber greatest_acknowledged() const { return greatest_; }

 private:
  struct Range {
    PacketNumber begin;
    PacketNumber end;
  };
  FarPacket& at(PacketNumber number) { return packets_[number & mask_]; }
  // A bit for each packet that is not acknowledged, so that runs that are cost nothing to pass.
  bool open(PacketNumber n) const { return (open_[(n & mask_) >> 6] >> (n & 63) & 1) != 0; }
  void set_open(PacketNumber n) { open_[(n & mask_) >> 6] |= uint64_t{1} << (n & 63); }
  void close(PacketNumber n) { open_[(n & mask_) >> 6] &= ~(uint64_t{1} << (n & 63)); }
  template <typename F>
  void for_each_open(PacketNumber begin, PacketNumber end, F&& f);
  bool decode(const FarAcknowledged& told);
  void grow();
  void skip();
  void forget(Time now);
  void measure(Time now, const FarPacket& packet, Duration delay, Feedback& feedback);
  void on_reordered();
  Duration reordering_window() const;

  std::vector<FarPacket> packets_;
  std::vector<uint64_t> open_;
  uint64_t mask_ = 0;
  PacketNumber first_ = 0;
  PacketNumber base_ = 0;  // oldest remembered
  PacketNumber next_ = 0;
  PacketNumber greatest_ = 0;  // acknowledged
  PacketNumber next_skip_ = 0;
  uint64_t chance_ = 0;
  Ring<PacketNumber> skipped_;
  Ring<PacketNumber> holes_;  // open below greatest_, ascending
  Ring<FlightMark> marks_;    // of packets from base_ on
  uint32_t marks_base_ = 0;
  Time mark_time_;
  std::vector<Range> decoded_;
  size_t in_flight_ = 0;

  Duration smoothed_;
  Duration variation_;
  Duration least_;
  Duration latest_;
  Time last_sent_;
  Time loss_deadline_ = Time::never();
  uint32_t reorder_steps_ = 1;  // quarters of the least RTT
  uint32_t calm_losses_ = 0;    // that proved none since the last step
};

template <typename F>
void FarSent::for_each_open(PacketNumber begin, PacketNumber end, F&& f) {
  for (PacketNumber n = begin; n < end;) {
    const PacketNumber word_end = std::min((n | 63) + 1, end);
    uint64_t bits = open_[(n & mask_) >> 6] >> (n & 63);
    if (word_end - n < 64) bits &= (uint64_t{1} << (word_end - n)) - 1;
    while (bits != 0) {
      f(n + static_cast<unsigned>(__builtin_ctzll(bits)));
      bits &= bits - 1;
    }
    n = word_end;
  }
}

template <typename Acked, typename Lost>
bool FarSent::on_acknowledge(Time now, const FarAcknowledged& told, Feedback& feedback,
                             Acked&& on_acked, Lost&& on_lost) {
  if (!decode(told)) return false;
  const PacketNumber before = greatest_;
  PacketNumber newest = 0;  // newly acknowledged
  for (const Range& range : decoded_) {
    for_each_open(range.begin, range.end, [&](PacketNumber n) {
      FarPacket& packet = at(n);
      close(n);
      newest = std::max(newest, n);
      if (packet.lost) {
        if (packet.content != FarContent::kMtuProbe) {
          feedback.spurious_bytes += packet.bytes;
          on_reordered();
        }
      } else {
        --in_flight_;
        feedback.acked_bytes += packet.bytes;
      }
      on_acked(packet);
    });
  }
  if (told.greatest > greatest_ && told.first_range > 0) greatest_ = told.greatest;
  if (newest != 0) {
    const FarPacket& packet = at(newest);
    feedback.has_mark = true;
    feedback.mark = marks_[packet.mark - marks_base_];
    feedback.mark_sent = packet.sent;
    // Only the greatest number's arrival time is told.
    if (newest == told.greatest) measure(now, packet, told.delay, feedback);
  }
  // What stayed open below the greatest is missing.
  if (greatest_ > before) {
    for_each_open(std::max(before + 1, base_), greatest_, [&](PacketNumber n) {
      if (!at(n).lost) holes_.push_back(n);
    });
  }
  detect_lost(now, on_lost);
  forget(now);
  return true;
}

template <typename Lost>
void FarSent::detect_lost(Time now, Lost&& on_lost) {
  loss_deadline_ = Time::never();
  const Duration wait = std::max(latest_, smoothed_) + reordering_window();
  while (!holes_.empty()) {
    const PacketNumber n = holes_.front();
    if (n >= base_ && open(n) && !at(n).lost) {
      FarPacket& packet = at(n);
      if (packet.sent + wait > now) {
        loss_deadline_ = packet.sent + wait;
        return;
      }
      packet.lost = true;
      --in_flight_;
      on_lost(packet);
    }
    holes_.pop_front();
  }
}

template <typename Lost>
void FarSent::give_up_all(Lost&& on_lost) {
  if (in_flight_ == 0) return;
  for_each_open(base_, next_, [&](PacketNumber n) {
    FarPacket& packet = at(n);
    if (packet.lost) return;
    packet.lost = true;
    --in_flight_;
    on_lost(packet);
  });
  holes_.clear();
  loss_deadline_ = Time::never();
}

template <typename Lost>
bool FarSent::give_up_oldest(Lost&& on_lost) {
  bool found = false;
  // The first open one that is not lost; those before it wait for nothing.
  for (PacketNumber n = base_; n < next_ && !found; ++n) {
    FarPacket& packet = at(n);
    if (!open(n) || packet.lost) continue;
    packet.lost = true;
    --in_flight_;
    on_lost(packet);
    found = true;
  }
  return found;
}

}  // namespace farverbs::proto
