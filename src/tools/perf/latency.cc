#include "tools/perf/latency.h"

#include <array>
#include <utility>

#include "tools/perf/traffic.h"

namespace farverbs::tools::perf {

LatencyEnd::LatencyEnd(LocalEndpoint& local, const RemoteEndpoint& remote, const Options& options,
                       std::string peer)
    : local_(local), remote_(remote), options_(options), peer_(std::move(peer)) {}

Result<void> LatencyEnd::post_receives() {
  while (receives_posted_ < local_.receives_per_qp) FV_TRY(post_receive(receives_posted_));
  return {};
}

Result<void> LatencyEnd::post_receive(uint64_t number) {
  const verbs::ScatterGatherElement sge = local_.target(slot_of(number), options_);
  verbs::ReceiveWorkRequest receive;
  receive.wr_id = kReceiveTag;
  receive.sges = {&sge, size_t{options_.size > 0}};
  ++receives_posted_;
  return local_.qps.front().post_receive(receive);
}

std::byte* LatencyEnd::last_byte(std::byte* area, uint64_t number) const {
  return area + slot_of(number) * options_.stride() + options_.size - 1;
}

Result<void> LatencyEnd::post() {
  const uint64_t number = posted_++;
  const bool ping_pong = is_ping_pong(options_);
  if (ping_pong && options_.op == Op::kWrite) {
    // What the peer waits for. Consecutive messages differ.
    *last_byte(local_.source_bytes(), number) = static_cast<std::byte>(number + 1);
  }
  const verbs::ScatterGatherElement sge = local_.source(slot_of(number), options_);
  verbs::SendWorkRequest request = make_request(options_, remote_, slot_of(number));
  request.sges = {&sge, size_t{options_.size > 0}};
  if (!ping_pong || number % kSignalEvery == 0) request.flags |= model::kSignaled;
  return local_.qps.front().post_send(request);
}

Result<void> LatencyEnd::look(Duration patience) {
  std::array<verbs::WorkCompletion, 8> completions;
  const size_t count =
      patience == Duration() ? local_.cq.poll(completions) : local_.cq.wait(completions, patience);
  for (size_t i = 0; i < count; ++i) {
    if (completions[i].status != verbs::CompletionStatus::kSuccess) {
      return describe_failure(completions[i], peer_);
    }
    if ((completions[i].wr_id & kReceiveTag) == 0) {
      ++completed_;
      continue;
    }
    ++received_;
    FV_TRY(post_receive(receives_posted_));
  }
  return {};
}

uint64_t LatencyEnd::arrived() const {
  if (options_.op == Op::kSend) return received_;
  const auto* watched = reinterpret_cast<const uint8_t*>(last_byte(local_.target_bytes(), seen_));
  if (__atomic_load_n(watched, __ATOMIC_ACQUIRE) == static_cast<uint8_t>(seen_ + 1)) ++seen_;
  return seen_;
}

}  // namespace farverbs::tools::perf
