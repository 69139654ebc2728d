#include "farverbs/sim/conversation.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace farverbs::sim {
namespace {

using model::CompletionOpcode;
using model::CompletionStatus;
using model::ScatterGatherElement;
using model::SendOpcode;

constexpr size_t kAreaBytes = 96 * 1024;
constexpr size_t kCounters = 8;
constexpr uint64_t kReceiveId = uint64_t{1} << 63;  // set in the wr_id of receives
constexpr uint64_t kConstantPattern = 77;

void fill(std::byte* to, uint64_t pattern, uint64_t length) {
  for (uint64_t i = 0; i < length; ++i) to[i] = pattern_byte(pattern, i);
}

MemoryKey key_of(const model::MemoryEntry* entry) { return MemoryKey(entry->key.load()); }

uint64_t address_of(const void* p) { return reinterpret_cast<uint64_t>(p); }

}  // namespace

std::byte pattern_byte(uint64_t pattern, uint64_t index) {
  const uint64_t x = (pattern + 1) * 0x9E3779B97F4A7C15u + (index >> 3) * 0xBF58476D1CE4E5B9u;
  return static_cast<std::byte>((x ^ (x >> 29)) >> ((index & 7) * 8));
}

Conversation::Conversation(World& world, Host& a, Host& b, const ConversationSpec& spec,
                           uint64_t seed)
    : world_(world), spec_(spec), prng_(seed) {
  set_up(a_, a);
  set_up(b_, b);
  spec_.connection.first_psn_a = Psn(prng_.chance(0.2) ? 0xFFFFF0 : prng_.next());
  spec_.connection.first_psn_b = Psn(prng_.chance(0.2) ? 0xFFFFF0 : prng_.next());
  connect(world_.network.now(), a, *a_.qp, b, *b_.qp, spec_.connection);
  post_receives(a_);
  post_receives(b_);
}

Conversation::~Conversation() {
  for (Side* side : {&a_, &b_}) {
    if (!side->dead) side->host->loop().destroy_qp(world_.network.now(), side->qp);
  }
}

void Conversation::set_up(Side& side, Host& host) {
  side.host = &host;
  side.cq = std::make_unique<model::CompletionQueue>(4096, nullptr, nullptr, &host.events());
  side.target.assign(kAreaBytes, std::byte{0});
  side.shadow = side.target;
  side.constant.resize(kAreaBytes);
  fill(side.constant.data(), kConstantPattern, kAreaBytes);
  side.counters.assign(kCounters, 0);
  side.shadow_counters = side.counters;
  side.scratch.resize(size_t{spec_.depth} * spec_.max_message_bytes);
  side.inbox.resize(size_t{spec_.receives} * spec_.max_message_bytes);
  constexpr model::PdId kPd = 1;
  auto region = [&](auto& memory, uint32_t access) {
    auto entry = host.memory().register_region(
        kPd, memory.data(), memory.size() * sizeof(memory[0]), address_of(memory.data()), access);
    FV_CHECK(entry.ok());
    return *entry;
  };
  side.target_mr = region(side.target, model::kLocalWrite | model::kRemoteWrite);
  side.constant_mr = region(side.constant, model::kRemoteRead);
  side.counters_mr = region(side.counters, model::kLocalWrite | model::kRemoteAtomic);
  side.scratch_mr = region(side.scratch, model::kLocalWrite);
  side.inbox_mr = region(side.inbox, model::kLocalWrite);
  for (uint32_t i = 0; i < spec_.depth; ++i) side.free_slots.push_back(i);
  for (uint32_t i = 0; i < spec_.receives; ++i) side.free_receives.push_back(i);

  model::QpInit init;
  init.type = model::QpType::kRc;
  init.send_cq = init.receive_cq = side.cq.get();
  init.capabilities = {spec_.depth, spec_.receives, 2, 2, 64};
  init.pd = kPd;
  if (spec_.shared_receives) {
    side.srq = std::make_unique<model::ReceiveQueue>(spec_.receives, 2, true);
    init.srq = side.srq.get();
  }
  side.qp = &host.create_qp(init);
}

void Conversation::fail(const Side& side, const std::string& what) {
  if (!failure_.empty()) return;
  failure_ = std::string(&side == &a_ ? "side a: " : "side b: ") + what;
}

void Conversation::act() {
  act(a_, b_);
  act(b_, a_);
}

void Conversation::act(Side& side, Side& peer) {
  if (side.dead) return;
  std::array<model::WorkCompletion, 16> completions;
  for (size_t n; (n = side.cq->poll(completions)) > 0;) {
    for (size_t i = 0; i < n; ++i) on_completion(side, peer, completions[i]);
  }
  if (side.broken) return;
  if (!prng_.chance(spec_.receive_starvation)) post_receives(side);
  while (side.posted < spec_.requests_per_side && !side.free_slots.empty() &&
         side.outstanding.size() < spec_.depth && prng_.chance(0.8)) {
    post_request(side, peer);
  }
}

void Conversation::post_receives(Side& side) {
  while (!side.free_receives.empty()) {
    const uint32_t slot = side.free_receives.back();
    const uint64_t at = address_of(side.inbox.data()) + uint64_t{slot} * spec_.max_message_bytes;
    // Two pieces, the first of an odd length.
    const uint32_t first =
        std::min<uint32_t>(spec_.max_message_bytes / 3 | 1, spec_.max_message_bytes);
    const std::array<ScatterGatherElement, 2> sges = {
        ScatterGatherElement{at, first, key_of(side.inbox_mr)},
        ScatterGatherElement{at + first, spec_.max_message_bytes - first, key_of(side.inbox_mr)}};
    const model::ReceiveWorkRequest request{kReceiveId | slot, sges};
    const Result<void> posted =
        side.srq != nullptr ? side.srq->post(request) : side.qp->pair.post_receive(request);
    if (!posted.ok()) return fail(side, "post_receive: " + posted.error().message);
    side.free_receives.pop_back();
  }
}

void Conversation::post_request(Side& side, Side& peer) {
  Request r{};
  r.id = side.next_id++;
  r.kind = static_cast<Kind>(prng_.below(7));
  r.slot = side.free_slots.back();
  r.length = prng_.chance(0.3) ? static_cast<uint32_t>(prng_.below(64))
                               : static_cast<uint32_t>(prng_.below(spec_.max_message_bytes + 1));
  // A request whose slot must be reused has to complete visibly at the latest when they run out.
  r.signaled = side.free_slots.size() == 1 || prng_.chance(spec_.signaled) ||
               side.posted + 1 == spec_.requests_per_side || r.kind >= Kind::kRead;
  std::byte* local = side.scratch.data() + size_t{r.slot} * spec_.max_message_bytes;
  const uint64_t pattern = prng_.next();
  const auto immediate = static_cast<uint32_t>(pattern >> 7);
  r.offset = prng_.below(kAreaBytes - r.length + 1);

  model::SendWorkRequest wr;
  wr.wr_id = r.id;
  wr.flags = (r.signaled ? model::kSignaled : 0u) | (prng_.chance(0.1) ? model::kFence : 0u) |
             (prng_.chance(0.2) ? model::kSolicited : 0u);
  wr.immediate = immediate;
  const uint32_t cut = r.length > 0 ? static_cast<uint32_t>(prng_.below(r.length)) : 0;
  std::array<ScatterGatherElement, 2> sges = {
      ScatterGatherElement{address_of(local), cut, key_of(side.scratch_mr)},
      ScatterGatherElement{address_of(local) + cut, r.length - cut, key_of(side.scratch_mr)}};
  wr.sges = sges;
  switch (r.kind) {
    case Kind::kSend:
    case Kind::kSendImmediate: {
      fill(local, pattern, r.length);
      const bool with_immediate = r.kind == Kind::kSendImmediate;
      wr.opcode = with_immediate ? SendOpcode::kSendWithImmediate : SendOpcode::kSend;
      if (r.length <= 64 && prng_.chance(0.5)) wr.flags |= model::kInline;
      peer.expected.push_back({pattern, r.length, with_immediate, false, immediate});
      break;
    }
    case Kind::kWrite:
    case Kind::kWriteImmediate: {
      fill(local, pattern, r.length);
      const bool with_immediate = r.kind == Kind::kWriteImmediate;
      wr.opcode = with_immediate ? SendOpcode::kWriteWithImmediate : SendOpcode::kWrite;
      wr.remote_address = address_of(peer.target.data()) + r.offset;
      wr.remote_key = key_of(peer.target_mr);
      fill(side.shadow.data() + r.offset, pattern, r.length);
      if (with_immediate) peer.expected.push_back({pattern, r.length, true, true, immediate});
      break;
    }
    case Kind::kRead:
      std::memset(local, 0, r.length);
      wr.opcode = SendOpcode::kRead;
      wr.remote_address = address_of(peer.constant.data()) + r.offset;
      wr.remote_key = key_of(peer.constant_mr);
      break;
    case Kind::kFetchAdd:
    case Kind::kCompareSwap: {
      const size_t counter = prng_.below(kCounters);
      uint64_t& value = side.shadow_counters[counter];
      r.length = 8;
      r.expected_value = value;
      sges[0].length = 8;
      wr.sges = std::span(sges).first(1);
      wr.remote_address = address_of(&peer.counters[counter]);
      wr.remote_key = key_of(peer.counters_mr);
      if (r.kind == Kind::kFetchAdd) {
        wr.opcode = SendOpcode::kFetchAdd;
        wr.compare_add = pattern;
        value += pattern;
      } else {
        wr.opcode = SendOpcode::kCompareSwap;
        wr.compare_add = prng_.chance(0.7) ? value : value + 1;
        wr.swap = pattern;
        if (wr.compare_add == value) value = pattern;
      }
      break;
    }
  }
  const Result<void> posted = side.qp->pair.post_send(wr);
  if (!posted.ok()) return fail(side, "post_send: " + posted.error().message);
  side.host->loop().ring(*side.qp);
  side.free_slots.pop_back();
  side.outstanding.push_back(r);
  ++side.posted;
}

void Conversation::on_completion(Side& side, Side& peer, const model::WorkCompletion& wc) {
  if (peer.dead && (wc.wr_id & kReceiveId) != 0) return;  // what was on its way may arrive or not
  if (wc.qpn != side.qp->pair.qp().qpn) return fail(side, "a completion names a foreign QP");
  if (wc.status != CompletionStatus::kSuccess) {
    // Faults may outlast the retries of one side; then the other is flushed or finds out by itself.
    if (wc.status != CompletionStatus::kRetryExceeded &&
        wc.status != CompletionStatus::kWorkRequestFlushed) {
      fail(side, std::string("a completion failed with ") + model::to_string(wc.status));
    }
    side.broken = true;
    side.expected.clear();
    if ((wc.wr_id & kReceiveId) != 0) {
      if (wc.status != CompletionStatus::kWorkRequestFlushed) {
        fail(side, std::string("a receive failed: ") + model::to_string(wc.status));
      }
      return;
    }
    if (side.outstanding.empty()) return fail(side, "a request completed twice");
    // Requests before the failed one that were not signaled have succeeded.
    while (!side.outstanding.empty() && side.outstanding.front().id < wc.wr_id) {
      if (side.outstanding.front().signaled) return fail(side, "a completion is missing");
      side.outstanding.pop_front();
    }
    if (side.outstanding.empty() || side.outstanding.front().id != wc.wr_id) {
      return fail(side, "an error completion is out of order");
    }
    side.outstanding.pop_front();
    return;
  }
  if ((wc.wr_id & kReceiveId) != 0) {
    on_receive(side, wc);
  } else {
    on_request_done(side, wc);
  }
}

void Conversation::on_receive(Side& side, const model::WorkCompletion& wc) {
  const auto slot = static_cast<uint32_t>(wc.wr_id & 0xFFFFFFFF);
  side.free_receives.push_back(slot);
  if (side.broken) return;
  if (side.expected.empty()) return fail(side, "a message arrived that nobody sent (or twice)");
  const Message message = side.expected.front();
  side.expected.pop_front();
  if (wc.byte_length != message.length) {
    return fail(side, "a message of " + std::to_string(message.length) + " bytes arrived with " +
                          std::to_string(wc.byte_length));
  }
  const bool immediate = (wc.flags & model::kWithImmediate) != 0;
  if (immediate != message.immediate || (immediate && wc.immediate != message.immediate_value)) {
    return fail(side, "a message's immediate data differ");
  }
  if ((wc.opcode == CompletionOpcode::kReceiveWithImmediate) != message.write) {
    return fail(side, "a receive completion has the wrong opcode");
  }
  if (message.write) return;
  const std::byte* at = side.inbox.data() + size_t{slot} * spec_.max_message_bytes;
  for (uint32_t i = 0; i < message.length; ++i) {
    if (at[i] != pattern_byte(message.pattern, i)) {
      return fail(side, "byte " + std::to_string(i) + " of a received message differs");
    }
  }
}

void Conversation::on_request_done(Side& side, const model::WorkCompletion& wc) {
  while (!side.outstanding.empty() && side.outstanding.front().id < wc.wr_id) {
    if (side.outstanding.front().signaled) {
      return fail(side, "request " + std::to_string(wc.wr_id) + " completed before request " +
                            std::to_string(side.outstanding.front().id));
    }
    finish(side, side.outstanding.front());
    side.outstanding.pop_front();
  }
  if (side.outstanding.empty() || side.outstanding.front().id != wc.wr_id) {
    return fail(side,
                "request " + std::to_string(wc.wr_id) + " completed twice or was never posted");
  }
  if (!side.outstanding.front().signaled) return fail(side, "an unsignaled request completed");
  finish(side, side.outstanding.front());
  side.outstanding.pop_front();
}

void Conversation::finish(Side& side, const Request& request) {
  side.free_slots.push_back(request.slot);
  const std::byte* local = side.scratch.data() + size_t{request.slot} * spec_.max_message_bytes;
  if (request.kind == Kind::kRead) {
    for (uint32_t i = 0; i < request.length; ++i) {
      if (local[i] != pattern_byte(kConstantPattern, request.offset + i)) {
        return fail(side, "byte " + std::to_string(i) + " of a READ of " +
                              std::to_string(request.length) + " bytes differs");
      }
    }
  } else if (request.kind == Kind::kFetchAdd || request.kind == Kind::kCompareSwap) {
    uint64_t value = 0;
    std::memcpy(&value, local, sizeof value);
    if (value != request.expected_value) {
      fail(side, "an atomic returned a value that one execution of each cannot give");
    }
  }
}

bool Conversation::side_done(const Side& side, const Side& peer) const {
  if (side.dead) return true;
  if (side.broken) return side.outstanding.empty();
  return side.posted == spec_.requests_per_side && side.outstanding.empty() &&
         (peer.broken || peer.dead || peer.expected.empty());
}

bool Conversation::done() const {
  return !failure_.empty() || (side_done(a_, b_) && side_done(b_, a_));
}

void Conversation::check_memory() {
  if (broken() || a_.dead || b_.dead) return;
  for (auto [side, peer] : {std::pair{&a_, &b_}, std::pair{&b_, &a_}}) {
    if (std::memcmp(side->shadow.data(), peer->target.data(), kAreaBytes) != 0) {
      const auto differ =
          std::mismatch(side->shadow.begin(), side->shadow.end(), peer->target.begin());
      fail(*side, "the peer's memory differs at offset " +
                      std::to_string(differ.first - side->shadow.begin()));
    }
    if (side->shadow_counters != peer->counters) fail(*side, "the peer's counters differ");
  }
}

void Conversation::peer_died() { b_.dead = true; }

std::string Conversation::describe() const {
  std::string text;
  for (const Side* side : {&a_, &b_}) {
    text += side == &a_ ? "a: " : " b: ";
    text += std::to_string(side->posted) + " posted, " + std::to_string(side->outstanding.size()) +
            " outstanding, " + std::to_string(side->expected.size()) + " messages awaited" +
            (side->broken ? ", broken" : "") + (side->dead ? ", dead" : "");
    if (!side->outstanding.empty()) {
      const Request& r = side->outstanding.front();
      text += ", oldest: request " + std::to_string(r.id) + " of kind " +
              std::to_string(static_cast<int>(r.kind)) + ", " + std::to_string(r.length) + " bytes";
    }
  }
  return text;
}

}  // namespace farverbs::sim
