// Conversation: two connected RC QPs whose applications post random work at each other, and the
// checks of what RDMA promises: memory contents equal what the requests say in their order; every
// message arrives once and in order; every request completes once and in order, none is lost;
// atomics happen exactly once; after an error the rest is flushed in order.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "farverbs/sim/world.h"

namespace farverbs::sim {

struct ConversationSpec {
  uint32_t requests_per_side = 40;
  uint32_t max_message_bytes = 8'192;
  uint32_t depth = 8;     // outstanding requests
  uint32_t receives = 8;  // posted receives at most; fewer now and then, so that RNR happens
  double receive_starvation = 0.2;
  double signaled = 0.7;
  bool shared_receives = false;  // receives come from an SRQ
  ConnectSpec connection;
};

class Conversation {
 public:
  Conversation(World& world, Host& a, Host& b, const ConversationSpec& spec, uint64_t seed);
  ~Conversation();

  // The applications' turn: poll, check, post.
  void act();
  // All work of both sides is done and checked, or the QPs failed and everything was flushed.
  bool done() const;
  // What was broken; empty if nothing. Checked on the way and, for memory, when done.
  const std::string& failure() const { return failure_; }
  void check_memory();
  // A QP ended in an error completion (allowed when faults outlast the retries).
  bool broken() const { return a_.broken || b_.broken; }
  // The peer's process was killed: side b is gone and a must find out by itself.
  void peer_died();
  std::string describe() const;
  Host* passive_host() { return b_.host; }
  uint64_t posted() const { return a_.posted + b_.posted; }

 private:
  enum class Kind : uint8_t {
    kSend,
    kSendImmediate,
    kWrite,
    kWriteImmediate,
    kRead,
    kFetchAdd,
    kCompareSwap
  };
  struct Request {
    uint64_t id;
    Kind kind;
    bool signaled;
    uint32_t length;
    uint32_t slot;
    uint64_t offset;          // in the peer's area
    uint64_t expected_value;  // atomics: the value it must return
  };
  struct Message {
    uint64_t pattern;
    uint32_t length;
    bool immediate;
    bool write;  // WRITE with immediate: nothing lands in the receive buffer
    uint32_t immediate_value;
  };
  struct Side {
    Host* host = nullptr;
    engine::LoopQp* qp = nullptr;
    std::unique_ptr<model::CompletionQueue> cq;
    std::unique_ptr<model::ReceiveQueue> srq;
    std::vector<std::byte> target;    // peers write here
    std::vector<std::byte> constant;  // peers read here
    std::vector<uint64_t> counters;   // peers' atomics
    std::vector<std::byte> scratch;   // sources and READ destinations, one slot per request
    std::vector<std::byte> inbox;     // receive buffers
    model::MemoryEntry* target_mr = nullptr;
    model::MemoryEntry* constant_mr = nullptr;
    model::MemoryEntry* counters_mr = nullptr;
    model::MemoryEntry* scratch_mr = nullptr;
    model::MemoryEntry* inbox_mr = nullptr;
    // What this side's requests must make of the peer's memory.
    std::vector<std::byte> shadow;
    std::vector<uint64_t> shadow_counters;
    std::deque<Request> outstanding;
    std::vector<uint32_t> free_slots;
    std::deque<Message> expected;  // messages on their way to this side
    std::vector<uint32_t> free_receives;
    uint64_t next_id = 0;
    uint64_t next_message = 0;
    uint32_t posted = 0;
    bool broken = false;
    bool dead = false;
  };

  void set_up(Side& side, Host& host);
  void act(Side& side, Side& peer);
  void post_receives(Side& side);
  void post_request(Side& side, Side& peer);
  void on_completion(Side& side, Side& peer, const model::WorkCompletion& wc);
  void on_receive(Side& side, const model::WorkCompletion& wc);
  void on_request_done(Side& side, const model::WorkCompletion& wc);
  void finish(Side& side, const Request& request);
  void fail(const Side& side, const std::string& what);
  bool side_done(const Side& side, const Side& peer) const;

  World& world_;
  ConversationSpec spec_;
  Prng prng_;
  Side a_;
  Side b_;
  std::string failure_;
};

// The byte at `index` of a message or area named by `pattern`.
std::byte pattern_byte(uint64_t pattern, uint64_t index);

}  // namespace farverbs::sim
