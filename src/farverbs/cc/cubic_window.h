// CubicWindow: the window law of CUBIC (RFC 9438) without everything around it. FarController
// grows by it beside flows that fill the queue, since that is what shares evenly with them; the
// tests build their competitor from it.
#pragma once

#include <cstdint>

#include "farverbs/base/time.h"

namespace farverbs::cc {

class CubicWindow {
 public:
  static constexpr double kBeta = 0.7;

  explicit CubicWindow(uint64_t packet_bytes) : packet_(static_cast<double>(packet_bytes)) {}

  // Begins an epoch at this window, as if it had been the greatest.
  void start(Time now, double window_bytes);
  // Bytes acknowledged while the window limited the sender.
  void on_acknowledged(Time now, uint64_t bytes, Duration rtt);
  // Congestion; call it once per round trip.
  void on_congestion(Time now);
  // The last congestion was none.
  void undo();

  double bytes() const { return window_; }

 private:
  double packet_;
  double window_ = 0;
  double greatest_ = 0;  // W_max
  double reno_ = 0;      // what Reno would have: W_est
  double k_ = 0;         // seconds until W_max is reached again
  Time epoch_;
  double before_window_ = 0;
  double before_greatest_ = 0;
};

}  // namespace farverbs::cc
