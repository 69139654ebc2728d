#include "farverbs/io/steering.h"

#include <linux/filter.h>
#include <sys/socket.h>

#include <vector>

#include "farverbs/base/byte_order.h"
#include "farverbs/base/ids.h"

namespace farverbs::io {
namespace {

// A program sees the UDP payload at offset 0.
constexpr uint32_t kOpcodeOffset = 0;
constexpr uint32_t kQpnWord = 4;     // a reserved byte and the QPN
constexpr uint32_t kSlotOffset = 5;  // of a probe: the index it shall go to
constexpr std::byte kMark{0x46};
constexpr std::byte kVersion{1};

sock_filter load_byte(uint32_t offset) { return BPF_STMT(BPF_LD | BPF_B | BPF_ABS, offset); }

// For a datagram to QP1: a random one of the indices, which are at least one.
std::vector<sock_filter> for_management(const std::vector<uint32_t>& indices) {
  const auto random = static_cast<uint32_t>(SKF_AD_OFF + SKF_AD_RANDOM);
  std::vector<sock_filter> part{
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, random),
      BPF_STMT(BPF_ALU | BPF_MOD | BPF_K, static_cast<uint32_t>(indices.size())),
  };
  for (uint32_t i = 0; i + 1 < indices.size(); ++i) {
    part.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, i, 0, 1));
    part.push_back(BPF_STMT(BPF_RET | BPF_K, indices[i]));
  }
  part.push_back(BPF_STMT(BPF_RET | BPF_K, indices.back()));
  return part;
}

}  // namespace

void SteeringTable::put(uint8_t slot, uint8_t index) {
  for (int16_t& other : index_) {
    if (other == index) other = kOwnNumber;
  }
  index_[slot] = slot == index ? int16_t{kOwnNumber} : int16_t{index};
}

Result<void> attach_steering(int fd, const SteeringTable& table, const std::bitset<kSlots>& awake) {
  std::vector<sock_filter> program;
  program.push_back(load_byte(kOpcodeOffset));
  program.push_back(
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, std::to_integer<uint32_t>(SteeringProbe::kOpcode), 0, 2));
  program.push_back(load_byte(kSlotOffset));
  program.push_back(BPF_STMT(BPF_RET | BPF_A, 0));
  std::vector<uint32_t> members;
  for (uint32_t slot = 0; slot < kSlots; ++slot) {
    if (awake[slot]) {
      members.push_back(static_cast<uint32_t>(table.index_of(static_cast<uint8_t>(slot))));
    }
  }
  if (!members.empty()) {
    const std::vector<sock_filter> part = for_management(members);
    program.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, kQpnWord));
    program.push_back(BPF_STMT(BPF_ALU | BPF_AND | BPF_K, Qpn::kMask));
    // Jumps on a condition reach no further than 255 instructions.
    program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kManagementQpn.value(), 1, 0));
    program.push_back(BPF_STMT(BPF_JMP | BPF_JA, static_cast<uint32_t>(part.size())));
    program.insert(program.end(), part.begin(), part.end());
  }
  program.push_back(load_byte(kSlotOffset));
  for (uint32_t slot = 0; slot < kSlots; ++slot) {
    const int index = table.index_of(static_cast<uint8_t>(slot));
    if (index == static_cast<int>(slot)) continue;
    program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, slot, 0, 1));
    program.push_back(BPF_STMT(BPF_RET | BPF_K, static_cast<uint32_t>(index)));
  }
  program.push_back(BPF_STMT(BPF_RET | BPF_A, 0));
  const sock_fprog whole{static_cast<unsigned short>(program.size()), program.data()};
  if (setsockopt(fd, SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, &whole, sizeof whole) != 0) {
    return Error::from_errno("cannot steer datagrams between processes");
  }
  return {};
}

std::array<std::byte, SteeringProbe::kBytes> SteeringProbe::to_bytes() const {
  std::array<std::byte, kBytes> bytes{};
  bytes[0] = kOpcode;
  bytes[1] = kMark;
  bytes[2] = kVersion;
  bytes[3] = std::byte{answer};
  bytes[4] = std::byte{slot};
  bytes[kSlotOffset] = std::byte{index};
  store_be(bytes.data() + 8, nonce);
  return bytes;
}

std::optional<SteeringProbe> SteeringProbe::parse(std::span<const std::byte> datagram) {
  if (datagram.size() != kBytes || datagram[0] != kOpcode || datagram[1] != kMark ||
      datagram[2] != kVersion) {
    return std::nullopt;
  }
  SteeringProbe probe;
  probe.answer = datagram[3] != std::byte{0};
  probe.slot = std::to_integer<uint8_t>(datagram[4]);
  probe.index = std::to_integer<uint8_t>(datagram[kSlotOffset]);
  probe.nonce = load_be<uint64_t>(datagram.data() + 8);
  return probe;
}

}  // namespace farverbs::io
