// FarResponder: the receiving half of the far transport (docs/far-transport.md, section 4),
// sans-IO: places what arrives in any order, carries requests out in the order of their message
// numbers, and keeps what is to be answered. It knows nothing of packet numbers: whoever calls it
// acknowledges packets (kTaken), tells executed() and told() in its acknowledgements, and sends the
// responses.
//
//   on_request()                     a request packet of the peer
//   executed(), told()               for every acknowledgement
//   next_response(), acknowledged()  READ data and atomic results on their way to the peer
//   failed()                         the QP must go to the error state; flush() then
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "farverbs/proto/far_messages.h"
#include "farverbs/proto/far_placer.h"
#include "farverbs/proto/far_receives.h"
#include "farverbs/proto/queue_pair.h"
#include "farverbs/wire/syndrome.h"

namespace farverbs::proto {

class FarResponder {
 public:
  enum class Verdict : uint8_t {
    kTaken,    // acknowledge it
    kDropped,  // as if it had never come: there is no room for it
    kDamaged,  // the ICRC is wrong; as if it had never come
  };
  struct Told {
    wire::FarStatus status = wire::FarStatus::ok;
    uint8_t detail = 0;  // see wire::FarAck
    bool has_receive_limit = false;
    uint32_t receive_limit = 0;
  };
  // A READ or an atomic that has been carried out and not been acknowledged in whole.
  struct Response {
    uint32_t message = 0;
    bool atomic = false;
    uint64_t original = 0;  // atomics: the value before
    uint64_t address = 0;   // READ: of the first byte, as the peer names it
    MemoryKey key;
    uint32_t length = 0;        // bytes; atomics: 8
    uint32_t sent = 0;          // bytes handed out so far; the sender counts it up
    uint32_t acknowledged = 0;  // bytes
    bool begun = false;         // its first packet has been handed out; the sender sets it
    bool to_send() const { return sent < length || !begun; }
  };

  FarResponder(model::Qp& qp, const TransportConfig& config);
  ~FarResponder();
  FarResponder(const FarResponder&) = delete;
  FarResponder& operator=(const FarResponder&) = delete;

  void start();  // the QP becomes RTR: the first message is number 0
  void reset();  // the QP becomes RESET: forgets everything

  // WRITE, SEND, READ_REQUEST, COMPARE_SWAP or FETCH_ADD of the peer. Its packet number is
  // plausible; its ICRC is unchecked unless context.unchecked is nullptr.
  Verdict on_request(Time now, const wire::PacketView& packet, const PacketContext& context);

  // Takes packets from the front of a received burst that go on, in one size, with the message in
  // progress, in one go: WRITE or SEND with the packet numbers from `first` on, the next ones, all
  // but a message's last packet. 0 is always a right answer: then on_request() takes the first.
  struct RunTaken {
    size_t packets = 0;
    bool ack_request = false;  // of any of them
    wire::FarBase base;        // of the first; the others' asks for the same acknowledgements
  };
  RunTaken on_run(const ReceivedRun& run, PacketNumber first);

  // How many messages have been carried out (low 32 bits); after a refusal the number of the
  // message that was refused.
  uint32_t executed() const;
  Told told() const;
  // A message has begun to come and not all of it is there.
  bool awaits_more() const { return messages_.any(); }

  // The oldest response that is not handed out in whole; nullptr if there is none. Pointers are
  // good until the next call that is not const.
  Response* next_response();
  Response* find_response(uint32_t message);
  // `bytes` more of the response have arrived at the peer; each byte counts once, however often it
  // was sent. When all have, the response is forgotten; an atomic and an empty READ have one
  // packet.
  void acknowledged(uint32_t message, uint32_t bytes);
  // The memory behind a READ can't be read any more: the message is refused after all.
  void refuse_response(uint32_t message, wire::NakCode code);

  // A request was refused for good or a CQ overflowed: the QP must go to the error state. told()
  // stays; responses to earlier messages are still to be sent.
  bool failed() const;
  // What the failure means for the application, kDeviceFatal: nothing beyond the completion.
  model::AsyncEventType failure_event() const;
  // The QP is in the error state: receives in hand and queued are flushed in order.
  void flush();
  // A quiet time: gives back what nothing is kept in.
  void trim();
  size_t memory_bytes() const;  // of heap

 private:
  // A packet whose ICRC holds, on its way to its message.
  struct Arrival {
    uint64_t number;  // of the message
    const wire::PacketView& packet;
    bool last;  // its payload ends with the message's last byte
    uint32_t offset = 0;
    uint32_t end = 0;  // of its payload in the message
  };

  bool goes_on(const wire::PacketView& packet, const wire::FarBase& base) const;
  Verdict place_next(const wire::PacketView& packet, const PacketContext& context,
                     const wire::FarBase& base);
  Verdict take_whole(Arrival& arrival);
  bool write_whole(const wire::PacketView& packet);
  // To its message (far_take.cc).
  Verdict take(Arrival& arrival, FarMessage& message);
  Verdict take_write(Arrival& arrival, FarMessage& message);
  Verdict take_send(Arrival& arrival, FarMessage& message);
  Verdict take_read_or_atomic(const Arrival& arrival, FarMessage& message);
  bool extent(Arrival& arrival, const FarMessage& message, uint32_t offset) const;
  enum class Claim : uint8_t { kReady, kNotReady, kWrong };
  Claim claim_receive(uint64_t number, FarMessage& message);
  Verdict not_ready();
  bool waits_for_receive() const;
  Verdict place(const Arrival& arrival, FarMessage& message, uint32_t end);
  void note_last(const Arrival& arrival, FarMessage& message);
  Verdict fail(FarMessage& message, wire::NakCode code, model::AsyncEventType event,
               model::CompletionStatus receive_status = model::CompletionStatus::kSuccess);
  Verdict invalid(FarMessage& message) {
    return fail(message, wire::NakCode::invalid_request, model::AsyncEventType::kQpRequestError);
  }
  Verdict fail_placing(FarMessage& message, FarPlaced placed);

  // In order (far_execute.cc).
  void carry_out();
  void conclude(FarMessage& message);
  bool carry_out(FarMessage& message);
  bool complete_receive(FarMessage& message);
  bool start_read(FarMessage& message);
  bool execute_atomic(FarMessage& message);
  void refuse(const FarMessage& message);

  model::Qp& qp_;
  const TransportConfig& config_;
  FarMessages messages_;
  FarReceives receives_;
  FarPlacer placer_;
  std::vector<Response> responses_;  // by message
  uint32_t next_response_ = 0;       // those before it are handed out in whole
  uint32_t waiting_responses_ = 0;   // READs and atomics that have come and wait for their turn

  // Of the packet before, while its message is in progress.
  FarMessage* current_ = nullptr;
  uint64_t current_number_ = 0;
  uint32_t current_payload_ = 0;

  // A packet was dropped since its receive was not there: told until it comes again.
  bool not_ready_ = false;  // a message came that needs receive number not_ready_limit_ or later
  uint64_t not_ready_limit_ = 0;

  bool failed_ = false;
  bool flushed_ = false;
  uint32_t refused_message_ = 0;
  wire::NakCode refused_code_{};
  model::AsyncEventType failure_event_ = model::AsyncEventType::kDeviceFatal;
};

}  // namespace farverbs::proto
