// The constants of FarController, and why they are what they are. Intervals are quarters of a round
// trip.
#pragma once

#include <algorithm>
#include <cstdint>

#include "farverbs/base/time.h"
#include "farverbs/base/units.h"

namespace farverbs::cc::far {

// Local paths: an RTT below this. The window alone rules there, see BdpWindow.
inline constexpr Duration kLocalRtt = Duration::milliseconds(1);
// The floor is no more than this at the rate that the path has: more is not a floor but a queue.
inline constexpr Duration kLocalFloorTime = Duration::milliseconds(2);
inline constexpr double kLeastLocalFloor = 16 * 1024;
// The peer's socket buffer may be smaller than the window: rounds that lose this much more than
// chance cut it, down to that part of the floor, and it comes back slowly.
inline constexpr double kLocalExcess = 0.05;
inline constexpr double kLocalCut = 0.7;
inline constexpr double kLocalFloorDivisor = 4;
inline constexpr double kLocalRegrowth = 1.002;  // a round
// The least RTT is kept so long there, since the window's own queue makes the path look longer.
inline constexpr Duration kLocalHold = Duration::seconds(60);

// Rounds and intervals of short paths are joined to this long: below it bursts and merges are seen
// rather than rates.
inline constexpr Duration kLeastRound = Duration::milliseconds(5);
inline constexpr Duration kLeastInterval = Duration::milliseconds(2);
inline constexpr uint32_t kLeastIntervalSamples = 3;

// The queue that cruise keeps: two milliseconds at 1 Gb/s, and two and a half more for each factor
// of ten less. So of two flows that see the same queue the slower one wants a longer one and gains.
inline constexpr double kTargetMs = 2;
inline constexpr double kTargetMsPerDecade = 2.5;
inline constexpr double kTargetBps = 1e9;
inline constexpr double kLeastTargetMs = 1;
inline constexpr double kMostTargetMs = 6;
inline constexpr int64_t kTargetRttDivisor = 4;  // at most that part of the RTT
inline constexpr double kTargetFullRttMs = 32;   // shorter paths want less
// The part of the spread of RTTs within an interval that bursts of ours make.
inline constexpr Duration kOwnSpread = Duration::microseconds(700);
inline constexpr Duration kMostJitter = Duration::milliseconds(12);

// Nothing is slower or faster; it keeps numbers finite, whatever a sample says.
inline constexpr double kLeastBps = 1e4;
inline constexpr double kMostBps = 1e13;

// Cruise. This part of the queue's error is corrected in a round trip. What is done is seen one and
// a quarter round trips later; more than 0.9 swings.
inline constexpr double kGainSlope = 0.7;
inline constexpr Duration kGainLeastRtt = Duration::milliseconds(4);
// 2 % more than the line shows whether there is more, and costs as much where a policer drops.
inline constexpr double kMostGain = 1.02;
inline constexpr double kLeastGain = 0.9;
// So much more than the target, and a quarter of that, is pressing.
inline constexpr Duration kMargin = Duration::milliseconds(1);
inline constexpr Duration kWaryMargin = Duration::microseconds(300);
// A line that carries this much less, for so many intervals with a long queue, became slower.
inline constexpr double kSlower = 0.8;
inline constexpr uint32_t kSlowIntervals = 4;

// The background class: a short queue, which is left to others by factors. Others may never empty
// it, so the least RTT is remembered for a minute.
inline constexpr double kBackgroundTargetMs = 1.2;
inline constexpr double kBackgroundLeastGain = 0.5;
inline constexpr double kBackgroundSlope = 0.25;
inline constexpr Duration kBackgroundHold = Duration::seconds(60);

// Startup: 4 ln 2, see the BBR draft, section 4.3.1.
inline constexpr double kStartupGain = 2.77;
inline constexpr double kStartupGrowth = 1.25;
inline constexpr uint32_t kPlateauRounds = 3;
// That part of packets lost in a round that grows no more ends startup though no queue was seen.
inline constexpr double kStartupMuchLoss = 0.15;
inline constexpr double kStartupMarks = 0.1;
// A queue is seen when the least of so many RTTs, over an eighth of a round at least, is longer.
inline constexpr uint32_t kLeastQueuedSamples = 8;
inline constexpr double kDrainGain = 0.6;

// The first train: what an access of 10 Mb/s takes in a round trip, within these packets. The more,
// the more acknowledgements tell of its dispersion.
inline constexpr BitRate kTrainRate = BitRate::bits_per_second(10'000'000);
inline constexpr uint64_t kLeastTrain = 16;
inline constexpr uint64_t kMostTrain = 128;
inline constexpr uint64_t kUnknownTrain = 32;
inline constexpr Duration kUnknownRtt = Duration::milliseconds(100);
// After the train as much again is spread over the round trip.
inline constexpr uint64_t kInitialWindowTrains = 2;
// What is tried first of a hint; of a train's no more than so many initial windows in a round trip.
inline constexpr double kTrainTrust = 0.7;
inline constexpr double kMemoryTrust = 0.5;
inline constexpr double kHintStep = 32;

// A probe begins, after so many intervals without a queue, with what builds a queue of four
// milliseconds in a round trip; while it delivers more it goes on with three times the excess.
inline constexpr uint32_t kEmptyIntervals = 16;
inline constexpr double kProbeGainMs = 4;
inline constexpr double kLeastProbeGain = 0.04;
inline constexpr double kMostProbeGain = 0.25;
inline constexpr double kProbeStep = 3;
inline constexpr double kFastProbeGain = 2;
inline constexpr uint32_t kProbeRounds = 3;  // without growth; the first ones tell of before
inline constexpr Duration kLeastProbeHold = Duration::milliseconds(200);
inline constexpr Duration kMostProbeHold = Duration::seconds(8);

// Refresh: one and a half round trips in five seconds or twenty rounds. Below what arrived, so that
// a policer drops nothing. If that made the least RTT so much lower, it was queue: once more,
// deeper.
inline constexpr Duration kRefreshInterval = Duration::seconds(5);
inline constexpr int64_t kRefreshRounds = 20;
inline constexpr double kRefreshShare = 0.96;
inline constexpr Duration kRefreshFound = Duration::microseconds(700);
// Sooner, if it has to be known whether losses are chance.
inline constexpr Duration kLowWait = Duration::seconds(1);

// Losses. So much more than the floor, with a queue, is congestion.
inline constexpr double kExcessLoss = 0.02;
inline constexpr double kCongestedCut = 0.85;
// A round that lost more than this was a blackout or a collapse, and says nothing about chance.
inline constexpr double kMostChance = 0.3;

// Competing. With less chance loss than this each loss is congestion, as it is to the others.
inline constexpr double kCleanFloor = 0.0005;
// Fewer packets than this, more or less in flight, say nothing about whose queue it is.
inline constexpr double kNoisePackets = 8;
// Who makes up so much of the queue's change is alone; who has less than half, of the queue and of
// the most that was seen of the line in a minute, takes room as a flow that starts: a quarter of
// what is acknowledged.
inline constexpr double kOurShare = 0.75;
inline constexpr double kSmallShare = 0.45;
inline constexpr double kPeakSeconds = 60;
inline constexpr double kRamp = 0.25;
// A queue that is gone for so many intervals ends it.
inline constexpr uint32_t kClearedIntervals = 6;
// So long it is remembered how much the share was, and what the RTT is without a queue.
inline constexpr Duration kCompeteMemory = Duration::seconds(10);
inline constexpr Duration kHoldAfter = Duration::seconds(30);

// The rate of what was delivered between two counts.
inline double rate_between(uint64_t from, uint64_t to, Duration span) {
  if (to <= from || span <= Duration{}) return 0;
  return std::min(static_cast<double>(to - from) * 8 / span.to_seconds(), kMostBps);
}
inline Duration scaled(Duration d, double gain) {
  return Duration::nanoseconds(static_cast<int64_t>(static_cast<double>(d.ns()) * gain));
}
inline Duration from_ms(double ms) { return Duration::nanoseconds(static_cast<int64_t>(ms * 1e6)); }

}  // namespace farverbs::cc::far
