// Inbound: the SEND or WRITE that is arriving at a connected QP, packet after packet in order. RC
// and UC share it. Its steps are the responder's of IBTA vol. 1 chapter 9.7.4 and 9.8.3 (Linux rxe
// names them alike): each looks at one thing and returns a verdict; nothing changes before `place`.
#pragma once

#include <cstddef>
#include <cstdint>

#include "farverbs/model/qp.h"
#include "farverbs/proto/queue_pair.h"
#include "farverbs/proto/sge_walker.h"

namespace farverbs::proto {

enum class Verdict : uint8_t {
  kContinue,            // this step has nothing against it
  kDone,                // carried out
  kDamaged,             // the ICRC is wrong
  kDuplicate,           // seen before
  kGap,                 // packets before it are missing
  kNotReady,            // no receive is posted
  kInvalidRequest,      // an opcode, length or operation that can't be
  kAccessError,         // a key, range or right that does not hold
  kReceiveTooSmall,     // more bytes than the receive has room for
  kReceiveProtection,   // the receive's own memory can't be written
  kOperationalError,    // memory behind a valid key is gone
  kCompletionOverflow,  // the CQ has no room
};
constexpr const char* to_string(Verdict verdict) {
  constexpr const char* kNames[] = {"continue",
                                    "done",
                                    "damaged",
                                    "duplicate",
                                    "gap",
                                    "not ready",
                                    "invalid request",
                                    "access error",
                                    "receive too small",
                                    "receive protection",
                                    "operational error",
                                    "completion overflow"};
  return kNames[static_cast<size_t>(verdict)];
}

// A packet on its way through the steps.
struct Arrival {
  Time now;
  const wire::PacketView& packet;
  const PacketContext& context;
  PacketNumber number = 0;
  bool checked = false;  // the ICRC holds

  wire::OpKind kind() const { return packet.info->kind; }
  bool begins() const { return packet.info->begins(); }
  bool ends() const { return packet.info->ends(); }
};

class Inbound {
 public:
  explicit Inbound(model::Qp& qp) : qp_(qp) {}

  bool idle() const { return kind_ == Kind::kNone; }
  // The packet is one that the message in progress expects: its place follows from this state.
  bool continues(const Arrival& arrival) const;

  Verdict check_opcode_sequence(const Arrival& arrival) const;
  Verdict check_operation(const Arrival& arrival) const;  // rights that the QP grants
  Verdict check_resources(const Arrival& arrival);        // takes a receive if one is needed
  Verdict check_length(const Arrival& arrival) const;
  Verdict check_rkey(const Arrival& arrival);
  // Writes the payload; kContinue: it is there.
  Verdict place(const Arrival& arrival);
  // Moves on; at the message's end completes the receive, if it has one.
  Verdict finish(const Arrival& arrival);

  // Where MIDDLE packets that come next would go, one after another, and how many may. Given that
  // none of the steps has anything against them.
  struct Continuation {
    wire::Opcode opcode = wire::Opcode::rc_send_middle;
    std::byte* memory = nullptr;
    size_t packets = 0;
  };
  Continuation continuation();
  // So many of them have been written there.
  void placed(size_t packets);

  // Drops the message in progress. Its receive stays for the next one.
  void drop_message();
  bool has_receive() const { return has_receive_; }
  // Ends the receive in hand, if any, with an error.
  void fail_receive(model::CompletionStatus status);
  void reset();
  model::ReceiveWqe& scratch() { return receive_; }
  size_t memory_bytes() const;

 private:
  enum class Kind : uint8_t { kNone, kSend, kWrite };
  static Kind kind_of(const Arrival& arrival) {
    return arrival.kind() == wire::OpKind::send ? Kind::kSend : Kind::kWrite;
  }
  bool needs_receive(const Arrival& arrival) const;
  Verdict complete(const Arrival& arrival);

  model::Qp& qp_;
  model::ReceiveWqe receive_;
  SgeWalker walker_;
  // Of a WRITE.
  model::MemoryEntry* entry_ = nullptr;
  std::byte* memory_ = nullptr;
  MemoryKey key_;
  uint32_t length_ = 0;
  uint32_t received_ = 0;  // bytes of the message so far
  Kind kind_ = Kind::kNone;
  bool has_receive_ = false;
};

}  // namespace farverbs::proto
