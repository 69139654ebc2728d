#include "farverbs/proto/far_arrivals.h"

#include <algorithm>

namespace farverbs::proto {
namespace {

constexpr size_t kMostWireRanges = 255;
constexpr uint64_t kMostCount = 0xFFFF;

// Wire ranges that a gap and a run take: counts above 65,535 go on in a further one.
constexpr size_t wire_ranges(uint64_t missing, uint64_t arrived) {
  const uint64_t gaps = (missing + kMostCount - 1) / kMostCount;
  const uint64_t runs = (arrived + kMostCount - 1) / kMostCount;
  return gaps + runs - 1;
}

}  // namespace

void FarArrivals::start(PacketNumber first) {
  *this = FarArrivals{};
  first_ = floor_ = first;
  greatest_ = first - 1;
}

// The first range that begins behind `number`.
size_t FarArrivals::first_behind(PacketNumber number) const {
  return ranges_.partition_point([number](const Range& r) { return r.begin <= number; });
}

bool FarArrivals::seen(PacketNumber number) const {
  if (number > greatest_) return false;
  if (number < floor_) return true;
  const size_t behind = first_behind(number);
  return behind > 0 && number < ranges_[behind - 1].end;
}

bool FarArrivals::insert(PacketNumber number) {
  if (!ranges_.empty() && number == ranges_.back().end) {
    ++ranges_.back().end;
    ranges_.back().told = 0;
    return true;
  }
  const size_t next = first_behind(number);
  if (next > 0) {
    Range& before = ranges_[next - 1];
    if (number < before.end) return false;
    if (number == before.end) {
      ++before.end;
      before.told = 0;
      if (next < ranges_.size() && ranges_[next].begin == before.end) {
        before.end = ranges_[next].end;
        ranges_.erase(next);
      }
      return true;
    }
  }
  if (next < ranges_.size() && ranges_[next].begin == number + 1) {
    ranges_[next].begin = number;
    ranges_[next].told = 0;
    return true;
  }
  ranges_.insert(next, {number, number + 1, 0});
  if (ranges_.size() > kMostRanges) {
    floor_ = ranges_.front().end;
    ranges_.pop_front();
  }
  return true;
}

void FarArrivals::add(Time now, PacketNumber number, const wire::FarBase& base, bool wants_ack,
                      bool congested) {
  const bool in_order = is_next(number) || !any();
  if (number >= floor_) insert(number);
  if (number > greatest_) {
    greatest_ = number;
    greatest_time_ = now;
  }
  if (congested) ++marks_;
  ++unacknowledged_;
  owed_ = true;
  if (deadline_.is_never()) {
    deadline_ =
        now + Duration::microseconds(base.ack_delay == 0 ? 0 : int64_t{16} << base.ack_delay);
  }
  now_ |= wants_ack || !in_order || congested != congested_ || base.ack_delay == 0 ||
          unacknowledged_ >= 1u << base.ack_ratio;
  congested_ = congested;
}

void FarArrivals::add_run(Time now, size_t count, const wire::FarBase& base, bool wants_ack,
                          bool congested) {
  add(now, greatest_ + 1, base, wants_ack, congested);
  const auto more = static_cast<uint32_t>(count - 1);
  ranges_.back().end += more;
  greatest_ += more;
  unacknowledged_ += more;
  if (congested) marks_ += more;
  now_ |= unacknowledged_ >= 1u << base.ack_ratio;
}

size_t FarArrivals::lowest_untold() const {
  for (size_t i = 0; i < ranges_.size(); ++i) {
    if (ranges_[i].told < kTold) return i;
  }
  return ranges_.size() - 1;
}

size_t FarArrivals::plan() const {
  if (!any()) return 0;
  size_t planned = 0;
  const size_t lowest = lowest_untold();
  for (size_t i = ranges_.size() - 1; i > lowest; --i) {
    const Range& below = ranges_[i - 1];
    const size_t more = wire_ranges(ranges_[i].begin - below.end, below.end - below.begin);
    if (planned + more > kMostWireRanges) break;
    planned += more;
  }
  return planned;
}

void FarArrivals::write(Time now, wire::FarAck& header, size_t planned, std::byte* out) {
  owed_ = now_ = false;
  unacknowledged_ = 0;
  deadline_ = Time::never();
  if (!any()) return;  // a status alone
  Range& newest = ranges_.back();
  header.range_count = static_cast<uint8_t>(planned);
  header.delay_us = static_cast<uint32_t>((now - greatest_time_).ns() / 1'000);
  header.receive_time_us = static_cast<uint32_t>(greatest_time_.ns() / 1'000);
  header.congestion_marks = marks_;
  header.first_range = static_cast<uint32_t>(
      std::min<uint64_t>(newest.end - newest.begin, std::numeric_limits<uint32_t>::max()));
  newest.told = static_cast<uint8_t>(std::min<int>(newest.told + 1, kTold));
  for (size_t i = ranges_.size() - 1; planned > 0; --i) {
    Range& below = ranges_[i - 1];
    uint64_t missing = ranges_[i].begin - below.end;
    uint64_t arrived = below.end - below.begin;
    // A count that does not fit goes on in the next range, whose other count is 0 meanwhile.
    do {
      wire::FarRange range;
      range.missing = static_cast<uint16_t>(std::min(missing, kMostCount));
      missing -= range.missing;
      if (missing == 0) {
        range.arrived = static_cast<uint16_t>(std::min(arrived, kMostCount));
        arrived -= range.arrived;
      }
      wire::emit_header(range, out);
      out += wire::FarRange::kSize;
      --planned;
    } while (missing > 0 || arrived > 0);
    below.told = static_cast<uint8_t>(std::min<int>(below.told + 1, kTold));
  }
}

}  // namespace farverbs::proto
