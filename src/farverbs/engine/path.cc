#include "farverbs/engine/path.h"

#include <algorithm>

namespace farverbs::engine {

void Flight::take_back(Time now, const Returned& returned) {
  const uint64_t gone = returned.delivered + returned.lost;
  inflight_ -= std::min(inflight_, gone);
  delivered_ += returned.delivered;
  cc::Sample sample;
  sample.now = now;
  sample.acked_bytes = returned.delivered;
  sample.lost_bytes = returned.lost;
  sample.inflight_bytes = inflight_;
  if (returned.has_rtt && returned.rtt.ns() > 0) {
    sample.has_rtt = true;
    sample.rtt = returned.rtt;
    last_rtt_ = returned.rtt;
    sample.delivery_rate = BitRate::bytes_in(
        delivered_ - std::min(delivered_, returned.probe_delivered), now - returned.probe_sent);
    sample.application_limited = returned.probe_delivered < application_limited_until_;
  }
  controller_->on_feedback(sample);
  allowance_ = controller_->allowance();
}

}  // namespace farverbs::engine
