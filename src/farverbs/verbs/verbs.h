// The Farverbs C++ API: RDMA verbs on a soft NIC that lives in this process. Semantics, names and
// limits are those of the verbs manual pages (ibv_reg_mr(3), ibv_create_qp(3), ibv_modify_qp(3),
// ibv_post_send(3), ibv_poll_cq(3) ...); the shape is C++: RAII, move-only handles, Result.
//
// Ownership. A handle owns its object and destroys it when it dies. Handles keep what they depend
// on alive (a QueuePair its queues and its ProtectionDomain, all of them the Device), so the order
// of their death does not matter. Application memory is never copied behind your back nor pinned;
// it must stay mapped while a region covers it, and buffers of posted requests must stay untouched
// until their completions (inline data excepted). Once a MemoryRegion is dead, nothing touches its
// memory.
//
// Progress. Packets move (1) inside your own calls of poll(), wait() and post_send(), when no other
// thread is at it, which gives the lowest latency; (2) in a background thread of the device
// whenever nobody calls: one-sided operations of peers progress while you sleep, compute or block.
// Passing from one to the other costs at most one wake-up.
//
// Threads. All calls on all handles are thread safe, except destroying or moving a handle while it
// is in use. Two threads that poll one CompletionQueue get different completions.
//
// Errors. A Result's Error has the errno value that the manual page gives and a message that names
// the field. What goes wrong after a successful post is told by a WorkCompletion's status. Nothing
// throws.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "farverbs/base/ids.h"
#include "farverbs/base/ip_address.h"
#include "farverbs/base/result.h"
#include "farverbs/base/time.h"
#include "farverbs/model/traffic_class.h"
#include "farverbs/model/types.h"

namespace farverbs::model {
class AsyncEventSink;
}

namespace farverbs::verbs {

using model::Access;
using model::AddressVector;
using model::AsyncEventType;
using model::CompletionOpcode;
using model::CompletionStatus;
using model::PathMtu;
using model::QpAttributes;
using model::QpCapabilities;
using model::QpState;
using model::QpType;
using model::ReceiveWorkRequest;
using model::ScatterGatherElement;
using model::SendOpcode;
using model::SendWorkRequest;
using model::TrafficClass;
using model::WorkCompletion;

namespace detail {
struct DeviceState;
struct PdState;
struct RegionState;
struct WindowState;
struct ChannelState;
struct CqState;
struct SrqState;
struct QpHandleState;
}  // namespace detail

// What carries an RC connection.
enum class Transport : uint8_t {
  kAuto,      // the far transport between two ends that speak it, standard RC otherwise
  kStandard,  // standard RC
  kFar,       // the far transport; connect() fails with a peer that does not speak it
};

struct DeviceOptions {
  // The local address the soft NIC has; its interface gives the MTU. 127.0.0.1 and ::1 work.
  IpAddress address;
  uint16_t udp_port = kRoceUdpPort;
  // Packet loops, each with a socket of its own; a QP belongs to one.
  unsigned shards = 1;
  // Share (address, port) with other processes of this host.
  bool share_port = true;
  // Run a background thread per shard. Without it packets move only in your own calls.
  bool background_progress = true;
  // How long wait() spins before it blocks.
  Duration spin = Duration::microseconds(50);
  // Most unacknowledged packets of a QP, at least 4,096.
  uint32_t max_window_packets = 16'384;
  // A fixed congestion window in bytes; 0: measured (cc/bdp_window.h).
  uint64_t fixed_window_bytes = 0;
  // Show this user's `farverbs top` what it is doing; FARVERBS_STATS=1 in the environment does too.
  bool stats = false;
  // GIDs that use_gid() may give it beside GID 0, which is `address`. Needs share_port, and one
  // shard.
  uint8_t more_gids = 0;
  // What its RC connections may be carried by: kStandard never offers the far transport.
  Transport transport = Transport::kAuto;
};

// What the device can do, honestly: a request beyond it is refused.
struct DeviceAttributes {
  uint32_t max_qp = 65'000;
  uint32_t max_qp_wr = 32'768;
  uint32_t max_sge = 32;
  uint32_t max_inline_data = 1'024;
  uint32_t max_cq = 65'536;
  uint32_t max_cqe = 4'194'303;
  uint32_t max_mr = 1'048'576;
  uint64_t max_mr_size = UINT64_C(1) << 47;
  uint32_t max_message_bytes = UINT32_C(1) << 31;
  uint32_t max_srq = 65'536;
  uint32_t max_srq_wr = 32'768;
  uint8_t max_rd_atomic = 128;  // per QP, as requester and as responder
};

struct PortAttributes {
  bool active = false;
  Gid gid{};                              // GID index 0
  uint32_t interface_mtu = 0;             // IP MTU, bytes
  PathMtu max_path_mtu = PathMtu::k1024;  // largest that fits the interface's MTU
  std::string interface_name;
};

struct DeviceCounters {
  uint64_t sent_datagrams = 0;
  uint64_t sent_bytes = 0;   // UDP payload
  uint64_t sent_bursts = 0;  // system calls that sent
  uint64_t received_datagrams = 0;
  uint64_t received_bytes = 0;
  uint64_t received_bursts = 0;
  uint64_t receive_overflows = 0;  // dropped by the kernel: the socket's buffer was full
  uint64_t icrc_errors = 0;
  uint64_t malformed_packets = 0;
  uint64_t unknown_qpn = 0;
  uint64_t forwarded_out = 0;  // datagrams of other processes that came here, and were passed on
  uint64_t forwarded_in = 0;
  uint64_t inline_steps = 0;  // turns of the loop in application threads
  uint64_t background_steps = 0;
  uint64_t background_wakeups = 0;
};

struct AsyncEvent {
  AsyncEventType type;
  void* context;  // the `context` given when the object was created
};

class ProtectionDomain;
class CompletionQueue;
class CompletionChannel;
class SharedReceiveQueue;

class Device {
 public:
  // Errors: EADDRNOTAVAIL (no interface has the address), EADDRINUSE (port taken by a process that
  // does not share it), ENOSPC (no free slot at this address).
  static Result<Device> open(const DeviceOptions& options);

  const DeviceAttributes& attributes() const;
  PortAttributes port() const;
  DeviceCounters counters() const;
  const DeviceOptions& options() const;

  Result<ProtectionDomain> allocate_pd();
  // capacity: completions that can wait. channel: see CompletionChannel; context: for async events,
  // which go to `events` (model/completion_queue.h), or to the device's own queue.
  Result<CompletionQueue> create_cq(uint32_t capacity, CompletionChannel* channel = nullptr,
                                    void* context = nullptr,
                                    model::AsyncEventSink* events = nullptr);
  Result<CompletionChannel> create_channel();

  // The oldest asynchronous event, if there is one; async_fd() is readable when there is.
  std::optional<AsyncEvent> poll_async_event();
  int async_fd() const;

  // The unix socket that tells what the device is doing (verbs/stats.h). Empty: nobody asked for
  // it, or it could not be made.
  std::string stats_socket() const;

  // Makes `address`, another one of the machine, the GID of this index (1 to more_gids): address
  // vectors may name it as their source, and peers may send to it. Nothing if it is that already.
  // EEXIST: the index is another address.
  Result<void> use_gid(uint8_t index, const IpAddress& address);
  // One turn of every shard's loop, in this thread; true if anything moved.
  bool progress();
  // This thread polls no more: what it owes leaves, the background thread takes over.
  void hand_over();
  // The sockets, for the child of a fork: a copy that it does not close keeps the kernel delivering
  // to them when the parent has closed its own. There is nothing else that the child may do.
  std::vector<int> sockets() const;

  std::shared_ptr<detail::DeviceState> state() const { return state_; }

 private:
  explicit Device(std::shared_ptr<detail::DeviceState> state) : state_(std::move(state)) {}
  std::shared_ptr<detail::DeviceState> state_;
};

class MemoryRegion {
 public:
  MemoryKey lkey() const;
  MemoryKey rkey() const;
  void* data() const;        // first byte, in this process
  uint64_t address() const;  // its address as peers name it (iova)
  uint64_t length() const;
  std::span<std::byte> bytes() const;
  // An SGE for part of the region.
  ScatterGatherElement sge(uint64_t offset, uint32_t length) const;
  // Other rights, bits of Access; the keys stay.
  Result<void> change_access(uint32_t access);
  // Deregisters now. EBUSY while windows are bound to it.
  Result<void> deregister();

 private:
  friend class ProtectionDomain;
  explicit MemoryRegion(std::shared_ptr<detail::RegionState> state) : state_(std::move(state)) {}
  std::shared_ptr<detail::RegionState> state_;
};

// A type 1 or type 2 memory window (man ibv_alloc_mw).
class MemoryWindow {
 public:
  MemoryKey rkey() const;  // 0 while it is not bound
  // What it was bound with last, or would be bound with by ibv_inc_rkey(3)'s rule.
  MemoryKey handle_key() const;
  model::MemoryEntry* entry() const;  // for SendWorkRequest::window

 private:
  friend class ProtectionDomain;
  explicit MemoryWindow(std::shared_ptr<detail::WindowState> state) : state_(std::move(state)) {}
  std::shared_ptr<detail::WindowState> state_;
};

struct QueuePairInit {
  QpType type = QpType::kRc;
  const CompletionQueue* send_cq = nullptr;
  const CompletionQueue* receive_cq = nullptr;
  const SharedReceiveQueue* srq = nullptr;
  QpCapabilities capabilities;
  bool signal_all = false;
  void* context = nullptr;
  // Where its async events go; nullptr: to the device's own queue. Outlives the QP.
  model::AsyncEventSink* events = nullptr;
};

// What a peer must know to connect to a QP.
struct QpAddress {
  Gid gid{};
  uint16_t udp_port = kRoceUdpPort;
  Qpn qpn;
  Psn psn;                            // the first packet it will send
  PathMtu path_mtu = PathMtu::k1024;  // the largest it can take
  uint8_t far_version = 0;            // of the far transport that it speaks; 0: none
};

// The rest of what connect() sets; the defaults suit most programs.
struct ConnectOptions {
  Transport transport = Transport::kAuto;
  uint32_t remote_access = model::kRemoteWrite | model::kRemoteRead | model::kRemoteAtomic;
  uint8_t timeout = 14;  // 4.096 us * 2^timeout = 67 ms
  uint8_t retry_count = 7;
  uint8_t rnr_retry = 7;       // for ever
  uint8_t min_rnr_timer = 12;  // 0.64 ms
  uint8_t max_rd_atomic = 16;
  // What the connection is for: sets the two below to the class's service level and DSCP mark
  // where they are 0. Either of them alone names a class as well (model/traffic_class.h).
  TrafficClass traffic = TrafficClass::kBulk;
  uint8_t traffic_class = 0;  // DSCP and ECN octet
  uint8_t service_level = 0;  // 0 to 15
  uint32_t qkey = 0;          // UD
};

struct QpCounters {
  uint64_t sent_packets = 0, sent_payload_bytes = 0, received_packets = 0,
           received_payload_bytes = 0, retransmitted_packets = 0, retransmitted_bytes = 0,
           timeouts = 0, sequence_naks_sent = 0, sequence_naks_received = 0, rnr_naks_sent = 0,
           rnr_naks_received = 0, duplicates_received = 0, dropped_packets = 0;
};

class QueuePair {
 public:
  Qpn qpn() const;
  QpType type() const;
  QpState state() const;

  // ibv_modify_qp(3): a refused request changes nothing.
  Result<void> modify(const QpAttributes& attributes, uint32_t mask);
  QpAttributes query() const;
  QpCounters counters() const;

  // This QP's side of an exchange: its GID, number, a random first PSN and the port's path MTU. The
  // PSN stays the same for the life of the QP.
  QpAddress address() const;
  // RESET -> INIT -> RTR -> RTS (RC, UC) with the smaller of the two path MTUs.
  Result<void> connect(const QpAddress& peer, const ConnectOptions& options = {});
  // What carries the connection: kStandard or kFar.
  Transport transport() const;
  // RESET -> INIT -> RTR -> RTS for UD.
  Result<void> activate_datagrams(uint32_t qkey);

  // Requests are processed in order. The error names the first request's fault; *posted tells how
  // many before it were taken. ENOMEM: the queue is full.
  Result<void> post_send(const SendWorkRequest& request);
  Result<void> post_send(std::span<const SendWorkRequest> requests, size_t* posted = nullptr);
  Result<void> post_receive(const ReceiveWorkRequest& request);
  Result<void> post_receive(std::span<const ReceiveWorkRequest> requests, size_t* posted = nullptr);
  // UD: from here on it receives what is sent to the group, a multicast address as a GID. Needs
  // DeviceOptions::more_gids. detach_multicast: EINVAL if it was not attached.
  Result<void> attach_multicast(const Gid& group);
  Result<void> detach_multicast(const Gid& group);
  // How many requests the send queue has room for.
  uint32_t send_room() const;

 private:
  friend class ProtectionDomain;
  explicit QueuePair(std::shared_ptr<detail::QpHandleState> state) : state_(std::move(state)) {}
  std::shared_ptr<detail::QpHandleState> state_;
};

class SharedReceiveQueue {
 public:
  Result<void> post_receive(const ReceiveWorkRequest& request);
  // SRQ_LIMIT_REACHED is raised once when fewer than `limit` receives are left.
  void arm_limit(uint32_t limit);
  uint32_t limit() const;  // 0: not armed, or reached
  uint32_t count() const;

 private:
  friend class ProtectionDomain;
  explicit SharedReceiveQueue(std::shared_ptr<detail::SrqState> state) : state_(std::move(state)) {}
  std::shared_ptr<detail::SrqState> state_;
};

class CompletionQueue {
 public:
  // Moves up to completions.size() completions out, oldest first, driving the device's loop when
  // there is none yet. Never blocks. 0: nothing yet. An overflowed queue gives what it still has.
  size_t poll(std::span<WorkCompletion> completions);
  // Like poll, but gives only what is there: the device's loop is not driven.
  size_t take(std::span<WorkCompletion> completions);
  // Like poll, but waits until there is at least one, spinning for DeviceOptions::spin and then
  // blocking. 0 after `timeout`.
  size_t wait(std::span<WorkCompletion> completions, Duration timeout = Duration::max());
  // Arms one event on the queue's channel for the next completion (or the next solicited or
  // failed).
  void request_notification(bool solicited_only = false);
  bool in_error() const;
  uint32_t capacity() const;
  Result<void> resize(uint32_t capacity);
  void* context() const;
  // Completions carry the time they were pushed at.
  void stamp_completions();
  // How many events of this queue the channel has given out; waiting ones are dropped, so that the
  // number stays what it is once nothing uses the queue any more.
  uint64_t end_events();

 private:
  friend class Device;
  friend class ProtectionDomain;
  friend class CompletionChannel;
  explicit CompletionQueue(std::shared_ptr<detail::CqState> state) : state_(std::move(state)) {}
  std::shared_ptr<detail::CqState> state_;
};

// Where armed completion queues report, with a descriptor for poll(2) and epoll(7), which is
// readable while events wait. It is nobody's to read from.
class CompletionChannel {
 public:
  int fd() const;
  // The context of a queue that had an event; nullopt after `timeout` (zero: do not wait).
  std::optional<void*> get_event(Duration timeout = Duration::max());

 private:
  friend class Device;
  friend class ProtectionDomain;
  explicit CompletionChannel(std::shared_ptr<detail::ChannelState> state)
      : state_(std::move(state)) {}
  std::shared_ptr<detail::ChannelState> state_;
};

class ProtectionDomain {
 public:
  // Registers memory (any mapping: heap, file, huge pages). access: bits of Access. Peers name its
  // bytes by `iova`, by default their virtual addresses.
  Result<MemoryRegion> register_memory(void* memory, uint64_t length, uint32_t access);
  Result<MemoryRegion> register_memory(void* memory, uint64_t length, uint32_t access,
                                       uint64_t iova);
  // Zeroed, page-aligned memory that the region owns; the kind a responder in the kernel can serve.
  Result<MemoryRegion> allocate_memory(uint64_t length, uint32_t access);
  // announced: see model::MemoryTable::allocate_window.
  Result<MemoryWindow> allocate_window(bool type2, bool announced = false);
  Result<QueuePair> create_qp(const QueuePairInit& init);
  // events: as Device::create_cq.
  Result<SharedReceiveQueue> create_srq(uint32_t max_wr, uint32_t max_sge, void* context = nullptr,
                                        model::AsyncEventSink* events = nullptr);

 private:
  friend class Device;
  explicit ProtectionDomain(std::shared_ptr<detail::PdState> state) : state_(std::move(state)) {}
  std::shared_ptr<detail::PdState> state_;
};

}  // namespace farverbs::verbs
