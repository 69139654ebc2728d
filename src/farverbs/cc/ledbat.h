// Ledbat: the controller of the background class, in the spirit of LEDBAT (RFC 6817) and LEDBAT++
// (draft-irtf-iccrg-ledbat-plus-plus): alone it fills the line with a queue of a millisecond or
// two, and it gives way to whoever makes the queue longer. Like LEDBAT++ it decreases by factors,
// leaves slow start by delay, and slows down now and then to see the RTT without a queue; unlike
// them it measures rates, so that it fills long lines and is not stopped by chance losses. It is
// FarController with a target of little more than a millisecond, which never competes.
#pragma once

#include "farverbs/cc/far_controller.h"

namespace farverbs::cc {

class Ledbat final : public Controller {
 public:
  explicit Ledbat(const FarConfig& config = {}) : core_(background(config)) {}

  void on_sent(Time now, uint64_t bytes, uint64_t inflight_bytes) override;
  void on_feedback(const Sample& sample) override;
  void on_timeout(Time now) override;
  Allowance allowance() const override;

  const FarController& core() const { return core_; }  // what it believes, for tools and tests

 private:
  static FarConfig background(FarConfig config) {
    config.background = true;
    return config;
  }

  FarController core_;
};

}  // namespace farverbs::cc
