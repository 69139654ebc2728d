// Scenario: everything a seed decides (topology, links, faults, work) and its run. The same seed
// always gives the same run, so a failure is one line that replays it.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>

#include "farverbs/sim/conversation.h"

namespace farverbs::sim {

struct ScenarioReport {
  uint64_t seed = 0;
  std::string failure;      // empty: all promises held
  std::string description;  // what the seed drew, for a person
  uint64_t steps = 0;
  uint64_t requests = 0;
  uint64_t broken = 0;  // conversations that ended in an error completion, as they may
  uint64_t killed = 0;  // processes that were killed
  Duration virtual_time;
};

ScenarioReport run_scenario(uint64_t seed);

// One RC QP that WRITEs (or READs) `total_bytes` over a clean link; the share of the link's payload
// capacity that it reached in virtual time.
struct BulkReport {
  bool completed = false;
  double share_of_capacity = 0;
  Duration elapsed;
  uint64_t retransmitted_packets = 0;
  uint64_t lost_packets = 0;  // from a to b, in the queue too
  uint64_t timeouts = 0;
  uint64_t marked_packets = 0;
  std::string phase;       // of the sender's controller, at the end
  Duration longest_pause;  // between two completions
  bool followed = false;   // the other side sends to the new address
};
struct BulkSpec {
  BitRate rate;
  Duration round_trip;
  double queue_bdp = 1;  // bottleneck queue in bandwidth-delay products
  double loss = 0;
  uint64_t total_bytes = 0;
  uint32_t message_bytes = 1 << 20;
  uint32_t depth = 64;
  uint64_t mark_bytes = 0;  // ECN, see LinkSpec
  bool read = false;
  bool far = false;  // the far transport
  double burst_loss_length = 0;
  double reorder = 0;  // share of packets that come so much later:
  Duration reorder_delay;
  bool reorder_up_to = false;  // ... or less
  model::PathMtu path_mtu = model::PathMtu::k1024;
  uint32_t max_window_packets = 16'384;
  uint64_t seed = 1;
  Duration measure_after;        // the share counts from here on: the ramp is another matter
  bool until_last_post = false;  // ... and ends when the last request is posted: no tail either
  // The address translator before one side forgets it (zero: does not) and knows it anew by another
  // port, or another address.
  Duration rebind_at;
  bool rebind_active = false;  // the side that posts
  bool rebind_address = false;
  std::FILE* trace = nullptr;  // a line of figures every trace_every of virtual time
  Duration trace_every = Duration::milliseconds(250);
};
BulkReport run_bulk(const BulkSpec& spec);

}  // namespace farverbs::sim
