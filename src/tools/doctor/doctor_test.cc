#include "tools/doctor/doctor.h"

#include <gtest/gtest.h>

#include <set>

#include "tools/command_line.h"
#include "tools/doctor/finding.h"
#include "tools/doctor/system_file.h"

namespace farverbs::tools {
namespace {

using doctor::Finding;
using doctor::Status;

TEST(Doctor, OnlyAFailureMakesTheMachineUnfit) {
  EXPECT_TRUE(doctor::is_fit({{"a", Status::kOk, "", ""}, {"b", Status::kWarn, "", ""}}));
  EXPECT_FALSE(doctor::is_fit({{"a", Status::kOk, "", ""}, {"b", Status::kFail, "", ""}}));
}

TEST(Doctor, TextShowsAdviceUnderItsFinding) {
  const std::string text = doctor::to_text(
      {{"good", Status::kOk, "fine", ""}, {"poor", Status::kWarn, "slow", "do this"}});
  EXPECT_EQ(text,
            "ok    good  fine\n"
            "warn  poor  slow\n"
            "            -> do this\n"
            "\nFarverbs works here; 1 thing could be better.\n");
}

TEST(Doctor, JsonHasTheSchemaThatProgramsRead) {
  const Json json = doctor::to_json({{"x", Status::kFail, "found", "advice"}});
  EXPECT_EQ(json["tool"], "doctor");
  EXPECT_EQ(json["fit"], false);
  ASSERT_EQ(json["findings"].size(), 1u);
  EXPECT_EQ(json["findings"][0]["check"], "x");
  EXPECT_EQ(json["findings"][0]["status"], "fail");
  EXPECT_EQ(json["findings"][0]["found"], "found");
  EXPECT_EQ(json["findings"][0]["advice"], "advice");
}

TEST(Doctor, EveryProblemComesWithAdvice) {
  std::set<std::string> names;
  for (const auto& probe :
       {doctor::probe_sockets, doctor::probe_privileges, doctor::probe_machine}) {
    for (const Finding& f : probe()) {
      EXPECT_TRUE(names.insert(f.check).second) << f.check << " twice";
      EXPECT_FALSE(f.found.empty()) << f.check;
      EXPECT_EQ(f.status == Status::kOk, f.advice.empty()) << f.check << ": " << f.found;
    }
  }
  for (const char* check : {"udp", "udp_gso", "udp_gro", "ecn", "port_sharing", "port_4791",
                            "receive_buffer", "send_buffer", "interface_lo", "namespaces", "tun",
                            "af_xdp", "cores", "cpu", "clock", "timer", "tcp_congestion_control"}) {
    EXPECT_TRUE(names.count(check)) << check;
  }
}

TEST(Doctor, ExperimentsLeaveThisProcessAlone) {
  EXPECT_EQ(doctor::in_child([] { return 0; }), 0);
  EXPECT_EQ(doctor::in_child([] { return EPERM; }), EPERM);
  EXPECT_EQ(doctor::in_child([]() -> int { ::abort(); }), EIO);
}

TEST(Doctor, CommandPrintsAndSetsTheExitCode) {
  testing::internal::CaptureStdout();
  const char* arguments[] = {"farverbs", "doctor", "--json"};
  const int code = run_command_line(3, arguments, {{"doctor", register_doctor}});
  const auto json = parse_json_object(testing::internal::GetCapturedStdout());
  ASSERT_TRUE(json.ok());
  EXPECT_EQ(code == kExitOk, (*json)["fit"].get<bool>());
}

}  // namespace
}  // namespace farverbs::tools
