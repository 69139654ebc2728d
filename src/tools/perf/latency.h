// LatencyEnd: one side of a measurement that has one message in flight. Either a ping-pong (SENDs
// answered by SENDs, or WRITEs answered by WRITEs that both sides see by watching the last byte),
// or single requests from post to completion.
#pragma once

#include <cstdint>
#include <string>

#include "farverbs/base/result.h"
#include "tools/perf/endpoint.h"
#include "tools/perf/options.h"

namespace farverbs::tools::perf {

// True if messages are answered by messages; false if their completion is the answer.
inline bool is_ping_pong(const Options& o) {
  return o.mode == Mode::kLatency && (o.op == Op::kSend || (o.op == Op::kWrite && !o.target_idle));
}

class LatencyEnd {
 public:
  // All three outlive it. `peer` is how messages call the other side.
  LatencyEnd(LocalEndpoint& local, const RemoteEndpoint& remote, const Options& options,
             std::string peer);

  // Before the peer begins.
  Result<void> post_receives();
  // Posts the next message; nothing of the one before is in flight.
  Result<void> post();
  // Takes completions, waiting up to `patience` for one (zero: only looks).
  Result<void> look(Duration patience);

  // Messages of the peer that have arrived, in a ping-pong.
  uint64_t arrived() const;
  // Requests of ours that have completed, where the completion is the answer.
  uint64_t completed() const { return completed_; }

 private:
  static constexpr uint64_t kReceiveTag = UINT64_C(1) << 63;
  // A ping-pong asks for a completion now and then only, to get back the room in the queue.
  static constexpr uint64_t kSignalEvery = 32;

  Result<void> post_receive(uint64_t number);
  uint64_t slot_of(uint64_t number) const { return number % options_.slots(); }
  std::byte* last_byte(std::byte* area, uint64_t number) const;

  LocalEndpoint& local_;
  const RemoteEndpoint& remote_;
  const Options& options_;
  std::string peer_;
  uint64_t posted_ = 0;
  uint64_t completed_ = 0;
  uint64_t received_ = 0;  // SEND ping-pong
  uint64_t receives_posted_ = 0;
  mutable uint64_t seen_ = 0;  // WRITE ping-pong: messages recognised in memory
};

}  // namespace farverbs::tools::perf
