// What FarController believes of a path, in three small filters: the least RTT of the last ten
// seconds, the greatest delivery rate of the last rounds, and the share of packets that is lost
// whatever is sent.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "farverbs/base/time.h"

namespace farverbs::cc {

// Forgets by buckets of time, which pass only while samples come.
class LeastRtt {
 public:
  LeastRtt() { buckets_.fill(Duration::max()); }
  // Returns true if the path was seen without a queue: a sample as good as the least.
  bool add(Time now, Duration rtt);
  Duration least() const { return least_; }  // zero: unknown
  // Nothing is forgotten until then.
  void hold(Time until) { held_until_ = until; }
  Time last_better() const { return better_; }  // when the least was seen last, or improved
  // Forgets all but this.
  void restart(Time now, Duration rtt);

 private:
  static constexpr Duration kSpan = Duration::milliseconds(2500);
  std::array<Duration, 4> buckets_;
  size_t at_ = 0;
  Time since_;
  Duration least_;
  Time held_until_;
  Time better_;
};

// Tells whose queue it is. A queue that is ours alone follows what we have in flight: a change of
// that is a change of the queue's delay by as many bytes at our rate. If others share the line, it
// changes by our share of that, and if they grow meanwhile, it does not change at all.
class QueueWitness {
 public:
  struct View {
    Duration queue;
    uint64_t inflight = 0;  // when the packets left that saw this queue
    double bps = 0;         // that the line carried for us
  };
  // One interval in which we gave way. A difference in flight of batch_bytes says nothing, and one
  // of chance_bytes nothing for ever.
  void add(Duration queue, uint64_t inflight, double bps, double batch_bytes, double chance_bytes);
  void clear() { count_ = 0; }
  const View& before() const { return from_; }  // when we began to give way
  // We gave way for some round trips, and the queue did not.
  bool foreign() const;
  // Our part of the queue's change between two views; 1 if we are alone. 0 if nothing changed.
  static double share(const View& from, const View& to, double bps);

 private:
  View from_;
  View to_;
  size_t count_ = 0;  // intervals
  double batch_ = 0;
  double chance_ = 0;
};

class RoundRates {
 public:
  void add(double bps) {
    at_ = (at_ + 1) % rates_.size();
    rates_[at_] = bps;
  }
  // Forgets all but this.
  void reset(double bps) {
    rates_.fill(0);
    rates_[at_] = bps;
  }
  void raise(double bps) {
    if (bps > rates_[at_]) rates_[at_] = bps;
  }
  double greatest() const;
  double mean() const;
  double last() const { return rates_[at_]; }

 private:
  std::array<double, 4> rates_{};
  size_t at_ = 0;
};

// The random-loss floor. Losses are counted in rounds without much queue, and apart in refresh
// rounds, where we send less than the line carries: what a policer or a short queue drops is not
// lost there. The floor is the lesser of the two shares.
class LossFloor {
 public:
  // Packets of a round without a queue; low: sent while refreshing.
  void add(double acked, double lost, bool low);
  void begin_low();  // what refresh rounds told before counts half
  double floor() const;
  double ordinary() const;  // share lost in ordinary rounds
  // Losses come and go with what we send: a policer, or a queue too short to be seen.
  bool by_load() const { return low_.total >= kLeastLow && ordinary() > floor() + 0.01; }
  // Ordinary rounds lose more than the last refresh can tell of.
  bool wants_low() const;

 private:
  // Fewer packets than this in refresh rounds tell nothing.
  static constexpr double kLeastLow = 60;
  struct Count {
    double total = 0;
    double lost = 0;
    double share() const { return total > 0 ? lost / total : 0; }
    void add(double acked, double gone, double horizon);
  };
  Count ordinary_;
  Count low_;
};

}  // namespace farverbs::cc
