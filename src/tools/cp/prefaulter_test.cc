#include "tools/cp/prefaulter.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <utility>

namespace farverbs::tools::copy {
namespace {

// A shared mapping's first writes set the file's time, whoever makes them.
TEST(Prefaulter, TouchesNothingThatIsForgotten) {
  constexpr uint64_t kLength = 32 << 20;
  constexpr uint64_t kPortion = 256 << 10;
  std::string name = std::filesystem::temp_directory_path() / "farverbs-prefault-XXXXXX";
  const int fd = ::mkstemp(name.data());
  ASSERT_GE(fd, 0);
  ::unlink(name.c_str());
  ASSERT_EQ(::ftruncate(fd, kLength), 0);
  const timespec times[2] = {{0, UTIME_OMIT}, {1'000'000, 5}};
  for (int round = 0; round < 5; ++round) {
    Prefaulter prefaulter;
    auto mapping = Mapping::map(fd, 0, kLength, true);
    ASSERT_TRUE(mapping.ok());
    const auto memory = std::make_shared<Mapping>(std::move(mapping).value());
    for (uint64_t at = 0; at < kLength; at += kPortion) {
      prefaulter.populate(memory, *memory, at, kPortion, fd, at);
    }
    prefaulter.forget(memory);
    ASSERT_EQ(::futimens(fd, times), 0);
    ::usleep(20'000);
    struct stat status;
    ASSERT_EQ(::fstat(fd, &status), 0);
    EXPECT_EQ(status.st_mtim.tv_sec, 1'000'000);
    EXPECT_EQ(status.st_mtim.tv_nsec, 5);
    EXPECT_EQ(memory.use_count(), 1);
  }
  ::close(fd);
}

}  // namespace
}  // namespace farverbs::tools::copy
