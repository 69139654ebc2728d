#include "farverbs/model/work_queues.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <mutex>
#include <new>
#include <string>

namespace farverbs::model {
namespace {

constexpr uint64_t kMaxMessageBytes = uint64_t{1} << 31;  // IBTA vol. 1 section 9.7.2: 2^31 bytes
constexpr uint32_t kAtomicBytes = 8;
constexpr uint32_t kAllSendFlags = kFence | kSignaled | kSolicited | kInline;

constexpr uint32_t bit(SendOpcode opcode) { return 1u << static_cast<unsigned>(opcode); }

constexpr uint32_t kDatagramOpcodes = bit(SendOpcode::kSend) | bit(SendOpcode::kSendWithImmediate);
constexpr uint32_t kUnreliableOpcodes =
    kDatagramOpcodes | bit(SendOpcode::kWrite) | bit(SendOpcode::kWriteWithImmediate) |
    bit(SendOpcode::kLocalInvalidate) | bit(SendOpcode::kBindWindow);
constexpr uint32_t kAtomicOpcodes = bit(SendOpcode::kCompareSwap) | bit(SendOpcode::kFetchAdd);
constexpr uint32_t kReliableOpcodes = kUnreliableOpcodes | kAtomicOpcodes | bit(SendOpcode::kRead) |
                                      bit(SendOpcode::kSendWithInvalidate);
constexpr uint32_t kLocalOpcodes = bit(SendOpcode::kLocalInvalidate) | bit(SendOpcode::kBindWindow);
// What has bytes to send, which is what can be inlined.
constexpr uint32_t kPayloadOpcodes =
    kReliableOpcodes & ~(kAtomicOpcodes | kLocalOpcodes | bit(SendOpcode::kRead));

constexpr uint32_t opcodes_of(QpType type) {
  switch (type) {
    case QpType::kRc:
      return kReliableOpcodes;
    case QpType::kUc:
      return kUnreliableOpcodes;
    case QpType::kUd:
    case QpType::kGsi:
      return kDatagramOpcodes;
  }
  return 0;
}

std::string text(uint64_t n) { return std::to_string(n); }

uint64_t length_of(std::span<const ScatterGatherElement> sges) {
  uint64_t length = 0;
  for (const ScatterGatherElement& sge : sges) length += sge.length;
  return length;
}

[[gnu::cold, gnu::noinline]] Error queue_full(const char* queue, const char* field, uint32_t n) {
  return {ENOMEM, std::string(queue) + " queue is full (" + field + " is " + text(n) +
                      "); poll completions before posting more"};
}

[[gnu::cold, gnu::noinline]] Error too_many_sges(size_t count, const char* field, uint32_t most) {
  return invalid("sges has " + text(count) + " elements, " + field + " is " + text(most));
}

// Why a request is refused, or "". Only called when something is known to be wrong: building a
// message has no place on the way of a good request.
[[gnu::cold, gnu::noinline]] Error explain(QpType type, const SendWorkRequest& request,
                                           uint64_t length, uint32_t max_sge, uint32_t max_inline) {
  const auto number = static_cast<unsigned>(request.opcode);
  if (number > static_cast<unsigned>(SendOpcode::kSendWithInvalidate)) {
    return invalid("opcode " + text(number) + " is unknown");
  }
  const uint32_t opcode = bit(request.opcode);
  if ((opcodes_of(type) & opcode) == 0) {
    return invalid(std::string("opcode ") + to_string(request.opcode) + " does not exist on a " +
                   (is_datagram(type) ? "UD" : "UC") + " QP");
  }
  if ((request.flags & ~kAllSendFlags) != 0) {
    return invalid("flags has unknown bits, got " + text(request.flags));
  }
  if ((request.flags & kFence) != 0 && type != QpType::kRc) {
    return invalid("flags has fence, which only an RC QP can obey");
  }
  if (request.sges.size() > max_sge) {
    return too_many_sges(request.sges.size(), "max_send_sge", max_sge);
  }
  if ((request.flags & kInline) != 0) {
    if ((opcode & kPayloadOpcodes) == 0) {
      return invalid(std::string("flags has inline, but ") + to_string(request.opcode) +
                     " sends no data");
    }
    if (length > max_inline) {
      return invalid("inline data has " + text(length) + " bytes, max_inline_data is " +
                     text(max_inline));
    }
  }
  if (length > kMaxMessageBytes) {
    return invalid("length of the sges is " + text(length) +
                   " bytes, a message has 2147483648 at most");
  }
  if ((opcode & kAtomicOpcodes) != 0 && length != kAtomicBytes) {
    return invalid("length of an atomic's sges must be 8 bytes, got " + text(length));
  }
  if (is_datagram(type)) return invalid("address_vector is missing; a UD request needs one");
  return invalid("window is missing; a bind needs one");
}

}  // namespace

SendQueue::SendQueue(const QpCapabilities& capabilities)
    : capacity_(capabilities.max_send_wr),
      slot_mask_(capacity_ == 0 ? 0 : std::bit_ceil(capacity_) - 1),
      max_sge_(std::min(capabilities.max_send_sge, 255u)),  // SendWqe counts in 8 bits
      max_inline_(capabilities.max_inline_data) {
  const uint32_t payload =
      std::max(max_sge_ * static_cast<uint32_t>(sizeof(ScatterGatherElement)), max_inline_);
  stride_ = static_cast<uint32_t>((sizeof(SendWqe) + payload + 15) & ~size_t{15});
}

Result<void> SendQueue::post(QpType type, const SendWorkRequest& request) {
  const auto number = static_cast<unsigned>(request.opcode);
  const uint32_t opcode = number < 32 ? bit(request.opcode) : 0;
  const bool inlined = (request.flags & kInline) != 0;
  const bool local = (opcode & kLocalOpcodes) != 0;
  // A list that is too long may be no list at all: it is not looked at.
  const bool countable = request.sges.size() <= max_sge_;
  const uint64_t length = local || !countable ? 0 : length_of(request.sges);
  const bool good = (opcodes_of(type) & opcode) != 0 && (request.flags & ~kAllSendFlags) == 0 &&
                    ((request.flags & kFence) == 0 || type == QpType::kRc) && countable &&
                    (!inlined || ((opcode & kPayloadOpcodes) != 0 && length <= max_inline_)) &&
                    length <= kMaxMessageBytes &&
                    ((opcode & kAtomicOpcodes) == 0 || length == kAtomicBytes) &&
                    (!is_datagram(type) || request.address_vector != nullptr) &&
                    (request.opcode != SendOpcode::kBindWindow || request.window != nullptr);
  if (!good) return explain(type, request, length, max_sge_, max_inline_);

  const std::lock_guard guard(lock_);
  const uint64_t tail = tail_.load(std::memory_order_relaxed);
  if (tail - head_.load(std::memory_order_acquire) >= capacity_) {
    return queue_full("send", "max_send_wr", capacity_);
  }
  if (slots_ == nullptr) {
    slots_ = std::make_unique_for_overwrite<std::byte[]>(size_t{stride_} * (slot_mask_ + 1));
  }
  std::byte* slot = slots_.get() + size_t{stride_} * (tail & slot_mask_);
  SendWqe& wqe = *new (slot) SendWqe;
  wqe.wr_id = request.wr_id;
  wqe.remote_address = request.remote_address;
  wqe.compare_add = request.compare_add;
  wqe.swap = request.swap;
  wqe.remote_key = request.remote_key;
  // A bind's is its new key, of which the low 8 bits count.
  wqe.immediate = request.opcode == SendOpcode::kSendWithInvalidate ||
                          request.opcode == SendOpcode::kLocalInvalidate
                      ? request.invalidate_key.value()
                  : request.opcode == SendOpcode::kBindWindow ? request.remote_key.value()
                                                              : request.immediate;
  wqe.flags = request.flags;
  wqe.length = static_cast<uint32_t>(length);
  wqe.opcode = request.opcode;
  wqe.sge_count = inlined || local ? 0 : static_cast<uint8_t>(request.sges.size());
  wqe.inlined = inlined;
  wqe.started = false;
  wqe.first_packet = 0;
  wqe.packet_count = 0;
  wqe.progress = 0;
  wqe.window = nullptr;
  if (is_datagram(type)) {
    wqe.address_vector = *request.address_vector;
    wqe.remote_qpn = request.remote_qpn;
    wqe.remote_qkey = request.remote_qkey;
  }
  if (request.opcode == SendOpcode::kBindWindow) {
    wqe.window = request.window;
    wqe.bind_region_lkey = request.bind_region_lkey;
    wqe.bind_access = request.bind_access;
    wqe.bind_length = request.bind_length;
    wqe.remote_address = request.bind_address;
  }
  std::byte* payload = slot + sizeof(SendWqe);
  if (inlined) {
    for (const ScatterGatherElement& sge : request.sges) {
      if (sge.length == 0) continue;
      std::memcpy(payload, reinterpret_cast<const void*>(sge.address), sge.length);
      payload += sge.length;
    }
  } else {
    auto* sges = reinterpret_cast<ScatterGatherElement*>(payload);
    for (size_t i = 0; i < wqe.sge_count; ++i) new (sges + i) ScatterGatherElement(request.sges[i]);
  }
  tail_.store(tail + 1, std::memory_order_release);
  return {};
}

void SendQueue::clear() {
  const std::lock_guard guard(lock_);
  head_.store(tail_.load(std::memory_order_relaxed), std::memory_order_release);
}

size_t SendQueue::memory_bytes() const {
  const std::lock_guard guard(lock_);
  return slots_ == nullptr ? 0 : size_t{stride_} * (slot_mask_ + 1);
}

namespace {

struct ReceiveSlot {
  uint64_t wr_id;
  uint32_t length;
  uint32_t sge_count;
};

}  // namespace

ReceiveQueue::ReceiveQueue(uint32_t max_wr, uint32_t max_sge, bool shared)
    : capacity_(max_wr),
      slot_mask_(max_wr == 0 ? 0 : std::bit_ceil(max_wr) - 1),
      stride_(static_cast<uint32_t>(sizeof(ReceiveSlot) + max_sge * sizeof(ScatterGatherElement))),
      max_sge_(max_sge),
      shared_(shared) {}

Result<void> ReceiveQueue::post(const ReceiveWorkRequest& request) {
  if (request.sges.size() > max_sge_) {
    return too_many_sges(request.sges.size(), "max_recv_sge", max_sge_);
  }
  // No message is longer than 2^31 bytes, so what a receive offers beyond 32 bits is never used.
  const auto length =
      static_cast<uint32_t>(std::min<uint64_t>(length_of(request.sges), UINT32_MAX));
  const std::lock_guard guard(post_lock_);
  const uint64_t tail = tail_.load(std::memory_order_relaxed);
  if (tail - head_.load(std::memory_order_acquire) >= capacity_) {
    return queue_full("receive", "max_recv_wr", capacity_);
  }
  if (slots_ == nullptr) {
    slots_ = std::make_unique_for_overwrite<std::byte[]>(size_t{stride_} * (slot_mask_ + 1));
  }
  std::byte* slot = slots_.get() + size_t{stride_} * (tail & slot_mask_);
  new (slot) ReceiveSlot{request.wr_id, length, static_cast<uint32_t>(request.sges.size())};
  auto* sges = reinterpret_cast<ScatterGatherElement*>(slot + sizeof(ReceiveSlot));
  for (size_t i = 0; i < request.sges.size(); ++i) {
    new (sges + i) ScatterGatherElement(request.sges[i]);
  }
  tail_.store(tail + 1, std::memory_order_release);
  return {};
}

bool ReceiveQueue::pop(ReceiveWqe& receive) {
  if (shared_) pop_lock_.lock();
  const uint64_t head = head_.load(std::memory_order_relaxed);
  const uint64_t count = tail_.load(std::memory_order_acquire) - head;
  if (count == 0) {
    if (shared_) pop_lock_.unlock();
    return false;
  }
  const std::byte* slot = slots_.get() + size_t{stride_} * (head & slot_mask_);
  const auto& header = *reinterpret_cast<const ReceiveSlot*>(slot);
  if (receive.sge_storage == nullptr) {
    receive.sge_storage = std::make_unique<ScatterGatherElement[]>(std::max(max_sge_, 1u));
  }
  receive.wr_id = header.wr_id;
  receive.length = header.length;
  receive.sge_count = header.sge_count;
  const auto* sges = reinterpret_cast<const ScatterGatherElement*>(slot + sizeof(ReceiveSlot));
  std::copy_n(sges, header.sge_count, receive.sge_storage.get());
  head_.store(head + 1, std::memory_order_release);
  if (!shared_) return true;

  const bool reached = count - 1 < limit_.load(std::memory_order_relaxed);
  if (reached) limit_.store(0, std::memory_order_relaxed);
  AsyncEventSink* events = limit_events_;
  void* context = limit_context_;
  pop_lock_.unlock();
  if (reached && events != nullptr) {
    events->on_async_event({AsyncEventType::kSrqLimitReached, context});
  }
  return true;
}

uint32_t ReceiveQueue::count() const {
  // The head first: it never passes a tail that is read later.
  const uint64_t head = head_.load(std::memory_order_acquire);
  return static_cast<uint32_t>(tail_.load(std::memory_order_acquire) - head);
}

void ReceiveQueue::clear() {
  const std::lock_guard post_guard(post_lock_);
  const std::lock_guard pop_guard(pop_lock_);
  head_.store(tail_.load(std::memory_order_relaxed), std::memory_order_release);
}

size_t ReceiveQueue::memory_bytes() const {
  const std::lock_guard guard(post_lock_);
  return slots_ == nullptr ? 0 : size_t{stride_} * (slot_mask_ + 1);
}

void ReceiveQueue::arm_limit(uint32_t limit, AsyncEventSink* events, void* context) {
  const std::lock_guard guard(pop_lock_);
  limit_events_ = events;
  limit_context_ = context;
  limit_.store(limit, std::memory_order_relaxed);
}

}  // namespace farverbs::model
