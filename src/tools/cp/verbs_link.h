// The Link over verbs: an RC queue pair for data and records, a rendezvous connection for messages.
// A thread reads the connection, so that messages never wait for each other in both directions, and
// so that the peer's death is noticed at once.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "farverbs/verbs/rendezvous.h"
#include "farverbs/verbs/verbs.h"
#include "tools/cp/link.h"

namespace farverbs::tools::copy {

struct LinkOptions {
  uint32_t mtu = 0;  // largest packet payload in bytes (256 ... 4096); 0: what the path carries
  verbs::Transport transport = verbs::Transport::kAuto;
  verbs::TrafficClass traffic = verbs::TrafficClass::kBulk;  // a server's is its client's
};

class VerbsLink final : public Link {
 public:
  // Both ends call it at the same point of their conversation: exchanges queue pairs and connects.
  static Result<std::unique_ptr<VerbsLink>> establish(verbs::Device device,
                                                      verbs::Rendezvous rendezvous,
                                                      const LinkOptions& options);
  ~VerbsLink() override;

  Result<Region> expose(std::span<std::byte> memory) override;
  Result<Region> lend(std::span<std::byte> memory) override;
  Result<void> write(const Region& source, uint64_t offset, uint32_t length,
                     uint64_t remote_address, uint32_t remote_key, const Record& record,
                     uint64_t ticket) override;
  Result<void> notify(const Record& record) override;
  Result<void> send(const std::string& message) override;
  Result<std::optional<LinkEvent>> next(Duration timeout) override;
  uint64_t suggested_window_bytes() const override;

  verbs::QpCounters counters() const { return qp_->counters(); }

 private:
  explicit VerbsLink(verbs::Rendezvous rendezvous) : rendezvous_(std::move(rendezvous)) {}
  Result<void> open(verbs::Device device, const LinkOptions& options);
  Result<Region> register_span(std::span<std::byte> memory, uint32_t access);
  Result<void> post_receive(uint64_t slot);
  Result<void> make_room(uint32_t requests);
  Result<void> poll_queue(Duration timeout);
  Result<void> on_completion(const verbs::WorkCompletion& completion);
  Error failure(const verbs::WorkCompletion& completion);
  void read_messages();
  bool take_message(std::string& message, std::optional<Error>& end);

  verbs::Rendezvous rendezvous_;
  std::optional<verbs::ProtectionDomain> pd_;
  std::optional<verbs::CompletionQueue> cq_;
  std::optional<verbs::QueuePair> qp_;
  std::unique_ptr<std::byte[]> receive_memory_;
  std::optional<verbs::MemoryRegion> receive_region_;
  std::deque<LinkEvent> events_;
  uint32_t queued_requests_ = 0;  // in the send queue
  std::shared_ptr<std::atomic<int>> live_regions_ = std::make_shared<std::atomic<int>>(0);
  uint64_t rtt_us_ = 0;
  std::optional<Error> dead_;

  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<std::string> messages_;
  size_t message_bytes_ = 0;
  std::optional<Error> end_;  // the connection's; after the messages before it
  std::atomic<bool> has_messages_{false};
  std::thread reader_;
};

// Dead hosts are noticed within half a minute, not after hours.
void watch_connection(int fd);

}  // namespace farverbs::tools::copy
