// Qp: a queue pair as the verbs see it: type, state, attributes, its queues and what they refer to.
// The transport machines (proto) work on it. All but posting happens under the lock of the packet
// loop that owns the QP. Transitions and their attributes: qp_state.h.
#pragma once

#include <atomic>
#include <cstdint>

#include "farverbs/model/completion_queue.h"
#include "farverbs/model/memory.h"
#include "farverbs/model/types.h"
#include "farverbs/model/work_queues.h"

namespace farverbs::model {

// Counters of one QP that tools show.
struct QpCounters {
  uint64_t sent_packets = 0;
  uint64_t sent_payload_bytes = 0;
  uint64_t received_packets = 0;
  uint64_t received_payload_bytes = 0;
  uint64_t retransmitted_packets = 0;
  uint64_t retransmitted_bytes = 0;
  uint64_t timeouts = 0;
  uint64_t sequence_naks_sent = 0;
  uint64_t sequence_naks_received = 0;
  uint64_t rnr_naks_sent = 0;
  uint64_t rnr_naks_received = 0;
  uint64_t duplicates_received = 0;
  uint64_t dropped_packets = 0;           // arrived and refused without an answer
  uint64_t sent_repairs = 0;              // packets of redundancy
  uint64_t restored_packets = 0;          // lost, and made again from such of the peer
  uint64_t congestion_notifications = 0;  // CNPs that arrived
};

struct QpInit {
  QpType type = QpType::kRc;
  CompletionQueue* send_cq = nullptr;
  CompletionQueue* receive_cq = nullptr;
  ReceiveQueue* srq = nullptr;  // nullptr: a receive queue of its own
  QpCapabilities capabilities;
  bool signal_all = false;  // every send request completes visibly
  PdId pd = 0;
  void* context = nullptr;  // what async events name
};

struct Qp {
  Qp(const QpInit& init, Qpn number, MemoryTable& memory_table, AsyncEventSink* event_sink)
      : type(init.type),
        signal_all(init.signal_all),
        qpn(number),
        pd(init.pd),
        send_cq(init.send_cq),
        receive_cq(init.receive_cq),
        srq(init.srq),
        memory(memory_table),
        events(event_sink),
        context(init.context),
        send_queue(init.capabilities),
        receive_queue(init.capabilities.max_recv_wr, init.capabilities.max_recv_sge, false) {
    attributes.capabilities = init.capabilities;
  }

  QpType type;
  bool signal_all;
  // Written under the loop's lock; post reads it without.
  std::atomic<QpState> state{QpState::kReset};
  Qpn qpn;
  PdId pd;
  CompletionQueue* send_cq;
  CompletionQueue* receive_cq;
  ReceiveQueue* srq;
  MemoryTable& memory;
  AsyncEventSink* events;
  void* context;
  QpAttributes attributes;
  // The six reserved bits of the BTHs that it sends: 0, or what offers the far transport.
  uint8_t bth_reserved = 0;
  SendQueue send_queue;
  ReceiveQueue receive_queue;
  QpCounters counters;

  ReceiveQueue& receives() { return srq != nullptr ? *srq : receive_queue; }
  void raise(AsyncEventType type_of_event) {
    if (events != nullptr) events->on_async_event({type_of_event, context});
  }
};

}  // namespace farverbs::model
