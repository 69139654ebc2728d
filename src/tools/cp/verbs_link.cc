#include "tools/cp/verbs_link.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "tools/common/process_usage.h"

namespace farverbs::tools::copy {
namespace {

constexpr uint32_t kSendRequests = 4096;
constexpr uint32_t kReceiveRequests = 2048;
constexpr size_t kMaxMessageBytes = size_t{64} << 20;  // waiting to be handled

// The kind of a request, in the top bits of its wr_id.
enum Kind : uint64_t { kWriteRequest, kPieceRecord, kNotification, kReceiveSlot };
constexpr uint64_t tag(Kind kind, uint64_t value) { return (uint64_t{kind} << 60) | value; }
constexpr Kind kind_of(uint64_t wr_id) { return static_cast<Kind>(wr_id >> 60); }
constexpr uint64_t value_of(uint64_t wr_id) { return wr_id & ((UINT64_C(1) << 60) - 1); }

uint64_t round_trip_us(int fd) {
  tcp_info info{};
  socklen_t length = sizeof info;
  if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) != 0) return 0;
  return info.tcpi_rtt;
}

// The smallest timeout code (4.096 us * 2^code) of at least `us`.
uint8_t timeout_code(double us) {
  const double code = std::ceil(std::log2(std::max(us, 1.0) / 4.096));
  return static_cast<uint8_t>(std::clamp(code, 14.0, 22.0));
}

}  // namespace

void watch_connection(int fd) {
  const int on = 1;
  const int idle_s = 10;
  const int interval_s = 5;
  const int probes = 3;
  const unsigned unacknowledged_ms = 30'000;
  ::setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof interval_s);
  ::setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
  ::setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &unacknowledged_ms, sizeof unacknowledged_ms);
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

Result<std::unique_ptr<VerbsLink>> VerbsLink::establish(verbs::Device device,
                                                        verbs::Rendezvous rendezvous,
                                                        const LinkOptions& options) {
  std::unique_ptr<VerbsLink> link(new VerbsLink(std::move(rendezvous)));
  FV_TRY(link->open(std::move(device), options));
  return link;
}

Result<void> VerbsLink::open(verbs::Device device, const LinkOptions& options) {
  FV_ASSIGN(pd_, device.allocate_pd());
  FV_ASSIGN(cq_, device.create_cq(kSendRequests + kReceiveRequests));
  verbs::QueuePairInit init;
  init.send_cq = &*cq_;
  init.receive_cq = &*cq_;
  init.capabilities.max_send_wr = kSendRequests;
  init.capabilities.max_recv_wr = kReceiveRequests;
  init.capabilities.max_inline_data = kRecordBytes;
  FV_ASSIGN(qp_, pd_->create_qp(init));
  const size_t bytes = kReceiveRequests * kRecordBytes;
  receive_memory_ = std::make_unique<std::byte[]>(bytes);
  FV_ASSIGN(receive_region_,
            pd_->register_memory(receive_memory_.get(), bytes, model::kLocalWrite));

  verbs::QpAddress mine = qp_->address();
  if (options.mtu != 0) {
    while (model::bytes_of(mine.path_mtu) > options.mtu && mine.path_mtu > verbs::PathMtu::k256) {
      mine.path_mtu = static_cast<verbs::PathMtu>(static_cast<int>(mine.path_mtu) - 1);
    }
  }
  // The other end then takes standard RC as well.
  if (options.transport == verbs::Transport::kStandard) mine.far_version = 0;
  FV_ASSIGN(verbs::QpAddress peer, rendezvous_.exchange(mine, Duration::seconds(30)));
  peer.path_mtu = std::min(peer.path_mtu, mine.path_mtu);
  rtt_us_ = round_trip_us(rendezvous_.fd());
  verbs::ConnectOptions connect;
  connect.transport = options.transport;
  connect.remote_access = model::kRemoteWrite;
  connect.traffic = options.traffic;
  connect.timeout = timeout_code(2.0 * static_cast<double>(rtt_us_));
  FV_TRY(qp_->connect(peer, connect));
  for (uint64_t slot = 0; slot < kReceiveRequests; ++slot) FV_TRY(post_receive(slot));
  reader_ = std::thread([this] { read_messages(); });
  return {};
}

VerbsLink::~VerbsLink() {
  if (reader_.joinable()) {
    ::shutdown(rendezvous_.fd(), SHUT_RDWR);
    reader_.join();
  }
}

uint64_t VerbsLink::suggested_window_bytes() const {
  // Twice what 10 Gb/s hold on this path; at least enough for the sender's hashing to run ahead,
  // and little enough on a short path for the bytes to be in the cache still.
  return std::clamp<uint64_t>(rtt_us_ * 1'250 * 2, UINT64_C(8) << 20, UINT64_C(512) << 20);
}

Result<Region> VerbsLink::register_span(std::span<std::byte> memory, uint32_t access) {
  FV_ASSIGN(verbs::MemoryRegion registered,
            pd_->register_memory(memory.data(), memory.size(), access));
  ++*live_regions_;
  Region region;
  region.address = registered.address();
  region.key = registered.rkey().value();
  region.hold =
      std::shared_ptr<verbs::MemoryRegion>(new verbs::MemoryRegion(std::move(registered)),
                                           [live = live_regions_](verbs::MemoryRegion* held) {
                                             delete held;
                                             --*live;
                                           });
  return region;
}

Result<Region> VerbsLink::expose(std::span<std::byte> memory) {
  return register_span(memory, model::kLocalWrite | model::kRemoteWrite);
}

Result<Region> VerbsLink::lend(std::span<std::byte> memory) { return register_span(memory, 0); }

Result<void> VerbsLink::post_receive(uint64_t slot) {
  const verbs::ScatterGatherElement sge = receive_region_->sge(slot * kRecordBytes, kRecordBytes);
  verbs::ReceiveWorkRequest request;
  request.wr_id = tag(kReceiveSlot, slot);
  request.sges = {&sge, 1};
  return qp_->post_receive(request);
}

Result<void> VerbsLink::make_room(uint32_t requests) {
  while (queued_requests_ + requests > kSendRequests)
    FV_TRY(poll_queue(Duration::milliseconds(10)));
  if (dead_.has_value()) return *dead_;
  return {};
}

Result<void> VerbsLink::write(const Region& source, uint64_t offset, uint32_t length,
                              uint64_t remote_address, uint32_t remote_key, const Record& record,
                              uint64_t ticket) {
  FV_TRY(make_room(2));
  const auto bytes = encode_record(record);
  const verbs::ScatterGatherElement data{source.address + offset, length, MemoryKey(source.key)};
  const verbs::ScatterGatherElement note{reinterpret_cast<uint64_t>(bytes.data()), kRecordBytes,
                                         MemoryKey()};
  std::array<verbs::SendWorkRequest, 2> requests;
  requests[0].wr_id = tag(kWriteRequest, ticket);
  requests[0].opcode = verbs::SendOpcode::kWrite;
  requests[0].sges = {&data, 1};
  requests[0].remote_address = remote_address;
  requests[0].remote_key = MemoryKey(remote_key);
  requests[1].wr_id = tag(kPieceRecord, ticket);
  requests[1].opcode = verbs::SendOpcode::kSend;
  requests[1].flags = model::kSignaled | model::kInline;
  requests[1].sges = {&note, 1};
  FV_TRY(qp_->post_send(requests));
  queued_requests_ += 2;
  return {};
}

Result<void> VerbsLink::notify(const Record& record) {
  FV_TRY(make_room(1));
  const auto bytes = encode_record(record);
  const verbs::ScatterGatherElement note{reinterpret_cast<uint64_t>(bytes.data()), kRecordBytes,
                                         MemoryKey()};
  verbs::SendWorkRequest request;
  request.wr_id = tag(kNotification, 0);
  request.opcode = verbs::SendOpcode::kSend;
  request.flags = model::kSignaled | model::kInline;
  request.sges = {&note, 1};
  FV_TRY(qp_->post_send(request));
  queued_requests_ += 1;
  return {};
}

Result<void> VerbsLink::send(const std::string& message) { return rendezvous_.send(message); }

Result<void> VerbsLink::poll_queue(Duration timeout) {
  std::array<verbs::WorkCompletion, 64> completions;
  const size_t count =
      timeout == Duration() ? cq_->poll(completions) : cq_->wait(completions, timeout);
  for (size_t i = 0; i < count && !dead_.has_value(); ++i) {
    if (Result<void> handled = on_completion(completions[i]); !handled.ok()) {
      dead_ = std::move(handled).error();
    }
  }
  if (dead_.has_value() && events_.empty()) return *dead_;
  return {};
}

Result<void> VerbsLink::on_completion(const verbs::WorkCompletion& completion) {
  const uint64_t value = value_of(completion.wr_id);
  if (completion.status != verbs::CompletionStatus::kSuccess) {
    const bool lost = completion.status == verbs::CompletionStatus::kLocalProtectionError ||
                      completion.status == verbs::CompletionStatus::kLocalAccessError;
    if (lost && kind_of(completion.wr_id) == kWriteRequest) {
      events_.push_back(WriteDone{value, /*source_lost=*/true});
    }
    return failure(completion);
  }
  switch (kind_of(completion.wr_id)) {
    case kPieceRecord:
      queued_requests_ -= 2;
      events_.push_back(WriteDone{value});
      return {};
    case kNotification:
      queued_requests_ -= 1;
      return {};
    case kReceiveSlot: {
      if (value >= kReceiveRequests || completion.byte_length > kRecordBytes) {
        return Error{EPROTO, "the peer sent a record of a wrong size"};
      }
      FV_ASSIGN(const Record record, decode_record({receive_memory_.get() + value * kRecordBytes,
                                                    completion.byte_length}));
      events_.push_back(record);
      return post_receive(value);
    }
    default:
      return {};
  }
}

Error VerbsLink::failure(const verbs::WorkCompletion& completion) {
  // A peer that died closes its connection as well: that says more than what the queue pair saw.
  {
    std::unique_lock lock(mutex_);
    arrived_.wait_for(lock, std::chrono::milliseconds(300), [this] { return end_.has_value(); });
    // What the peer said before is heard first: it may have said why.
    for (std::string& message : messages_) events_.push_back(std::move(message));
    messages_.clear();
    if (end_.has_value()) return *end_;
  }
  using Status = verbs::CompletionStatus;
  switch (completion.status) {
    case Status::kRetryExceeded:
      return {ETIMEDOUT, "the peer stopped answering (is it stopped, or the network down?)"};
    case Status::kRnrRetryExceeded:
      return {ETIMEDOUT, "the peer accepts no data"};
    case Status::kRemoteAccessError:
    case Status::kRemoteOperationError:
      return {EIO, "the receiver could not place the data (its disk may be full)"};
    case Status::kLocalProtectionError:
    case Status::kLocalAccessError:
      return {ESTALE, "the source changed while being sent"};
    default:
      return {EIO, fmt::format("the connection failed: {}", model::to_string(completion.status))};
  }
}

Result<std::optional<LinkEvent>> VerbsLink::next(Duration timeout) {
  const Time begin = clock_now();
  while (true) {
    if (events_.empty()) FV_TRY(poll_queue(Duration()));
    if (!events_.empty()) {
      LinkEvent event = std::move(events_.front());
      events_.pop_front();
      return std::optional<LinkEvent>(std::move(event));
    }
    if (has_messages_.load(std::memory_order_acquire)) {
      std::string message;
      std::optional<Error> end;
      if (take_message(message, end)) return std::optional<LinkEvent>(std::move(message));
      if (end.has_value()) {
        dead_ = end;
        return *end;
      }
    }
    const Duration left = timeout - (clock_now() - begin);
    if (left <= Duration()) return std::optional<LinkEvent>();
    if (live_regions_->load() > 0) {
      // Data comes or goes; a message is looked for in between, more rarely on a path where a
      // message takes long anyway, since every look spins for a moment.
      const auto look = Duration::microseconds(
          std::clamp<int64_t>(static_cast<int64_t>(rtt_us_) / 8, 1'000, 20'000));
      FV_TRY(poll_queue(std::min(left, look)));
    } else {
      std::unique_lock lock(mutex_);
      const auto most = std::chrono::nanoseconds(std::min(left, Duration::milliseconds(20)).ns());
      arrived_.wait_for(lock, most, [this] { return !messages_.empty() || end_.has_value(); });
    }
  }
}

void VerbsLink::read_messages() {
  while (true) {
    Result<std::string> message = rendezvous_.receive();
    const std::lock_guard lock(mutex_);
    if (!message.ok()) {
      end_ = message.error();
    } else if (message_bytes_ + message->size() > kMaxMessageBytes) {
      end_ = Error{EPROTO, "the peer sent more messages than agreed"};
    } else {
      message_bytes_ += message->size();
      messages_.push_back(std::move(message).value());
    }
    has_messages_.store(true, std::memory_order_release);
    arrived_.notify_all();
    if (end_.has_value()) return;
  }
}

bool VerbsLink::take_message(std::string& message, std::optional<Error>& end) {
  const std::lock_guard lock(mutex_);
  if (messages_.empty()) {
    end = end_;
    return false;
  }
  message = std::move(messages_.front());
  messages_.pop_front();
  message_bytes_ -= message.size();
  has_messages_.store(!messages_.empty() || end_.has_value(), std::memory_order_release);
  return true;
}

}  // namespace farverbs::tools::copy
