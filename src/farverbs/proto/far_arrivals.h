// FarArrivals: which packet numbers of the peer have arrived, and when to tell it
// (docs/far-transport.md sections 3 and 5). Bounded: the oldest ranges are forgotten first, which
// costs the peer at most a packet sent twice.
#pragma once

#include <cstddef>
#include <cstdint>

#include "farverbs/base/ids.h"
#include "farverbs/base/ring.h"
#include "farverbs/base/time.h"
#include "farverbs/wire/far_headers.h"

namespace farverbs::proto {

// A far packet number has 40 bits on the wire.
inline constexpr unsigned kFarNumberBits = 40;
// The number nearest to `reference` with these low 40 bits.
constexpr PacketNumber extend_far_number(uint16_t high, Psn psn, PacketNumber reference) {
  constexpr unsigned kShift = 64 - kFarNumberBits;
  const uint64_t low = uint64_t{high} << 24 | psn.value();
  return reference +
         static_cast<uint64_t>(static_cast<int64_t>((low - reference) << kShift) >> kShift);
}

class FarArrivals {
 public:
  static constexpr size_t kMostRanges = 512;
  // How many acknowledgements tell of a change: more than get lost in one burst.
  static constexpr uint8_t kTold = 12;

  void start(PacketNumber first);

  // The greatest that has arrived; one less than the first before anything has.
  PacketNumber greatest() const { return greatest_; }
  bool any() const { return !ranges_.empty(); }
  // False: it is not one that this connection can have sent by now. Extended numbers go below zero.
  bool plausible(PacketNumber number) const { return static_cast<int64_t>(number - first_) >= 0; }
  bool is_next(PacketNumber number) const { return number == greatest_ + 1; }
  // It has arrived before, or is so old that nobody knows.
  bool seen(PacketNumber number) const;

  // A packet that proved whole. `wants_ack`: it has AckReq. `congested`: ECN CE.
  void add(Time now, PacketNumber number, const wire::FarBase& base, bool wants_ack,
           bool congested);
  // `count` packets that follow one another, the first of them the next.
  void add_run(Time now, size_t count, const wire::FarBase& base, bool wants_ack, bool congested);
  // Something other than a packet's number should be told at once (a status, a message's end).
  void tell_now() { owed_ = now_ = true; }
  // No acknowledgement is due by itself any more.
  void hold() { deadline_ = Time::never(); }
  void on_timer(Time now) {
    if (now >= deadline_) now_ = true;
  }

  bool owed_now() const { return now_; }
  Time deadline() const { return now_ ? Time::never() : deadline_; }

  size_t memory_bytes() const { return ranges_.memory_bytes(); }
  // Ranges that the next acknowledgement has behind its header; at most 255.
  size_t plan() const;
  // Fills header fields and `planned` ranges at `ranges`, and notes that it was told.
  void write(Time now, wire::FarAck& header, size_t planned, std::byte* ranges);

 private:
  struct Range {
    PacketNumber begin;
    PacketNumber end;
    uint8_t told;
  };
  size_t first_behind(PacketNumber number) const;
  bool insert(PacketNumber number);
  size_t lowest_untold() const;

  Ring<Range, 2> ranges_;  // ascending
  PacketNumber first_ = 0;
  PacketNumber floor_ = 0;  // ranges below were forgotten
  PacketNumber greatest_ = 0;
  Time greatest_time_;
  uint32_t marks_ = 0;
  uint32_t unacknowledged_ = 0;
  bool congested_ = false;
  bool owed_ = false;
  bool now_ = false;
  Time deadline_ = Time::never();
};

}  // namespace farverbs::proto
