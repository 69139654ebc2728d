// How the kernel chooses among the sockets that share a UDP (address, port): a classic BPF program
// (SO_ATTACH_REUSEPORT_CBPF, man socket(7), no privileges needed) reads the slot, the top byte of
// the destination QPN, at payload offset 5, and returns the index of a socket in the kernel's list.
// The list is in the order of binding, but when a member leaves, the last one takes its place, and
// nobody is told. So a member finds out who is where by probes: datagrams that the same program
// delivers to the index they carry, and which the receiver answers with its slot. What is for QP1
// any member can pass on to whom it concerns: each datagram goes to one at random of those that
// have answered, so that who sends again reaches another than the one that is stopped.
#pragma once

#include <array>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "farverbs/base/result.h"
#include "farverbs/io/slot_names.h"

namespace farverbs::io {

// The index of each slot's socket; kOwnNumber: the slot's own number, which is right as long as
// members have only come and gone in order, and harmless for slots that nobody has.
class SteeringTable {
 public:
  static constexpr int kOwnNumber = -1;
  SteeringTable() { index_.fill(kOwnNumber); }
  int index_of(uint8_t slot) const { return index_[slot] < 0 ? slot : index_[slot]; }
  // A slot that was thought to be at this index no longer is.
  void put(uint8_t slot, uint8_t index);
  bool operator==(const SteeringTable&) const = default;

 private:
  std::array<int16_t, kSlots> index_;
};

// Replaces the program of all sockets that share the socket's (address, port). `awake` are the
// slots whose members take what is for QP1; none: slot 0 does.
Result<void> attach_steering(int fd, const SteeringTable& table,
                             const std::bitset<kSlots>& awake = {});

// A probe or its answer. The first byte is a reserved BTH opcode (of the congestion notification
// group), so that no receiver takes it for a packet.
struct SteeringProbe {
  static constexpr size_t kBytes = 16;
  static constexpr std::byte kOpcode{0x9F};
  bool answer = false;
  uint8_t index = 0;
  uint8_t slot = 0;  // of who answers
  uint64_t nonce = 0;

  std::array<std::byte, kBytes> to_bytes() const;
  static std::optional<SteeringProbe> parse(std::span<const std::byte> datagram);
};

}  // namespace farverbs::io
