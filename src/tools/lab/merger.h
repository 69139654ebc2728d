// Merger: builds what one write to a TUN device carries. Wire packets that fall due together are
// joined the way a NIC's receive offload joins them: consecutive packets of one flow, equal in size
// except a shorter last one, with the same header otherwise; at most 64. Payload stays where it was
// read (the write gathers it); only the header is built.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstdint>
#include <span>

#include "tools/lab/packet.h"

namespace farverbs::tools::lab {

class Merger {
 public:
  static constexpr uint32_t kMaxMerged = 64;

  // Adds wire packet `index`; false, and nothing is added, if it cannot follow those already here.
  // An empty merger takes any packet. `packet` must live until clear().
  bool append(const Packet& packet, uint32_t index, bool mark);
  bool empty() const { return count_ == 0; }
  uint32_t count() const { return count_; }
  uint32_t ip_header() const { return first_->ip_header; }

  // The vnet header, the packet's header and its payload, as one gathered write. Valid until the
  // next append() or clear().
  std::span<const iovec> finish();
  void clear() { count_ = 0; }

 private:
  bool follows(const Packet& packet, uint32_t index, bool mark) const;
  bool same_flow(const Packet& packet) const;
  bool next_in_order(const Packet& packet, uint32_t index) const;

  const Packet* first_ = nullptr;
  const Packet* last_ = nullptr;
  uint32_t first_index_ = 0;
  uint32_t last_index_ = 0;
  uint32_t count_ = 0;
  uint32_t payload_ = 0;
  uint32_t pieces_ = 0;
  bool mark_ = false;
  VnetHeader vnet_;
  std::array<std::byte, kMaxHeader> header_;
  std::array<iovec, kMaxMerged + 2> pieces_at_;
};

}  // namespace farverbs::tools::lab
