#include "farverbs/proto/far_move.h"

#include <algorithm>

namespace farverbs::proto {
namespace {

constexpr uint64_t kMostAmplification = 3;
constexpr uint32_t kMostTries = 4;
constexpr Duration kRefusedFor = Duration::seconds(5);

bool can_be_asked(const Endpoint& endpoint) {
  return endpoint.port != 0 && !endpoint.address.is_unspecified() &&
         !endpoint.address.is_multicast();
}

}  // namespace

uint64_t FarMove::draw(Time now) {
  return siphash(key_, ++drawn_, static_cast<uint64_t>(now.ns()));
}

void FarMove::stop() {
  trying_ = proved_ = false;
  asks_[kNew].due = asks_[kOld].due = false;
}

void FarMove::on_source(Time now, const Endpoint& source, const Endpoint& home, size_t bytes,
                        Duration patience) {
  if (trying_) {
    // One at a time: whoever comes meanwhile is asked after it, if he still comes.
    if (source == asks_[kNew].to) heard_bytes_ += bytes;
    return;
  }
  if (!can_be_asked(source) || (source == refused_ && now < refused_until_)) return;
  trying_ = true;
  proved_ = false;
  asks_[kNew] = {source, draw(now), true};
  asks_[kOld] = {home, draw(now), true};
  heard_bytes_ = bytes;
  said_bytes_ = 0;
  tries_ = 1;
  patience_ = patience;
  decide_at_ = again_at_ = now + patience;
}

void FarMove::on_response(Time now, uint64_t token) {
  if (!trying_) return;
  if (token == asks_[kOld].token) {
    refused_ = asks_[kNew].to;
    refused_until_ = now + kRefusedFor;
    stop();
  } else if (token == asks_[kNew].token) {
    proved_ = true;
    asks_[kNew].due = false;
  }
}

Time FarMove::next_timer() const {
  if (!trying_) return Time::never();
  return proved_ ? decide_at_ : again_at_;
}

void FarMove::on_timer(Time now) {
  if (!trying_ || proved_ || now < again_at_) return;
  if (tries_ == kMostTries) return stop();
  again_at_ = now + patience_ * (int64_t{1} << tries_);
  ++tries_;
  asks_[kNew].due = asks_[kOld].due = true;
}

std::optional<FarMove::Challenge> FarMove::next_challenge(size_t bytes) {
  for (const Which which : {kOld, kNew}) {
    Ask& ask = asks_[which];
    if (!std::exchange(ask.due, false)) continue;
    if (which == kNew) {
      if (said_bytes_ + bytes > kMostAmplification * heard_bytes_) continue;
      said_bytes_ += bytes;
    }
    return Challenge{ask.to, ask.token};
  }
  return std::nullopt;
}

std::optional<Endpoint> FarMove::take_moved(Time now, bool unheard) {
  if (!proved_ || (now < decide_at_ && !unheard)) return std::nullopt;
  stop();
  return asks_[kNew].to;
}

}  // namespace farverbs::proto
