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

void Flight::take_back_far(Time now, const proto::Feedback& feedback) {
  inflight_ -=
      std::min(inflight_, feedback.acked_bytes + feedback.lost_bytes + feedback.withdrawn_bytes);
  const uint64_t arrived = feedback.acked_bytes + feedback.spurious_bytes;
  if (arrived > 0) {
    delivered_ += arrived;
    delivered_time_ = now;
  }
  cc::Sample sample;
  sample.now = now;
  sample.acked_bytes = feedback.acked_bytes;
  sample.lost_bytes =
      feedback.lost_bytes + uint64_t{feedback.restored_packets} * FarLine::kSegmentBytes;
  sample.spurious_bytes = feedback.spurious_bytes;
  sample.inflight_bytes = inflight_;
  sample.delivered_bytes = delivered_;
  sample.congestion_marked_bytes = uint64_t{feedback.congestion_marks} * 1'500;
  if (feedback.has_rtt) {
    sample.has_rtt = true;
    sample.rtt = last_rtt_ = feedback.rtt;
  }
  if (feedback.has_mark) {
    const proto::FlightMark& mark = feedback.mark;
    sample.prior_delivered_bytes = mark.delivered_bytes;
    sample.prior_inflight_bytes = mark.inflight_bytes;
    sample.application_limited = mark.application_limited;
    // The slower of sending and arriving: neither a burst that was queued nor acknowledgements that
    // were can make the rate greater than the path's.
    const Duration interval =
        std::max(now - mark.delivered_time, feedback.mark_sent - mark.first_sent);
    if (interval.ns() > 0) {
      sample.delivery_rate = BitRate::bytes_in(delivered_ - mark.delivered_bytes, interval);
    }
    first_sent_ = std::max(first_sent_, feedback.mark_sent);
  }
  controller_->on_feedback(sample);
  allowance_ = controller_->allowance();
}

}  // namespace farverbs::engine
