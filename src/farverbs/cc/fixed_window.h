// FixedWindow: a constant window without pacing. For measurements, tests and networks that somebody
// else keeps free of congestion.
#pragma once

#include "farverbs/cc/controller.h"

namespace farverbs::cc {

class FixedWindow final : public Controller {
 public:
  // window_bytes > 0.
  explicit FixedWindow(uint64_t window_bytes) : window_bytes_(window_bytes) {}

  void on_sent(Time now, uint64_t bytes, uint64_t inflight_bytes) override;
  void on_feedback(const Sample& sample) override;
  void on_timeout(Time now) override;
  Allowance allowance() const override;

 private:
  uint64_t window_bytes_;
};

}  // namespace farverbs::cc
