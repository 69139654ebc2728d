// Emulator: carries packets between two TUN devices through two Links. One thread; while packets
// flow it works in ticks (reads all that arrived, gives each wire packet its fate, writes what is
// due merged as a NIC would), and when they do not it sleeps until one arrives or falls due.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "farverbs/base/time.h"
#include "tools/lab/arena.h"
#include "tools/lab/control.h"
#include "tools/lab/delay_line.h"
#include "tools/lab/link.h"
#include "tools/lab/merger.h"
#include "tools/lab/stats.h"

namespace farverbs::tools::lab {

// One end of the path, descriptors owned by the caller: a non-blocking TUN device with a vnet
// header, and its namespace's /proc/net/dev.
struct End {
  int tun = -1;
  int netdev = -1;
};

class Emulator {
 public:
  // Follows `control`, if there is one, within 100 ms; memory stays what `config` asks for.
  Emulator(const EmulatorConfig& config, End a, End b, SharedStats* shared,
           const SharedConfig* control = nullptr);
  ~Emulator();
  Emulator(const Emulator&) = delete;
  Emulator& operator=(const Emulator&) = delete;

  // Runs until `stop` (set by a signal handler) or until a device is gone; publishes statistics
  // every 100 ms and at the end. False if a device failed.
  bool run(const std::atomic<bool>& stop);

 private:
  struct Direction {
    Direction(const LinkConfig& config, End from_end, End to_end, DirectionStats* counters);
    Link link;
    End from;
    End to;
    Arena arena;
    DelayLine line;
    Merger merger;
    std::unique_ptr<std::byte[]> scratch;  // a corrupted packet, which must not touch the original
    std::vector<InFlight> held;            // what the merger points at
    DirectionStats* stats;
    Time last_read;
    uint64_t device_drops_before = 0;
  };

  // Both say whether they found work.
  bool drain(Direction& d, Time now);
  bool release(Direction& d, Time now);
  void accept(Direction& d, Super* super, uint32_t bytes, Time arrival);
  void flush(Direction& d);
  void write_corrupted(Direction& d, const InFlight& packet);
  void write(Direction& d, std::span<const iovec> pieces);
  void obey();
  void wait(bool busy, const std::atomic<bool>& stop);
  void wait_for_packet(Time until);
  void note_lateness();
  void publish(bool final);

  EmulatorConfig config_;
  SharedStats* shared_;
  const SharedConfig* control_;
  uint32_t control_version_ = 0;
  LabStats stats_;
  Time started_;
  Time next_publish_;
  Time tick_at_;
  int timer_ = -1;
  bool failed_ = false;
  Direction a_to_b_;
  Direction b_to_a_;
};

}  // namespace farverbs::tools::lab
