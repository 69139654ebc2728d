// PathControl: the congestion controller of a far path: FarController, and Dcqcn once the path
// shows that it is of a data centre: its round trip is short, and its switches mark what they would
// otherwise have to drop. Marks on longer paths are FarController's business.
#pragma once

#include <optional>

#include "farverbs/cc/dcqcn.h"
#include "farverbs/cc/far_controller.h"

namespace farverbs::cc {

enum class ControlChoice : uint8_t {
  kBySigns,
  kFar,         // FarController, whatever is marked
  kDataCentre,  // Dcqcn from the start
};

class PathControl final : public Controller {
 public:
  explicit PathControl(const FarConfig& config, ControlChoice choice = ControlChoice::kBySigns);

  void on_sent(Time now, uint64_t bytes, uint64_t inflight_bytes) override;
  void on_feedback(const Sample& sample) override;
  void on_timeout(Time now) override;
  Allowance allowance() const override;

  // What it believes, for tools and tests.
  const FarController& far() const { return far_; }
  bool data_centre() const { return dcqcn_.has_value(); }
  const char* phase_name() const { return data_centre() ? "dcqcn" : far_.phase_name(); }
  Duration min_rtt() const { return data_centre() ? dcqcn_->min_rtt() : far_.min_rtt(); }

 private:
  void become_data_centre();

  uint64_t packet_bytes_;
  ControlChoice choice_;
  FarController far_;
  std::optional<Dcqcn> dcqcn_;
  uint64_t marked_bytes_ = 0;
};

}  // namespace farverbs::cc
