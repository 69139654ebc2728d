#include "farverbs/wire/crc32.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "farverbs/base/prng.h"
#include "farverbs/wire/crc32_polynomial.h"

namespace farverbs::wire {
namespace {

uint32_t reference(uint32_t state, const std::byte* p, size_t n) {
  for (size_t i = 0; i < n; ++i) state = crc::byte_step(state, std::to_integer<uint8_t>(p[i]));
  return state;
}

std::vector<std::byte> random_bytes(Prng& prng, size_t n) {
  std::vector<std::byte> v(n);
  for (std::byte& b : v) b = static_cast<std::byte>(prng.next());
  return v;
}

TEST(CrcPolynomial, ConstantsAreTheKnownOnes) {
  // floor(x^64 / P), P and x^n mod P as printed in the folding literature for this polynomial.
  EXPECT_EQ(crc::kBarrettQuotient, 0x1F701'1641u);
  EXPECT_EQ(crc::kBarrettPolynomial, 0x1DB71'0641u);
  EXPECT_EQ(crc::times_x(crc::over_x(0x12345678)), 0x12345678u);
  EXPECT_EQ(crc::multiply(crc::power_of_x(-77), crc::power_of_x(77)), crc::kOne);
  EXPECT_EQ(crc::multiply(crc::power_of_x(20), crc::power_of_x(30)), crc::power_of_x(50));
}

class CrcKernel : public testing::TestWithParam<const Crc32Kernel*> {};

TEST_P(CrcKernel, KnowsTheCheckValue) {
  const char digits[] = "123456789";
  const uint32_t state =
      GetParam()->update(kCrc32Start, reinterpret_cast<const std::byte*>(digits), 9);
  EXPECT_EQ(crc32_value(state), 0xCBF43926u);
}

TEST_P(CrcKernel, MultipliesResidues) {
  Prng prng(7);
  for (int i = 0; i < 1000; ++i) {
    const auto a = static_cast<uint32_t>(prng.next());
    const auto b = static_cast<uint32_t>(prng.next());
    ASSERT_EQ(GetParam()->multiply(a, b), crc::multiply(a, b)) << a << " " << b;
  }
}

// The bytes around the destination must survive, and those around the source must not matter: the
// source is an exact heap block, so that a sanitizer sees each read beyond it.
TEST_P(CrcKernel, UpdatesAndCopiesEveryShortLength) {
  Prng prng(1);
  for (size_t length = 0; length <= 300; ++length) {
    const std::vector<std::byte> source = random_bytes(prng, length);
    const auto start = static_cast<uint32_t>(prng.next());
    const uint32_t expected = reference(start, source.data(), length);
    ASSERT_EQ(GetParam()->update(start, source.data(), length), expected) << length;
    std::vector<std::byte> out(length + 2 * 64, std::byte{0xEE});
    ASSERT_EQ(GetParam()->copy(start, out.data() + 64, source.data(), length), expected) << length;
    for (size_t i = 0; i < out.size(); ++i) {
      const bool inside = i >= 64 && i < 64 + length;
      ASSERT_EQ(out[i], inside ? source[i - 64] : std::byte{0xEE}) << length << " at " << i;
    }
  }
}

TEST_P(CrcKernel, TakesAnyAlignment) {
  Prng prng(2);
  const std::vector<std::byte> source = random_bytes(prng, 1024);
  for (size_t from = 0; from < 64; ++from) {
    for (size_t length : {1, 15, 64, 65, 200, 517, 900}) {
      std::vector<std::byte> out(1024);
      const size_t to = (from * 29) & 63;
      const uint32_t expected = reference(kCrc32Start, source.data() + from, length);
      ASSERT_EQ(GetParam()->update(kCrc32Start, source.data() + from, length), expected);
      ASSERT_EQ(GetParam()->copy(kCrc32Start, out.data() + to, source.data() + from, length),
                expected);
      ASSERT_TRUE(std::equal(source.begin() + static_cast<ptrdiff_t>(from),
                             source.begin() + static_cast<ptrdiff_t>(from + length),
                             out.begin() + static_cast<ptrdiff_t>(to)));
    }
  }
}

TEST_P(CrcKernel, ResumesAtEverySplit) {
  Prng prng(3);
  const std::vector<std::byte> source = random_bytes(prng, 700);
  const uint32_t expected = reference(kCrc32Start, source.data(), source.size());
  for (size_t split = 0; split <= source.size(); ++split) {
    const uint32_t half = GetParam()->update(kCrc32Start, source.data(), split);
    ASSERT_EQ(GetParam()->update(half, source.data() + split, source.size() - split), expected)
        << split;
  }
}

TEST_P(CrcKernel, AgreesOnBigRandomRuns) {
  Prng prng(4);
  for (int round = 0; round < 40; ++round) {
    const std::vector<std::byte> source = random_bytes(prng, prng.between(1000, 70000));
    const uint32_t expected = reference(kCrc32Start, source.data(), source.size());
    std::vector<std::byte> out(source.size());
    ASSERT_EQ(GetParam()->update(kCrc32Start, source.data(), source.size()), expected);
    ASSERT_EQ(GetParam()->copy(kCrc32Start, out.data(), source.data(), source.size()), expected);
    ASSERT_EQ(out, source);
  }
}

// gather and scatter against the definition: seed and headers with byte 4 as ones, payload, zeros.
TEST_P(CrcKernel, GathersAndScattersInPieces) {
  Prng prng(5);
  for (int round = 0; round < 3000; ++round) {
    const size_t headers = 12 + 4 * prng.below(14);
    const size_t payload = prng.chance(0.5) ? prng.below(80) : prng.below(1500);
    const size_t pad = -payload & 3;
    std::vector<std::byte> source = random_bytes(prng, payload);
    std::vector<std::byte> packet = random_bytes(prng, headers + payload + pad);
    const auto seed = static_cast<uint32_t>(prng.next());

    std::vector<std::byte> input(packet.begin(), packet.begin() + static_cast<ptrdiff_t>(headers));
    input[4] = std::byte{0xff};
    input.insert(input.end(), source.begin(), source.end());
    input.insert(input.end(), pad, std::byte{0});
    const uint32_t state = crc::multiply(seed, crc::power_of_x(32));
    const uint32_t expected = reference(state, input.data(), input.size());

    std::vector<std::vector<std::byte>> parts;  // exact heap blocks again
    for (size_t at = 0; at < payload;) {
      const size_t n = std::min<size_t>(payload - at, prng.below(payload) + prng.below(2));
      parts.emplace_back(source.begin() + static_cast<ptrdiff_t>(at),
                         source.begin() + static_cast<ptrdiff_t>(at + n));
      at += n;
    }
    std::vector<std::span<const std::byte>> in(parts.begin(), parts.end());
    ASSERT_EQ(GetParam()->gather(seed, packet.data(), headers, in.data(), in.size(), pad),
              expected);
    ASSERT_TRUE(
        std::equal(source.begin(), source.end(), packet.begin() + static_cast<ptrdiff_t>(headers)));
    for (size_t i = headers + payload; i < packet.size(); ++i) ASSERT_EQ(packet[i], std::byte{0});

    ASSERT_EQ(GetParam()->scatter(seed, packet.data(), headers, payload, pad, nullptr, 0),
              expected);
    for (auto& part : parts) std::fill(part.begin(), part.end(), std::byte{0});
    if (!parts.empty() && prng.chance(0.3)) parts.pop_back();
    std::vector<std::span<std::byte>> out(parts.begin(), parts.end());
    std::vector<std::byte> beyond(10, std::byte{0xEE});
    const bool whole = prng.chance(0.3);
    if (whole) out.emplace_back(beyond);
    ASSERT_EQ(
        GetParam()->scatter(seed, packet.data(), headers, payload, pad, out.data(), out.size()),
        expected);
    auto next = source.begin();
    for (const auto& part : parts) {
      ASSERT_TRUE(std::equal(part.begin(), part.end(), next));
      next += static_cast<ptrdiff_t>(part.size());
    }
    // The piece beyond takes what is left of the payload, never pad.
    for (size_t i = 0; i < beyond.size(); ++i) {
      const bool taken = whole && next != source.end();
      ASSERT_EQ(beyond[i], taken ? *next : std::byte{0xEE});
      if (taken) ++next;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, CrcKernel,
                         testing::ValuesIn(crc32_kernels().begin(), crc32_kernels().end()),
                         [](const testing::TestParamInfo<const Crc32Kernel*>& p) {
                           return std::string(p.param->name);
                         });

TEST(Crc32, DispatchesToTheBestKernel) {
  EXPECT_EQ(&crc32_kernel(), crc32_kernels().front());
  EXPECT_STREQ(crc32_kernels().back()->name, "isal");
  EXPECT_EQ(crc32_value(crc32_update(kCrc32Start, "123456789", 9)), 0xCBF43926u);
}

}  // namespace
}  // namespace farverbs::wire
