// FarMove: whether the peer of a far connection has a new address (docs/far-transport.md section
// 7), sans-IO. An address that its packets come from is asked, and so is the old one: only who gets
// packets there can bring the token back. A peer that still answers where it was has not moved, so
// that whoever copies its packets gets nothing.
//
//   on_source()        a packet that goes beyond all before came from another address
//   on_response()      a token came back
//   next_challenge()   what to send, and where
//   take_moved()       the peer is there now
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include "farverbs/base/ip_address.h"
#include "farverbs/base/siphash.h"
#include "farverbs/base/time.h"

namespace farverbs::proto {

class FarMove {
 public:
  explicit FarMove(const SipKey& key) : key_(key) {}

  // `home` is where the peer is known to be. `patience`: an answer takes about so long.
  void on_source(Time now, const Endpoint& source, const Endpoint& home, size_t bytes,
                 Duration patience);
  void on_response(Time now, uint64_t token);
  void on_timer(Time now);
  Time next_timer() const;

  // The peer asks this side; the answer goes to where the peer is known to be.
  void on_challenge(uint64_t token) { owed_response_ = token; }
  std::optional<uint64_t> take_response() { return std::exchange(owed_response_, std::nullopt); }

  struct Challenge {
    Endpoint to;
    uint64_t token;
  };
  // `bytes`: what a challenge takes.
  std::optional<Challenge> next_challenge(size_t bytes);
  bool has_something() const {
    return owed_response_.has_value() || asks_[kNew].due || asks_[kOld].due;
  }
  // It has nothing to remember.
  bool idle(Time now) const { return !trying_ && now >= refused_until_ && !has_something(); }
  // `unheard`: the old address is known not to answer, so there is no need to wait for it.
  std::optional<Endpoint> take_moved(Time now, bool unheard);

 private:
  enum Which : size_t { kNew, kOld };
  struct Ask {
    Endpoint to;
    uint64_t token = 0;
    bool due = false;
  };

  void stop();
  uint64_t draw(Time now);

  SipKey key_;
  uint64_t drawn_ = 0;
  bool trying_ = false;
  bool proved_ = false;  // the new address answered
  std::array<Ask, 2> asks_;
  // Bytes from and to an address that has not answered: at most three times as many go there.
  uint64_t heard_bytes_ = 0;
  uint64_t said_bytes_ = 0;
  uint32_t tries_ = 0;
  Duration patience_;
  Time decide_at_;  // if the old address has not answered by then
  Time again_at_;
  // Not asked again for a while.
  Endpoint refused_;
  Time refused_until_;
  std::optional<uint64_t> owed_response_;
};

}  // namespace farverbs::proto
