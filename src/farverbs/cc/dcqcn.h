// Dcqcn: rate control for data-centre paths whose switches mark packets before queues overflow
// (Zhu et al., "Congestion Control for Large-Scale RDMA Deployments", SIGCOMM 2015). A mark cuts
// the rate by half of alpha, an estimate of how much is marked; then the rate returns half-way to
// where it was several times, and only then explores, in steps and in growing steps.
//
// The notification point's packets are the CE counts of acknowledgements here: a marked
// acknowledgement is a CNP, and the rate is cut once per interval at most. They tell more than a
// CNP, so alpha follows the share of marked bytes, as in DCTCP (RFC 8257). While nothing is marked
// nothing is paced.
#pragma once

#include <cstdint>

#include "farverbs/cc/controller.h"

namespace farverbs::cc {

struct DcqcnConfig {
  uint64_t packet_bytes = 1472;
  BitRate line_rate = BitRate::bits_per_second(10'000'000'000);  // where it begins
  BitRate least_rate = BitRate::bits_per_second(10'000'000);
  // The paper's; intervals below a round trip are lengthened to one.
  Duration interval = Duration::microseconds(55);        // of alpha
  Duration step_interval = Duration::microseconds(300);  // back up
  double alpha_gain = 1.0 / 16;  // 1/256 for NICs, that see a CNP each 50 us
  uint32_t fast_recovery_steps = 5;
  BitRate additive_step = BitRate::bits_per_second(40'000'000);
  BitRate hyper_step = BitRate::bits_per_second(200'000'000);
  uint64_t bytes_per_step = 10'000'000;
  uint64_t max_window_bytes = 1024 * 1024;  // least bound of what is in flight
};

class Dcqcn final : public Controller {
 public:
  explicit Dcqcn(const DcqcnConfig& config = {});

  void on_sent(Time now, uint64_t bytes, uint64_t inflight_bytes) override;
  void on_feedback(const Sample& sample) override;
  void on_timeout(Time now) override;
  Allowance allowance() const override;

  // What it believes, for tools and tests.
  BitRate rate() const;
  double alpha() const { return alpha_; }
  Duration min_rtt() const { return min_rtt_; }

 private:
  Duration interval() const;
  void cut(Time now, double share);
  void step(uint32_t stage, uint32_t other_stage);
  void pass_time(Time now);

  DcqcnConfig config_;
  double rate_;    // R_C, bit/s
  double target_;  // R_T
  double alpha_ = 1;
  bool ever_limited_ = false;
  bool limited_ = false;      // marked or lost before, and not yet back
  uint64_t acked_bytes_ = 0;  // in this interval
  uint64_t marked_bytes_ = 0;
  Time alpha_at_;
  Time stage_at_;
  Time cut_at_;
  uint32_t time_stage_ = 0;
  uint32_t byte_stage_ = 0;
  uint64_t bytes_ = 0;
  Duration min_rtt_;
  Duration smoothed_rtt_;
};

}  // namespace farverbs::cc
