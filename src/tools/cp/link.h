// Link: what a session needs of its connection, so that sender and receiver can be tested without a
// network: reliable messages, memory that the peer may write, and writes with a record behind each.
// verbs_link.h is the real one, over a queue pair and a rendezvous connection.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <variant>

#include "farverbs/base/result.h"
#include "farverbs/base/time.h"
#include "tools/cp/record.h"

namespace farverbs::tools::copy {

// Registered memory; the registration ends when the last copy of `hold` does.
struct Region {
  uint64_t address = 0;  // of its first byte, as the peer names it
  uint32_t key = 0;
  std::shared_ptr<void> hold;
};

// The bytes of a write may be reused: the peer's transport has them, or will never.
struct WriteDone {
  uint64_t ticket;
  // The local memory was gone when the transport read it (its file was truncated). The link is dead
  // after that.
  bool source_lost = false;
};

using LinkEvent = std::variant<WriteDone, Record, std::string>;

class Link {
 public:
  virtual ~Link() = default;

  // Memory that the peer may write, or that only we read. It must stay mapped while registered.
  virtual Result<Region> expose(std::span<std::byte> memory) = 0;
  virtual Result<Region> lend(std::span<std::byte> memory) = 0;

  // Writes bytes of `source` (from `offset` on) to the peer's memory, then sends `record`. Ends in
  // a WriteDone with `ticket`.
  virtual Result<void> write(const Region& source, uint64_t offset, uint32_t length,
                             uint64_t remote_address, uint32_t remote_key, const Record& record,
                             uint64_t ticket) = 0;
  virtual Result<void> notify(const Record& record) = 0;
  virtual Result<void> send(const std::string& message) = 0;

  // What happened next; nullopt after `timeout`. Errors: EPIPE (the peer is gone), ETIMEDOUT (it
  // does not answer), EIO and others of the transport; the link is dead then.
  virtual Result<std::optional<LinkEvent>> next(Duration timeout) = 0;

  // How many bytes should be under way for the path to be full.
  virtual uint64_t suggested_window_bytes() const = 0;
};

}  // namespace farverbs::tools::copy
