#include "tools/perf/traffic.h"

#include <algorithm>
#include <array>
#include <utility>

namespace farverbs::tools::perf {
namespace {

using verbs::SendOpcode;

SendOpcode opcode_of(Op op) {
  switch (op) {
    case Op::kWrite:
      return SendOpcode::kWrite;
    case Op::kRead:
      return SendOpcode::kRead;
    case Op::kSend:
      return SendOpcode::kSend;
    case Op::kFetchAdd:
      return SendOpcode::kFetchAdd;
    case Op::kCompareSwap:
      return SendOpcode::kCompareSwap;
  }
  return SendOpcode::kSend;
}

}  // namespace

verbs::SendWorkRequest make_request(const Options& options, const RemoteEndpoint& remote,
                                    uint64_t slot) {
  verbs::SendWorkRequest request;
  request.opcode = opcode_of(options.op);
  if (options.inlined) request.flags = model::kInline;
  request.remote_address = remote.target_address + slot * options.stride();
  request.remote_key = remote.rkey;
  // Adds 1, or swaps 0 for 0: both leave a valid counter whatever their order.
  request.compare_add = options.op == Op::kFetchAdd ? 1 : 0;
  return request;
}

Traffic::Traffic(LocalEndpoint& local, const RemoteEndpoint& remote, const Options& options,
                 std::string peer)
    : local_(local),
      remote_(remote),
      options_(options),
      peer_(std::move(peer)),
      repost_at_(std::clamp<uint32_t>(local.receives_per_qp / 4, 1, kBatch)),
      outstanding_(local.qps.size(), 0),
      consumed_(local.qps.size(), 0),
      ready_(local.qps.size()),
      is_ready_(local.qps.size(), false),
      requests_(options.signal_every),
      receives_(kBatch),
      sges_(options.signal_every),
      receive_sges_(kBatch) {}

Result<void> Traffic::post_receives() {
  for (uint32_t qp = 0; qp < local_.qps.size(); ++qp) {
    uint32_t left = local_.receives_per_qp;
    while (left > 0) {
      const uint32_t count = std::min<uint32_t>(left, kBatch);
      FV_TRY(post_receive_list(qp, count));
      left -= count;
    }
  }
  return {};
}

void Traffic::start_sending(uint64_t messages, uint64_t last_size) {
  limit_ = messages;
  last_size_ = last_size;
  // The queue of one that sent before may still be full.
  for (uint32_t qp = 0; qp < local_.qps.size(); ++qp) {
    if (outstanding_[qp] < options_.depth) make_ready(qp);
  }
}

void Traffic::make_ready(uint32_t qp) {
  if (is_ready_[qp]) return;
  is_ready_[qp] = true;
  size_t place = ready_head_ + ready_count_++;
  if (place >= ready_.size()) place -= ready_.size();
  ready_[place] = qp;
}

Result<void> Traffic::post_sends() {
  while (ready_count_ > 0 && posted_ < limit_) {
    const uint32_t qp = ready_[ready_head_];
    if (++ready_head_ == ready_.size()) ready_head_ = 0;
    --ready_count_;
    is_ready_[qp] = false;
    const uint64_t count = std::min<uint64_t>(
        {options_.signal_every, options_.depth - outstanding_[qp], limit_ - posted_});
    FV_TRY(post_list(qp, static_cast<uint32_t>(count)));
    if (outstanding_[qp] < options_.depth) make_ready(qp);
  }
  return {};
}

Result<void> Traffic::post_list(uint32_t qp, uint32_t count) {
  for (uint32_t i = 0; i < count; ++i) {
    sges_[i] = local_.source(send_slot_, options_);
    if (last_size_ > 0 && posted_ + i + 1 == limit_) {
      sges_[i].length = static_cast<uint32_t>(last_size_);
    }
    requests_[i] = make_request(options_, remote_, send_slot_);
    requests_[i].sges = {&sges_[i], size_t{options_.size > 0}};
    if (++send_slot_ == options_.slots()) send_slot_ = 0;
  }
  verbs::SendWorkRequest& last = requests_[count - 1];
  last.flags |= model::kSignaled;
  last.wr_id = uint64_t{qp} << 32 | count;
  FV_TRY(local_.qps[qp].post_send(std::span(requests_.data(), count)));
  posted_ += count;
  outstanding_[qp] += count;
  return {};
}

Result<void> Traffic::post_receive_list(uint32_t qp, uint32_t count) {
  for (uint32_t i = 0; i < count; ++i) {
    receive_sges_[i] = local_.target(receive_slot_, options_);
    receives_[i].wr_id = kReceiveTag | uint64_t{qp} << 32;
    receives_[i].sges = {&receive_sges_[i], size_t{options_.size > 0}};
    if (++receive_slot_ == options_.slots()) receive_slot_ = 0;
  }
  return local_.qps[qp].post_receive(std::span(receives_.data(), count));
}

Result<void> Traffic::take(const verbs::WorkCompletion& completion) {
  if (completion.status != verbs::CompletionStatus::kSuccess) {
    return describe_failure(completion, peer_);
  }
  const auto qp = static_cast<uint32_t>((completion.wr_id & ~kReceiveTag) >> 32);
  if ((completion.wr_id & kReceiveTag) != 0) {
    ++received_;
    if (++consumed_[qp] >= repost_at_) {
      FV_TRY(post_receive_list(qp, std::exchange(consumed_[qp], 0)));
    }
    return {};
  }
  const auto count = static_cast<uint32_t>(completion.wr_id);
  sent_ += count;
  outstanding_[qp] -= count;
  make_ready(qp);
  return {};
}

Result<void> Traffic::step(Duration patience) {
  FV_TRY(post_sends());
  std::array<verbs::WorkCompletion, kBatch> completions;
  const size_t count =
      patience == Duration() ? local_.cq.poll(completions) : local_.cq.wait(completions, patience);
  for (size_t i = 0; i < count; ++i) FV_TRY(take(completions[i]));
  return {};
}

}  // namespace farverbs::tools::perf
