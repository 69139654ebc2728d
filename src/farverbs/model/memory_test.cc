#include "farverbs/model/memory.h"

#include <gtest/gtest.h>

#include <set>
#include <thread>

namespace farverbs::model {
namespace {

constexpr PdId kPd = 7;
constexpr Qpn kQp{0x123456};
constexpr uint32_t kEverything = kLocalWrite | kRemoteWrite | kRemoteRead | kRemoteAtomic | kMwBind;
constexpr uint64_t kIova = 0x1000;

struct MemoryTest : testing::Test {
  MemoryEntry* region(uint32_t access = kEverything) {
    return table.register_region(kPd, bytes, sizeof bytes, kIova, access).value();
  }
  MemoryVerdict remote(MemoryKey key, uint32_t access, uint64_t address, uint64_t length,
                       Qpn qpn = kQp) {
    return table.resolve(key, kPd, access, address, length, true, qpn).verdict;
  }
  static MemoryKey key_of(const MemoryEntry* entry) { return MemoryKey(entry->key.load()); }

  SeededEntropy entropy{1};
  MemoryTable table{entropy};
  std::byte bytes[256];
};

TEST_F(MemoryTest, FindsARegionByItsKeyUntilItIsDeregistered) {
  MemoryEntry* entry = region();
  const MemoryKey key = key_of(entry);
  EXPECT_NE(key.value(), 0u);
  EXPECT_EQ(entry->handle_key, key);
  EXPECT_EQ(table.find(key), entry);
  EXPECT_TRUE(entry->holds(key));
  EXPECT_EQ(table.find(MemoryKey(key.value() ^ 1)), nullptr);
  EXPECT_EQ(table.find(MemoryKey{}), nullptr);
  EXPECT_EQ(table.size(), 1u);
  ASSERT_TRUE(table.deregister(entry).ok());
  EXPECT_EQ(table.find(key), nullptr);
  EXPECT_FALSE(entry->holds(key));
  EXPECT_FALSE(entry->holds(MemoryKey{}));
  EXPECT_EQ(table.size(), 0u);
}

TEST_F(MemoryTest, RightsChangeUnderTheSameKey) {
  MemoryEntry* entry = table.register_region(kPd, bytes, sizeof bytes, 0x1000, kLocalWrite).value();
  const MemoryKey key = key_of(entry);
  EXPECT_NE(remote(key, kRemoteWrite, 0x1000, 1), MemoryVerdict::kOk);
  EXPECT_FALSE(table.change_access(entry, kRemoteWrite).ok());  // without local write
  EXPECT_FALSE(table.change_access(entry, kLocalWrite | kZeroBased).ok());
  EXPECT_NE(remote(key, kRemoteWrite, 0x1000, 1), MemoryVerdict::kOk);
  ASSERT_TRUE(table.change_access(entry, kLocalWrite | kRemoteWrite).ok());
  EXPECT_EQ(remote(key, kRemoteWrite, 0x1000, 1), MemoryVerdict::kOk);
  EXPECT_EQ(key_of(entry), key);
}

TEST_F(MemoryTest, KeysStayFindableThroughGrowthAndDiffer) {
  std::vector<MemoryEntry*> all;
  std::set<uint32_t> keys;
  for (int i = 0; i < 5000; ++i) {
    all.push_back(region());
    keys.insert(key_of(all.back()).value());
  }
  EXPECT_EQ(keys.size(), all.size());
  EXPECT_EQ(keys.count(0), 0u);
  for (MemoryEntry* entry : all) ASSERT_EQ(table.find(key_of(entry)), entry);
  for (size_t i = 0; i < all.size(); i += 2) ASSERT_TRUE(table.deregister(all[i]).ok());
  for (size_t i = 1; i < all.size(); i += 2) ASSERT_EQ(table.find(key_of(all[i])), all[i]);
  EXPECT_EQ(table.size(), all.size() / 2);
}

TEST_F(MemoryTest, BoundsAreExactAndDoNotWrap) {
  const MemoryKey key = key_of(region());
  EXPECT_EQ(remote(key, kRemoteRead, kIova, 256), MemoryVerdict::kOk);
  EXPECT_EQ(remote(key, kRemoteRead, kIova, 257), MemoryVerdict::kOutOfBounds);
  EXPECT_EQ(remote(key, kRemoteRead, kIova - 1, 1), MemoryVerdict::kOutOfBounds);
  EXPECT_EQ(remote(key, kRemoteRead, kIova + 255, 1), MemoryVerdict::kOk);
  EXPECT_EQ(remote(key, kRemoteRead, kIova + 255, 2), MemoryVerdict::kOutOfBounds);
  EXPECT_EQ(remote(key, kRemoteRead, kIova + 256, 1), MemoryVerdict::kOutOfBounds);
  EXPECT_EQ(remote(key, kRemoteRead, kIova + 1, UINT64_MAX), MemoryVerdict::kOutOfBounds);
  EXPECT_EQ(remote(key, kRemoteRead, UINT64_MAX, 2), MemoryVerdict::kOutOfBounds);
  const MemoryAccess access = table.resolve(key, kPd, kRemoteWrite, kIova + 10, 5, true, kQp);
  EXPECT_EQ(access.memory, bytes + 10);
  EXPECT_EQ(access.entry, table.find(key));
}

TEST_F(MemoryTest, LengthZeroIsNotChecked) {
  const MemoryAccess access = table.resolve(MemoryKey(99), kPd + 1, kRemoteWrite, 5, 0, true, kQp);
  EXPECT_EQ(access.verdict, MemoryVerdict::kOk);
}

TEST_F(MemoryTest, ARegionAtTheEndOfTheAddressSpaceIsUsable) {
  const uint64_t last = UINT64_MAX - sizeof bytes + 1;
  MemoryEntry* entry = table.register_region(kPd, bytes, sizeof bytes, last, kRemoteRead).value();
  EXPECT_EQ(remote(key_of(entry), kRemoteRead, last, 256), MemoryVerdict::kOk);
  EXPECT_EQ(remote(key_of(entry), kRemoteRead, UINT64_MAX, 1), MemoryVerdict::kOk);
  EXPECT_EQ(remote(key_of(entry), kRemoteRead, UINT64_MAX, 2), MemoryVerdict::kOutOfBounds);
}

TEST_F(MemoryTest, ZeroBasedRegionsStartAtZero) {
  const MemoryKey key = key_of(region(kLocalWrite | kRemoteRead | kZeroBased));
  EXPECT_EQ(table.resolve(key, kPd, kRemoteRead, 3, 4, true, kQp).memory, bytes + 3);
  EXPECT_EQ(remote(key, kRemoteRead, kIova, 1), MemoryVerdict::kOutOfBounds);
}

TEST_F(MemoryTest, PdAndRightsAreChecked) {
  const MemoryKey key = key_of(region(kLocalWrite | kRemoteRead));
  EXPECT_EQ(remote(key, kRemoteWrite, kIova, 1), MemoryVerdict::kNoAccess);
  EXPECT_EQ(remote(key, kRemoteRead | kRemoteAtomic, kIova, 8), MemoryVerdict::kNoAccess);
  EXPECT_EQ(table.resolve(key, kPd + 1, kRemoteRead, kIova, 1, true, kQp).verdict,
            MemoryVerdict::kWrongPd);
  EXPECT_EQ(table.resolve(key, kPd, 0, kIova, 1, false, kQp).verdict, MemoryVerdict::kOk);
  const MemoryKey read_only = key_of(region(0));
  EXPECT_EQ(table.resolve(read_only, kPd, 0, kIova, 1, false, kQp).verdict, MemoryVerdict::kOk);
  EXPECT_EQ(table.resolve(read_only, kPd, kLocalWrite, kIova, 1, false, kQp).verdict,
            MemoryVerdict::kNoAccess);
}

TEST_F(MemoryTest, RegistrationsThatMakeNoSenseAreRefusedByName) {
  const auto message = [&](void* memory, uint64_t length, uint64_t iova, uint32_t access) {
    return table.register_region(kPd, memory, length, iova, access).error().message;
  };
  EXPECT_EQ(message(bytes, 0, 0, 0), "length is 0");
  EXPECT_EQ(message(nullptr, 1, 0, 0), "addr is null");
  EXPECT_EQ(message(bytes, 1, 0, kRemoteWrite),
            "access has remote write or remote atomic without local write; add local write");
  EXPECT_EQ(message(bytes, 1, 0, kRemoteAtomic),
            "access has remote write or remote atomic without local write; add local write");
  EXPECT_EQ(message(bytes, UINT64_MAX, 0, 0), "addr + length passes the end of the address space");
  EXPECT_EQ(message(bytes, 2, UINT64_MAX, 0), "iova + length passes 2^64");
  EXPECT_EQ(message(bytes, 2, 0, 1 << 10), "access has unknown bits, got 1024");
}

TEST_F(MemoryTest, Type1WindowsBindRebindAndUnbind) {
  MemoryEntry* base = region();
  MemoryEntry* window = table.allocate_window(kPd, MemoryKind::kWindow1).value();
  EXPECT_NE(window->handle_key.value(), 0u);
  EXPECT_EQ(table.find(window->handle_key), nullptr) << "not bound yet";

  const MemoryKey first =
      table.bind_window(window, kPd, key_of(base), kIova + 16, 32, kRemoteRead, kQp, 0).value();
  EXPECT_EQ(table.resolve(first, kPd, kRemoteRead, kIova + 16, 32, true, Qpn{1}).memory, bytes + 16)
      << "any QP of the PD may use a type 1 window";
  EXPECT_EQ(remote(first, kRemoteRead, kIova + 15, 1), MemoryVerdict::kOutOfBounds);
  EXPECT_EQ(remote(first, kRemoteRead, kIova + 16, 33), MemoryVerdict::kOutOfBounds);
  EXPECT_EQ(remote(first, kRemoteWrite, kIova + 16, 1), MemoryVerdict::kNoAccess);
  EXPECT_EQ(table.resolve(first, kPd, 0, kIova + 16, 1, false, kQp).verdict,
            MemoryVerdict::kUnknownKey)
      << "a window has no L_Key";
  EXPECT_EQ(table.deregister(base).error().code, EBUSY);
  EXPECT_EQ(table.invalidate(first, kPd, kQp), MemoryVerdict::kNoAccess);

  const MemoryKey second =
      table.bind_window(window, kPd, key_of(base), kIova, 8, kRemoteWrite, kQp, 0).value();
  EXPECT_NE(first, second);
  EXPECT_EQ(table.find(first), nullptr);
  EXPECT_EQ(remote(second, kRemoteWrite, kIova, 8), MemoryVerdict::kOk);
  EXPECT_EQ(base->bound_windows.load(), 1u);

  ASSERT_TRUE(table.bind_window(window, kPd, MemoryKey{}, 0, 0, 0, kQp, 0).ok());
  EXPECT_EQ(table.find(second), nullptr);
  EXPECT_TRUE(table.deregister(base).ok());
  EXPECT_TRUE(table.free_window(window).ok());
  EXPECT_EQ(table.size(), 0u);
}

TEST_F(MemoryTest, Type2WindowsBelongToTheirQpAndKeepTheirUpperKeyBits) {
  MemoryEntry* base = region();
  MemoryEntry* window = table.allocate_window(kPd, MemoryKind::kWindow2).value();
  const uint32_t told = window->handle_key.value();
  const auto tag = static_cast<uint8_t>(told + 1);
  const MemoryKey key =
      table.bind_window(window, kPd, key_of(base), kIova, 64, kRemoteWrite, kQp, tag).value();
  EXPECT_EQ(key.value(), (told & ~0xFFu) | tag);
  EXPECT_EQ(remote(key, kRemoteWrite, kIova, 64), MemoryVerdict::kOk);
  EXPECT_EQ(remote(key, kRemoteWrite, kIova, 64, Qpn{1}), MemoryVerdict::kNoAccess);
  EXPECT_EQ(
      table.bind_window(window, kPd, key_of(base), kIova, 64, kRemoteWrite, kQp, 9).error().code,
      EPERM)
      << "bound already";

  EXPECT_EQ(table.invalidate(key, kPd, Qpn{1}), MemoryVerdict::kNoAccess);
  EXPECT_EQ(table.invalidate(key, kPd + 1, kQp), MemoryVerdict::kWrongPd);
  EXPECT_EQ(table.invalidate(key, kPd, kQp), MemoryVerdict::kOk);
  EXPECT_EQ(table.invalidate(key, kPd, kQp), MemoryVerdict::kUnknownKey);
  EXPECT_EQ(table.find(key), nullptr);
  EXPECT_EQ(base->bound_windows.load(), 0u);

  const MemoryKey again =
      table
          .bind_window(window, kPd, key_of(base), kIova + 8, 8, kRemoteWrite | kZeroBased, kQp,
                       static_cast<uint8_t>(tag + 1))
          .value();
  EXPECT_EQ(table.resolve(again, kPd, kRemoteWrite, 0, 8, true, kQp).memory, bytes + 8);
  EXPECT_TRUE(table.free_window(window).ok()) << "freeing unbinds";
  EXPECT_TRUE(table.deregister(base).ok());
}

TEST_F(MemoryTest, BindsThatTheRulesForbidAreRefused) {
  MemoryEntry* window = table.allocate_window(kPd, MemoryKind::kWindow2).value();
  const auto refusal = [&](MemoryKey key, uint64_t address, uint64_t length, uint32_t access,
                           PdId pd = kPd) {
    const auto result = table.bind_window(window, pd, key, address, length, access, kQp, 1);
    return result.ok() ? "" : result.error().message;
  };
  const MemoryKey good = key_of(region());
  EXPECT_EQ(refusal(good, kIova, 0, 0),
            "length is 0; a type 2 window is unbound by invalidating it");
  EXPECT_EQ(refusal(MemoryKey(3), kIova, 1, 0),
            "memory region's key is unknown; bind to a registered region");
  EXPECT_EQ(refusal(good, kIova, 257, 0),
            "address and length of the window are not inside the memory region");
  EXPECT_EQ(refusal(good, kIova, 1, 0, kPd + 1),
            "window belongs to another protection domain than the QP");
  EXPECT_EQ(refusal(good, kIova, 1, kLocalWrite),
            "access of a window has local write or window bind; it may grant remote rights only");
  const MemoryKey unbindable = key_of(region(kLocalWrite | kRemoteRead));
  EXPECT_EQ(refusal(unbindable, kIova, 1, kRemoteRead),
            "memory region was registered without the window bind access flag");
  const MemoryKey read_only = key_of(region(kMwBind));
  EXPECT_EQ(refusal(read_only, kIova, 1, kRemoteWrite),
            "access has remote write or atomic, but the memory region has no local write");
  EXPECT_EQ(refusal(read_only, kIova, 1, kRemoteRead), "")
      << "a window may grant a remote read that its region does not";
  MemoryEntry* foreign =
      table.register_region(kPd + 1, bytes, sizeof bytes, kIova, kEverything).value();
  window = table.allocate_window(kPd, MemoryKind::kWindow2).value();
  EXPECT_EQ(refusal(key_of(foreign), kIova, 1, 0),
            "memory region belongs to another protection domain");
  window = table.allocate_window(kPd, MemoryKind::kWindow1).value();
  EXPECT_EQ(refusal(good, kIova, 1, kZeroBased),
            "access has zero based, which only a type 2 window can be");
  EXPECT_EQ(table.allocate_window(kPd, MemoryKind::kRegion).error().code, EINVAL);
  EXPECT_EQ(table.free_window(foreign).error().code, EINVAL);
  EXPECT_EQ(table.deregister(window).error().code, EINVAL);
}

TEST_F(MemoryTest, ARegionCanBeInvalidatedOnlyWithRemoteRightsAndWithoutWindows) {
  MemoryEntry* local = region(kLocalWrite);
  EXPECT_EQ(table.invalidate(key_of(local), kPd, kQp), MemoryVerdict::kNoAccess);
  MemoryEntry* base = region();
  MemoryEntry* window = table.allocate_window(kPd, MemoryKind::kWindow1).value();
  const MemoryKey key = key_of(base);
  ASSERT_TRUE(table.bind_window(window, kPd, key, kIova, 8, kRemoteRead, kQp, 0).ok());
  EXPECT_EQ(table.invalidate(key, kPd, kQp), MemoryVerdict::kNoAccess);
  ASSERT_TRUE(table.free_window(window).ok());
  EXPECT_EQ(table.invalidate(key, kPd, kQp), MemoryVerdict::kOk);
  EXPECT_EQ(table.find(key), nullptr);
  EXPECT_TRUE(table.deregister(base).ok()) << "it still has to be given back";
}

// Meant for ThreadSanitizer as well: readers resolve while regions come and go and the table grows.
TEST_F(MemoryTest, ReadersRunBesideRegistration) {
  std::atomic<bool> stop{false};
  std::atomic<uint32_t> published{0};
  std::atomic<uint64_t> wrong{0};
  std::atomic<uint64_t> lookups{0};
  const auto read = [&] {
    while (!stop.load(std::memory_order_relaxed)) {
      const MemoryKey key(published.load(std::memory_order_relaxed));
      const MemoryAccess a = table.resolve(key, kPd, kRemoteRead, kIova + 1, 8, true, kQp);
      if (a.verdict == MemoryVerdict::kOk && a.memory != bytes + 1) wrong.fetch_add(1);
      if (a.verdict != MemoryVerdict::kOk && a.verdict != MemoryVerdict::kUnknownKey) {
        wrong.fetch_add(1);
      }
      lookups.fetch_add(1, std::memory_order_relaxed);
    }
  };
  std::thread first(read);
  std::thread second(read);
  std::vector<MemoryEntry*> kept;
  for (int i = 0; i < 20000 || lookups.load(std::memory_order_relaxed) < 1000; ++i) {
    MemoryEntry* entry = region();
    published.store(key_of(entry).value(), std::memory_order_relaxed);
    if (i % 64 == 0 && kept.size() < 400) {
      kept.push_back(entry);
    } else {
      ASSERT_TRUE(table.deregister(entry).ok());
    }
    // An entry that is used again means something else: another PD and other memory.
    MemoryEntry* other = table.register_region(kPd + 1, bytes + 64, 64, 0, 0).value();
    ASSERT_TRUE(table.deregister(other).ok());
  }
  stop = true;
  first.join();
  second.join();
  EXPECT_EQ(wrong.load(), 0u);
}

}  // namespace
}  // namespace farverbs::model
