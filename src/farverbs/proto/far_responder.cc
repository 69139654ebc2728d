#include "farverbs/proto/far_responder.h"

namespace farverbs::proto {

FarResponder::FarResponder(model::Qp& qp, const TransportConfig& config)
    : qp_(qp), config_(config) {}
FarResponder::~FarResponder() = default;
void FarResponder::start() {}
void FarResponder::reset() {}
FarResponder::Verdict FarResponder::on_request(Time, const wire::PacketView&,
                                               const PacketContext&) {
  return config_.max_window_packets == 0 || qp_.qpn.value() == 0 ? Verdict::kTaken
                                                                 : Verdict::kDropped;
}
uint32_t FarResponder::executed() const { return 0; }
FarResponder::Told FarResponder::told() const { return {}; }
FarResponder::Response* FarResponder::next_response() { return nullptr; }
FarResponder::Response* FarResponder::find_response(uint32_t) { return nullptr; }
void FarResponder::acknowledged(uint32_t, uint32_t) {}
void FarResponder::refuse_response(uint32_t, wire::NakCode) {}
bool FarResponder::failed() const { return false; }
model::AsyncEventType FarResponder::failure_event() const {
  return model::AsyncEventType::kDeviceFatal;
}
void FarResponder::flush() {}
size_t FarResponder::memory_bytes() const { return 0; }

}  // namespace farverbs::proto
