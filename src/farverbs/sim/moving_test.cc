// A translator forgets one side of a connection in the midst of a transfer, or a side moves to
// another address: no error, a short pause. docs/far-transport.md section 7.
#include <gtest/gtest.h>

#include "farverbs/sim/scenario.h"

namespace farverbs::sim {
namespace {

BulkSpec home_line() {
  BulkSpec spec;
  spec.far = true;
  spec.rate = BitRate::bits_per_second(100'000'000);
  spec.round_trip = Duration::milliseconds(40);
  spec.loss = 0.002;
  spec.total_bytes = uint64_t{30} << 20;
  spec.message_bytes = 256 << 10;
  spec.rebind_at = Duration::milliseconds(900);
  return spec;
}

struct Case {
  const char* name;
  bool read;
  bool active;
  bool address;
};

TEST(Moving, ATransferGoesOn) {
  constexpr Case kCases[] = {
      {"the writer's port", false, true, false},   {"the target's port", false, false, false},
      {"the writer's address", false, true, true}, {"the target's address", false, false, true},
      {"the reader's port", true, true, false},    {"the source's address", true, false, true},
      {"the reader's address", true, true, true},  {"the source's port", true, false, false},
  };
  for (const Case& c : kCases) {
    BulkSpec spec = home_line();
    spec.read = c.read;
    spec.rebind_active = c.active;
    spec.rebind_address = c.address;
    const BulkReport report = run_bulk(spec);
    EXPECT_TRUE(report.completed) << c.name;
    EXPECT_TRUE(report.followed) << c.name;
    // Who sends is heard at once; who only receives asks after a second.
    EXPECT_LT(report.longest_pause.ns(), Duration::milliseconds(1'900).ns()) << c.name;
    std::printf("%-22s pause %6.0f ms  in all %5.2f s\n", c.name,
                report.longest_pause.to_seconds() * 1e3, report.elapsed.to_seconds());
  }
}

}  // namespace
}  // namespace farverbs::sim
