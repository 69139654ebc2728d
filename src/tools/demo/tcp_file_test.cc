#include "tools/demo/tcp_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>

namespace farverbs::tools::demo {
namespace {

class TcpFile : public testing::Test {
 protected:
  TcpFile() {
    std::string name = std::filesystem::temp_directory_path() / "tcp-file-XXXXXX";
    folder_ = ::mkdtemp(name.data());
    std::ofstream file(folder_ / "original", std::ios::binary);
    for (int i = 0; i < 3'000'000; ++i) file.put(static_cast<char>(i * 31 + i / 257));
  }
  ~TcpFile() override { std::filesystem::remove_all(folder_); }

  // Both ends on loopback; gives the receiver's result.
  Result<void> copy(const std::string& congestion, uint16_t port) {
    const Endpoint endpoint{IpAddress::v4(0x7f000001), port};
    Result<void> sent;
    std::thread sender([&] { sent = send_file(endpoint, folder_ / "original", congestion); });
    // A visitor that only looks whether anybody listens must not be served.
    const auto probe = connect_patiently(endpoint, Duration::seconds(5));
    EXPECT_TRUE(probe.ok());
    if (probe.ok()) ::close(*probe);
    Result<void> received = receive_file(endpoint, folder_ / "copy", Duration::seconds(5));
    sender.join();
    EXPECT_TRUE(sent.ok());
    return received;
  }

  std::string read(const char* name) {
    std::ifstream file(folder_ / name, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  std::filesystem::path folder_;
};

TEST_F(TcpFile, CopiesEveryByte) {
  const Result<void> result = copy("cubic", 27472);
  ASSERT_TRUE(result.ok()) << result.error().message;
  EXPECT_TRUE(read("copy") == read("original"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "copy.partial"));
}

TEST_F(TcpFile, SaysWhenTheKernelLacksTheCongestionControl) {
  const Result<void> result = copy("nonesuch", 27473);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, ENOPROTOOPT);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "copy"));
}

TEST_F(TcpFile, GivesUpWhenNobodyListens) {
  const auto result =
      connect_patiently({IpAddress::v4(0x7f000001), 27474}, Duration::milliseconds(50));
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, ECONNREFUSED);
}

}  // namespace
}  // namespace farverbs::tools::demo
