#include "farverbs/verbs/stats.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include <nlohmann/json.hpp>

#include "farverbs/verbs/state.h"
#include "farverbs/verbs/test_pair.h"

namespace farverbs::verbs {
namespace {

using nlohmann::json;

// The environment names a folder of the test's own.
class StatsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/farverbs-stats-XXXXXX";
    ASSERT_NE(::mkdtemp(name), nullptr);
    folder_ = name;
    ::setenv("FARVERBS_STATS", folder_.c_str(), 1);
  }
  void TearDown() override {
    ::unsetenv("FARVERBS_STATS");
    std::filesystem::remove_all(folder_);
  }
  static std::string read(const std::string& path) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
    const io::FileDescriptor fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
      return {};
    }
    std::string text;
    char part[4096];
    for (ssize_t n; (n = ::read(fd.get(), part, sizeof part)) > 0;) {
      text.append(part, static_cast<size_t>(n));
    }
    return text;
  }

  std::string folder_;
};

TEST_F(StatsTest, TellsOfQueuePairsAndTheirPath) {
  End a({}), b({});
  ASSERT_FALSE(a.device.stats_socket().empty());
  EXPECT_EQ(a.device.stats_socket().rfind(folder_, 0), 0u);
  must(a.qp.connect(b.qp.address()));
  must(b.qp.connect(a.qp.address()));
  const ScatterGatherElement sge = a.region.sge(0, 100'000);
  SendWorkRequest write;
  write.opcode = SendOpcode::kWrite;
  write.flags = model::kSignaled;
  write.sges = {&sge, 1};
  write.remote_address = b.region.address();
  write.remote_key = b.region.rkey();
  must(a.qp.post_send(write));
  WorkCompletion completion;
  ASSERT_EQ(a.cq.wait({&completion, 1}, kTestPatience), 1u);

  const json stats = json::parse(read(a.device.stats_socket()));
  EXPECT_EQ(stats["pid"], ::getpid());
  EXPECT_EQ(stats["device"]["address"], "127.0.0.1");
  EXPECT_GT(stats["device"]["sent_datagrams"], 0);
  ASSERT_EQ(stats["qps"].size(), 1u);
  const json& qp = stats["qps"][0];
  EXPECT_EQ(qp["qpn"], a.qp.qpn().value());
  EXPECT_EQ(qp["peer_qpn"], b.qp.qpn().value());
  EXPECT_EQ(qp["type"], "RC");
  EXPECT_EQ(qp["state"], "RTS");
  EXPECT_EQ(qp["counters"]["sent_payload_bytes"], 100'000);
  ASSERT_EQ(stats["paths"].size(), 1u);
  EXPECT_EQ(qp["path"], stats["paths"][0]["id"]);
  EXPECT_EQ(stats["paths"][0]["peer"], "127.0.0.1:4791");
}

TEST_F(StatsTest, AQueuePairThatIsNotConnectedHasNoPath) {
  End a({});
  const json stats = json::parse(read(a.device.stats_socket()));
  EXPECT_EQ(stats["qps"][0]["state"], "RESET");
  EXPECT_FALSE(stats["qps"][0].contains("path"));
}

TEST_F(StatsTest, TheSocketDiesWithTheDevice) {
  std::string path;
  {
    End a({});
    path = a.device.stats_socket();
    EXPECT_TRUE(std::filesystem::exists(path));
    // A reader that leaves at once, and one that never reads, harm nobody.
    (void)read(path);
  }
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_EQ(read(path), "");
}

TEST_F(StatsTest, OffUnlessSomebodyAsks) {
  ::unsetenv("FARVERBS_STATS");
  End quiet({});
  EXPECT_EQ(quiet.device.stats_socket(), "");
  ::setenv("FARVERBS_STATS", "0", 1);
  End zero({});
  EXPECT_EQ(zero.device.stats_socket(), "");
}

TEST_F(StatsTest, AFolderOfSomebodyElseIsNotUsed) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a folder away";
  ASSERT_EQ(::chown(folder_.c_str(), 12'345, 12'345), 0);
  End a({});
  EXPECT_EQ(a.device.stats_socket(), "");
}

}  // namespace
}  // namespace farverbs::verbs
