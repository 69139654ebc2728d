// Stream: one rsocket of type SOCK_STREAM (rsocket(7)). Bytes travel as RDMA WRITEs with immediate
// into the peer's receive buffer, whose halves the peer offers in turn, with credits, by writing to
// a table of two entries at this end. A stream's number is the descriptor of its event channel.
//
// Every member is guarded by the stream's mutex. Nobody holds it while waiting: one thread sleeps
// on the descriptors, others on the condition variable until that one has looked.
#pragma once

#include <rdma/rdma_cma.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "farverbs/abi/rdmacm/rsocket_base.h"
#include "farverbs/base/time.h"
#include "farverbs/wire/rsocket_messages.h"

namespace farverbs::rdmacm {

class Stream final : public Rsocket {
 public:
  // nullptr with errno set.
  static std::shared_ptr<Stream> create(int family);
  ~Stream() override;
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  int number() const override { return channel_->fd; }
  int bind(const sockaddr* address) override;
  int listen(int backlog) override;
  std::shared_ptr<Rsocket> accept() override;
  int connect(const sockaddr* address) override;
  ssize_t send(const void* from, size_t size, int flags, const sockaddr* to) override;
  ssize_t receive(void* to, size_t size, int flags, sockaddr* peer, socklen_t* length) override;
  int shut_down(int how) override;
  void close() override;
  int name(bool of_peer, sockaddr* address, socklen_t* size) override;
  int take_error() override;
  short ready(short events, bool arm) override;
  void add_waits(std::vector<pollfd>& waits) override;
  int64_t map(void* buffer, size_t size, int protection, int64_t offset) override;
  int unmap(void* buffer, size_t size) override;
  size_t write_at(const void* from, size_t size, int64_t offset, int flags) override;

 private:
  enum class State : uint8_t {
    kFresh,
    kListening,
    kConnecting,
    kConnected,
    kDisconnected,
    kFailed
  };
  // An entry of the peer's table, in its byte order.
  struct Buffer {
    uint64_t address;
    uint32_t key;
    uint32_t length;
  };
  struct Mapping {
    uint64_t offset;
    Buffer buffer;
  };
  struct Mapped {
    ibv_mr* mr = nullptr;
    uint32_t index = 0;
  };
  using Lock = std::unique_lock<std::mutex>;

  Stream(rdma_event_channel* channel, rdma_cm_id* id) : channel_(channel), id_(id) {}
  bool create_queues();
  wire::RsocketConnect own_end() const;
  bool take_peer(const void* data, size_t size);
  int start_connecting();
  // Takes what has come on the event channel.
  void on_events();
  void on_event(const rdma_cm_event& event);
  void fail(int code);

  // Takes completions, grants credits.
  void progress();
  void on_completion(const ibv_wc& wc);
  void on_message(uint32_t message);
  void post_receive();
  void grant();
  bool post(const ibv_sge* sges, int count, uint32_t message, uint64_t address, uint32_t key,
            uint64_t wr_id, bool inlined, bool with_message = true);
  void post_control(wire::RsocketControl control);
  // Until done() or something ended; 0, or an errno value: EAGAIN if it may not wait.
  int wait(Lock& lock, bool may_wait, const std::function<bool()>& done);
  void sleep(Lock& lock);
  void drain();

  bool can_send() const;
  bool can_control() const { return controls_under_way_ < kControls; }
  bool all_sent() const { return sends_under_way_ == 0 && controls_under_way_ == 0; }
  bool ended() const { return state_ == State::kDisconnected || state_ == State::kFailed; }
  // Copies to the send buffer; gives how many of `sges` it takes.
  int stage(const std::byte* from, uint32_t size, ibv_sge* sges);

  static constexpr uint32_t kControls = 4;
  static constexpr size_t kTableEntries = 2;

  ssize_t receive_bytes(void* to, size_t size, int flags);

  std::condition_variable looked_;
  bool sleeping_ = false;
  rdma_event_channel* channel_;
  rdma_cm_id* id_;
  State state_ = State::kFresh;
  bool readable_ = false;
  bool writable_ = false;
  int error_ = 0;
  sockaddr_storage peer_address_{};

  // Sending.
  std::vector<std::byte> send_buffer_;
  ibv_mr* send_mr_ = nullptr;
  size_t send_head_ = 0;
  size_t send_free_ = 0;
  uint32_t sends_under_way_ = 0;
  uint32_t controls_under_way_ = 0;
  uint16_t sent_ = 0;        // messages
  uint16_t may_send_ = 0;    // ... up to this count
  size_t target_ = 0;        // the entry in use
  bool peer_swaps_ = false;  // the peer's table has the other byte order
  Buffer peer_table_{};      // where this end writes about its buffers
  uint32_t peer_entry_ = 1;
  uint32_t peer_mappings_ = 0;

  // Receiving.
  std::vector<std::byte> receive_buffer_;
  ibv_mr* receive_mr_ = nullptr;
  std::deque<uint32_t> arrived_;  // lengths of messages
  uint32_t taken_ = 0;            // of the first
  size_t receive_head_ = 0;
  size_t free_bytes_ = 0;  // taken by the application, not yet offered again
  size_t offer_ = 0;       // the half that is offered next
  uint16_t received_ = 0;  // messages taken
  uint16_t grant_at_ = 0;

  // The table that the peer writes to: two buffers, then mappings.
  std::vector<std::byte> table_;
  ibv_mr* table_mr_ = nullptr;
  Buffer target(size_t entry) const;
  void set_target(size_t entry, const Buffer& buffer);
  std::vector<Mapped> mapped_;
};

}  // namespace farverbs::rdmacm
