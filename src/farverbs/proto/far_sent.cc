#include "farverbs/proto/far_sent.h"

#include <algorithm>

namespace farverbs::proto {
namespace {

constexpr size_t kFirstPackets = 8;  // what a connection with little to say has in flight
// Below that a hole is not even looked at: merging and scheduling on one machine take as long.
constexpr Duration kLeastReordering = Duration::microseconds(100);
// A step of the reordering window is taken back after so many losses that were ones.
constexpr uint32_t kCalmLosses = 16;
constexpr uint32_t kMostReorderSteps = 16;
// A packet taken for lost is remembered for so many round trips in case it arrives after all.
constexpr int64_t kRememberRoundTrips = 3;
constexpr Duration kRememberLeast = Duration::milliseconds(50);
// A number is skipped after 512 to 4,607 packets.
constexpr uint64_t kSkipLeast = 512;
constexpr uint64_t kSkipSpread = 4'096;

uint64_t mix(uint64_t x) {  // splitmix64's output function
  x ^= x >> 30;
  x *= 0xBF58476D1CE4E5B9u;
  x ^= x >> 27;
  x *= 0x94D049BB133111EBu;
  return x ^ x >> 31;
}

}  // namespace

void FarSent::start(PacketNumber first, uint64_t seed) {
  *this = FarSent{};
  first_ = base_ = next_ = first;
  greatest_ = first - 1;
  chance_ = seed;
  next_skip_ = first + kSkipLeast + mix(chance_) % kSkipSpread;
}

size_t FarSent::memory_bytes() const {
  return packets_.capacity() * sizeof(FarPacket) + open_.capacity() * sizeof(uint64_t) +
         skipped_.memory_bytes() + holes_.memory_bytes() + marks_.memory_bytes() +
         decoded_.capacity() * sizeof(Range);
}

void FarSent::trim() {
  if (base_ != next_) return;
  packets_ = decltype(packets_)();
  open_ = decltype(open_)();
  mask_ = 0;
  decoded_ = decltype(decoded_)();
  skipped_.release();
  holes_.release();
  marks_base_ += static_cast<uint32_t>(marks_.size());
  marks_.release();
}

void FarSent::grow() {
  const size_t size = packets_.empty() ? kFirstPackets : packets_.size() * 2;
  std::vector<FarPacket> packets(size);
  std::vector<uint64_t> open_bits((size + 63) / 64);
  const uint64_t mask = size - 1;
  for (PacketNumber n = base_; n < next_; ++n) {
    packets[n & mask] = at(n);
    if (open(n)) open_bits[(n & mask) >> 6] |= uint64_t{1} << (n & 63);
  }
  packets_ = std::move(packets);
  open_ = std::move(open_bits);
  mask_ = mask;
}

void FarSent::add(const FarPacket& packet, const FlightMark& mark) {
  if (next_ - base_ + 1 >= packets_.size()) grow();
  // All packets of one turn share a mark.
  if (marks_.empty() || packet.sent != mark_time_ ||
      marks_.back().delivered_bytes != mark.delivered_bytes) {
    marks_.push_back(mark);
    mark_time_ = packet.sent;
  }
  FarPacket& place = at(next_);
  place = packet;
  place.mark = marks_base_ + static_cast<uint32_t>(marks_.size() - 1);
  place.lost = false;
  set_open(next_);
  ++next_;
  ++in_flight_;
  last_sent_ = packet.sent;
  if (next_ == next_skip_) skip();
}

void FarSent::skip() {
  if (next_ - base_ + 1 >= packets_.size()) grow();
  FarPacket& place = at(next_);
  place = FarPacket{};
  place.mark = marks_base_ + static_cast<uint32_t>(marks_.size() - 1);
  close(next_);
  skipped_.push_back(next_);
  ++next_;
  chance_ += 0x9E3779B97F4A7C15u;
  next_skip_ = next_ + kSkipLeast + mix(chance_) % kSkipSpread;
}

// Into decoded_, within what is remembered. False if it names what was not sent.
bool FarSent::decode(const FarAcknowledged& told) {
  decoded_.clear();
  // Nothing has arrived yet: a status alone.
  if (told.greatest == first_ - 1 && told.first_range == 0) return true;
  if (told.greatest >= next_ || told.greatest < first_ || told.first_range == 0) return false;
  PacketNumber end = told.greatest + 1;
  if (told.first_range > end - first_) return false;
  PacketNumber begin = end - told.first_range;
  decoded_.push_back({begin, end});
  uint64_t missing = 0;
  for (size_t at_byte = 0; at_byte + wire::FarRange::kSize <= told.ranges.size();
       at_byte += wire::FarRange::kSize) {
    const auto range = wire::parse_header<wire::FarRange>(told.ranges.data() + at_byte);
    missing += range.missing;
    if (range.arrived == 0) continue;
    // A continued run has no gap before it.
    if (missing + range.arrived > begin - first_) return false;
    end = begin - missing;
    begin = end - range.arrived;
    missing = 0;
    decoded_.push_back({begin, end});
  }
  for (const PacketNumber skipped : skipped_) {
    for (const Range& range : decoded_) {
      if (range.begin <= skipped && skipped < range.end) return false;
    }
  }
  // The past is settled.
  while (!decoded_.empty() && decoded_.back().end <= base_) decoded_.pop_back();
  for (Range& range : decoded_) {
    range.begin = std::max(range.begin, base_);
    range.end = std::max(range.end, range.begin);
  }
  return true;
}

void FarSent::measure(Time now, const FarPacket& packet, Duration delay, Feedback& feedback) {
  const Duration raw = now - packet.sent;
  latest_ = raw;
  if (least_.ns() == 0 || raw < least_) least_ = std::max(raw, Duration::nanoseconds(1));
  // The peer's word for its delay counts as far as it is possible.
  const Duration rtt = std::max(raw - std::max(delay, Duration()), least_);
  if (smoothed_.ns() == 0) {
    smoothed_ = rtt;
    variation_ = rtt / 2;
  } else {
    const Duration error = rtt > smoothed_ ? rtt - smoothed_ : smoothed_ - rtt;
    variation_ = (variation_ * 3 + error) / 4;
    smoothed_ = (smoothed_ * 7 + rtt) / 8;
  }
  feedback.has_rtt = true;
  feedback.rtt = rtt;
}

// A loss proved to be none: wait longer from now on (RFC 8985 section 6.2, step 4).
void FarSent::on_reordered() {
  reorder_steps_ = std::min(reorder_steps_ + 1, kMostReorderSteps);
  calm_losses_ = 0;
}

Duration FarSent::reordering_window() const {
  const Duration window = least_ * reorder_steps_ / 4;
  return std::max(std::min(window, std::max(smoothed_, least_ / 4)), kLeastReordering);
}

void FarSent::forget(Time now) {
  const Duration remember = std::max(smoothed_ * kRememberRoundTrips, kRememberLeast);
  while (base_ < next_) {
    const FarPacket& packet = at(base_);
    if (open(base_)) {
      if (!packet.lost || now - packet.sent < remember) break;
      close(base_);
      if (reorder_steps_ > 1 && ++calm_losses_ >= kCalmLosses) {
        --reorder_steps_;
        calm_losses_ = 0;
      }
    }
    if (!skipped_.empty() && skipped_.front() == base_) skipped_.pop_front();
    ++base_;
  }
  const uint32_t first_mark =
      base_ < next_ ? at(base_).mark : marks_base_ + static_cast<uint32_t>(marks_.size());
  while (marks_base_ != first_mark && !marks_.empty()) {
    marks_.pop_front();
    ++marks_base_;
  }
}

void FarSent::forget_path() {
  smoothed_ = variation_ = least_ = latest_ = Duration();
  reorder_steps_ = 1;
  calm_losses_ = 0;
}

uint64_t FarSent::take_back() {
  uint64_t bytes = 0;
  if (!packets_.empty()) {
    for_each_open(base_, next_, [&](PacketNumber n) {
      if (!at(n).lost) bytes += at(n).bytes;
    });
  }
  in_flight_ = 0;
  base_ = next_;
  holes_.clear();
  skipped_.clear();
  marks_base_ += static_cast<uint32_t>(marks_.size());
  marks_.clear();
  loss_deadline_ = Time::never();
  return bytes;
}

}  // namespace farverbs::proto
