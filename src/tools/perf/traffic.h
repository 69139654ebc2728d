// Traffic: keeps messages flowing over the queue pairs of one side and counts what completes. The
// sending side keeps up to `depth` messages outstanding per queue pair, round-robin, posted as
// lists of which the last request is signaled, so that posting and polling cost what they cost a
// careful application. The receiving side (of SENDs) keeps receives posted, also in lists.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "farverbs/base/result.h"
#include "tools/perf/endpoint.h"
#include "tools/perf/options.h"

namespace farverbs::tools::perf {

class Traffic {
 public:
  // All three outlive the traffic. `peer` is how messages call the other side.
  Traffic(LocalEndpoint& local, const RemoteEndpoint& remote, const Options& options,
          std::string peer);

  // Fills the receive queues; before the peer begins to send.
  Result<void> post_receives();
  // From now on step() sends, until there have been `messages` of them; the last of a run of known
  // length may be shorter.
  void start_sending(uint64_t messages = UINT64_MAX, uint64_t last_size = 0);
  void stop_sending() { limit_ = posted_; }

  // Posts what may be posted, then takes completions. `patience`: how long to wait for one; zero
  // only looks.
  Result<void> step(Duration patience);

  uint64_t sent() const { return sent_; }          // acknowledged
  uint64_t received() const { return received_; }  // SENDs of the peer
  uint64_t sent_bytes() const {
    const uint64_t bytes = sent_ * options_.size;
    return last_size_ > 0 && sent_ == limit_ ? bytes - options_.size + last_size_ : bytes;
  }
  bool drained() const { return sent_ == posted_; }
  bool done() const { return sent_ == limit_; }

 private:
  static constexpr size_t kBatch = 64;
  static constexpr uint64_t kReceiveTag = UINT64_C(1) << 63;

  Result<void> post_sends();
  Result<void> post_list(uint32_t qp, uint32_t count);
  Result<void> post_receive_list(uint32_t qp, uint32_t count);
  Result<void> take(const verbs::WorkCompletion& completion);
  void make_ready(uint32_t qp);

  LocalEndpoint& local_;
  const RemoteEndpoint& remote_;
  const Options& options_;
  std::string peer_;

  uint64_t limit_ = 0;      // messages to post altogether
  uint64_t last_size_ = 0;  // of the message that reaches the limit; 0: as the others
  uint64_t posted_ = 0;
  uint64_t sent_ = 0;
  uint64_t received_ = 0;
  uint64_t send_slot_ = 0;
  uint64_t receive_slot_ = 0;
  uint32_t repost_at_ = 1;

  std::vector<uint32_t> outstanding_;  // per queue pair
  std::vector<uint32_t> consumed_;     // receives to post again, per queue pair
  // Queue pairs that may post, in the order of their turns: a ring of as many places as there are
  // queue pairs, each of which is in it at most once.
  std::vector<uint32_t> ready_;
  std::vector<bool> is_ready_;
  size_t ready_head_ = 0;
  size_t ready_count_ = 0;

  std::vector<verbs::SendWorkRequest> requests_;
  std::vector<verbs::ReceiveWorkRequest> receives_;
  std::vector<verbs::ScatterGatherElement> sges_;
  std::vector<verbs::ScatterGatherElement> receive_sges_;
};

// A request of the measurement's kind, without its SGEs and without flags but `inline`.
verbs::SendWorkRequest make_request(const Options& options, const RemoteEndpoint& remote,
                                    uint64_t slot);

}  // namespace farverbs::tools::perf
