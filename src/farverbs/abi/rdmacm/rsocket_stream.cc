#include "farverbs/abi/rdmacm/rsocket_stream.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "farverbs/abi/rdmacm/library.h"
#include "farverbs/base/byte_order.h"
#include "farverbs/io/os_clock.h"

namespace farverbs::rdmacm {

using wire::RsocketControl;
using wire::RsocketOp;

namespace {

// Less is not worth a message: wait until more may be sent.
constexpr size_t kLowWater = 2048;
constexpr uint32_t kMostBytes = 64 * 1024;  // of one message
constexpr Duration kSpin = Duration::microseconds(20);
constexpr uint64_t kReceive = uint64_t{1} << 63;
constexpr uint64_t kControlSend = uint64_t{1} << 62;
constexpr int kCompletionsAtOnce = 16;

uint64_t swap_if(bool swap, uint64_t v) { return swap ? byte_swap(v) : v; }
uint32_t swap_if(bool swap, uint32_t v) { return swap ? byte_swap(v) : v; }

}  // namespace

std::shared_ptr<Stream> Stream::create(int family) {
  rdma_event_channel* channel = rdma_create_event_channel();
  if (channel == nullptr) return nullptr;
  rdma_cm_id* id = nullptr;
  if (rdma_create_id(channel, &id, nullptr, RDMA_PS_TCP) != 0) {
    rdma_destroy_event_channel(channel);
    return nullptr;
  }
  std::shared_ptr<Stream> stream(new Stream(channel, id));
  stream->id_->route.addr.src_addr.sa_family = static_cast<sa_family_t>(family);
  // This code waits by poll(2), and takes events only when there are any.
  ::fcntl(channel->fd, F_SETFL, O_NONBLOCK);
  return stream;
}

Stream::~Stream() {
  if (id_->qp != nullptr) rdma_destroy_qp(id_);
  if (id_->recv_cq != nullptr) ibv_destroy_cq(id_->recv_cq);
  if (id_->recv_cq_channel != nullptr) ibv_destroy_comp_channel(id_->recv_cq_channel);
  for (const Mapped& mapped : mapped_) {
    if (mapped.mr != nullptr) ibv_dereg_mr(mapped.mr);
  }
  for (ibv_mr* mr : {send_mr_, receive_mr_, table_mr_}) {
    if (mr != nullptr) ibv_dereg_mr(mr);
  }
  rdma_destroy_id(id_);
  rdma_destroy_event_channel(channel_);
}

// --- Completions, credits ---

Stream::Buffer Stream::target(size_t entry) const {
  Buffer buffer;
  std::memcpy(&buffer, table_.data() + entry * sizeof buffer, sizeof buffer);
  return buffer;
}

void Stream::set_target(size_t entry, const Buffer& buffer) {
  std::memcpy(table_.data() + entry * sizeof buffer, &buffer, sizeof buffer);
}

bool Stream::can_send() const {
  return sends_under_way_ + kControls < options_.send_requests && send_free_ >= kLowWater &&
         sent_ != may_send_ && target(target_).length != 0;
}

void Stream::post_receive() {
  ibv_recv_wr wr{};
  wr.wr_id = kReceive;
  ibv_recv_wr* bad = nullptr;
  if (ibv_post_recv(id_->qp, &wr, &bad) != 0 && !ended()) fail(EIO);
}

void Stream::progress() {
  if (id_->qp == nullptr) return;
  if (state_ == State::kConnected) grant();
  ibv_wc completions[kCompletionsAtOnce];
  for (;;) {
    const int count = ibv_poll_cq(id_->recv_cq, kCompletionsAtOnce, completions);
    for (int i = 0; i < count; ++i) on_completion(completions[i]);
    if (count < kCompletionsAtOnce) break;
  }
  if (state_ == State::kConnected) grant();
}

void Stream::on_completion(const ibv_wc& wc) {
  if ((wc.wr_id & kReceive) != 0) {
    if (wc.status != IBV_WC_SUCCESS) return;
    if (!ended()) post_receive();
    if ((wc.wc_flags & IBV_WC_WITH_IMM) != 0) {
      on_message(load_be<uint32_t>(reinterpret_cast<const std::byte*>(&wc.imm_data)));
    }
    return;
  }
  if ((wc.wr_id & kControlSend) != 0) {
    --controls_under_way_;
  } else {
    --sends_under_way_;
    send_free_ += static_cast<size_t>(wc.wr_id);
  }
  if (wc.status != IBV_WC_SUCCESS && state_ == State::kConnected) fail(EIO);
}

void Stream::on_message(uint32_t message) {
  const uint32_t value = wire::rsocket_value(message);
  switch (wire::rsocket_op(message)) {
    case RsocketOp::data:
      // A peer that writes more than was offered is not one to go on with.
      if (arrived_.size() >= options_.receive_requests || value > receive_buffer_.size()) {
        return fail(EPROTO);
      }
      if (value != 0) arrived_.push_back(value);
      return;
    case RsocketOp::buffer:
      may_send_ = static_cast<uint16_t>(value);
      return;
    case RsocketOp::mapping:
      return;
    case RsocketOp::control:
      if (value == static_cast<uint32_t>(RsocketControl::disconnect)) {
        state_ = State::kDisconnected;
        readable_ = writable_ = false;
      } else if (value == static_cast<uint32_t>(RsocketControl::shutdown)) {
        readable_ = false;
        if (!writable_) state_ = State::kDisconnected;
      }
      return;
  }
}

bool Stream::post(const ibv_sge* sges, int count, uint32_t message, uint64_t address, uint32_t key,
                  uint64_t wr_id, bool inlined, bool with_message) {
  ibv_send_wr wr{};
  wr.wr_id = wr_id;
  wr.sg_list = const_cast<ibv_sge*>(sges);
  wr.num_sge = count;
  wr.opcode = with_message ? IBV_WR_RDMA_WRITE_WITH_IMM : IBV_WR_RDMA_WRITE;
  wr.send_flags = inlined ? IBV_SEND_INLINE : 0;
  store_be(reinterpret_cast<std::byte*>(&wr.imm_data), message);
  wr.wr.rdma.remote_addr = address;
  wr.wr.rdma.rkey = key;
  ibv_send_wr* bad = nullptr;
  const int failed = ibv_post_send(id_->qp, &wr, &bad);
  if (failed != 0) {
    fail(failed);
    return false;
  }
  ++((wr_id & kControlSend) != 0 ? controls_under_way_ : sends_under_way_);
  return true;
}

// Tells the peer of a half that is free again, and how many messages it may send.
void Stream::grant() {
  const size_t half = receive_buffer_.size() / 2;
  const bool buffer = free_bytes_ >= half;
  const bool credits = static_cast<int16_t>(received_ - grant_at_) >= 0;
  if ((!buffer && !credits) || !can_control()) return;
  grant_at_ = static_cast<uint16_t>(received_ + options_.receive_requests / 2);
  const auto limit = static_cast<uint16_t>(received_ + options_.receive_requests);
  const uint32_t message = wire::rsocket_message(RsocketOp::buffer, limit);
  if (!buffer) {
    post(nullptr, 0, message, 0, 0, kControlSend, false);
    return;
  }
  const Buffer offered{
      swap_if(peer_swaps_, reinterpret_cast<uintptr_t>(receive_buffer_.data() + offer_)),
      swap_if(peer_swaps_, receive_mr_->rkey), swap_if(peer_swaps_, static_cast<uint32_t>(half))};
  const ibv_sge sge{reinterpret_cast<uintptr_t>(&offered), sizeof offered, 0};
  post(&sge, 1, message, peer_table_.address + peer_entry_ * sizeof(Buffer), peer_table_.key,
       kControlSend, true);
  free_bytes_ -= half;
  offer_ = offer_ == 0 ? half : 0;
  peer_entry_ = (peer_entry_ + 1) % peer_table_.length;
}

void Stream::post_control(RsocketControl control) {
  post(nullptr, 0, wire::rsocket_message(RsocketOp::control, static_cast<uint32_t>(control)), 0, 0,
       kControlSend, false);
}

// --- Waiting ---

int Stream::wait(Lock& lock, bool may_wait, const std::function<bool()>& done) {
  Time spin_until;
  bool armed = false;
  for (;;) {
    on_events();
    progress();
    if (done()) return 0;
    if (!may_wait) return EAGAIN;
    const Time now = io::os_now();
    if (spin_until == Time()) spin_until = now + kSpin;
    if (now < spin_until && id_->qp != nullptr) continue;
    // Armed first, then looked at again: nothing comes unseen between.
    if (id_->qp != nullptr && !armed) {
      ibv_req_notify_cq(id_->recv_cq, 0);
      armed = true;
      continue;
    }
    sleep(lock);
    armed = false;
  }
}

void Stream::sleep(Lock& lock) {
  if (sleeping_) {
    looked_.wait(lock);
    return;
  }
  sleeping_ = true;
  pollfd fds[2] = {{channel_->fd, POLLIN, 0}, {-1, POLLIN, 0}};
  if (id_->recv_cq_channel != nullptr) fds[1].fd = id_->recv_cq_channel->fd;
  lock.unlock();
  ::poll(fds, 2, -1);
  lock.lock();
  sleeping_ = false;
  drain();
  looked_.notify_all();
}

// Takes what is queued on the completion channel, so that it is readable only for what comes.
void Stream::drain() {
  if (id_->recv_cq_channel == nullptr) return;
  ibv_cq* cq = nullptr;
  void* context = nullptr;
  unsigned taken = 0;
  while (ibv_get_cq_event(id_->recv_cq_channel, &cq, &context) == 0) ++taken;
  if (taken > 0) ibv_ack_cq_events(id_->recv_cq, taken);
}

void Stream::add_waits(std::vector<pollfd>& waits) {
  const Lock lock(mutex_);
  // Both: an end is told on the event channel, data on the other.
  waits.push_back({channel_->fd, POLLIN, 0});
  if (id_->recv_cq_channel != nullptr) waits.push_back({id_->recv_cq_channel->fd, POLLIN, 0});
}

short Stream::ready(short events, bool arm) {
  const Lock lock(mutex_);
  if (state_ == State::kListening) {
    pollfd fd{channel_->fd, POLLIN, 0};
    ::poll(&fd, 1, 0);
    return static_cast<short>(fd.revents & events);
  }
  if (state_ == State::kFresh) return static_cast<short>(events & POLLOUT) | POLLHUP;
  if (arm && id_->qp != nullptr) {
    drain();
    ibv_req_notify_cq(id_->recv_cq, 0);
  }
  on_events();
  progress();
  short found = 0;
  if ((events & POLLIN) != 0 && state_ != State::kConnecting && (!arrived_.empty() || !readable_)) {
    found |= POLLIN;
  }
  if ((events & POLLOUT) != 0 && state_ != State::kConnecting && (can_send() || !writable_)) {
    found |= POLLOUT;
  }
  if (state_ == State::kDisconnected) found |= POLLHUP;
  if (state_ == State::kFailed) found |= POLLERR;
  return found;
}

// --- Data ---

int Stream::stage(const std::byte* from, uint32_t size, ibv_sge* sges) {
  const size_t first = std::min<size_t>(size, send_buffer_.size() - send_head_);
  std::memcpy(send_buffer_.data() + send_head_, from, first);
  std::memcpy(send_buffer_.data(), from + first, size - first);
  const auto base = reinterpret_cast<uintptr_t>(send_buffer_.data());
  sges[0] = {base + send_head_, static_cast<uint32_t>(first), send_mr_->lkey};
  sges[1] = {base, static_cast<uint32_t>(size - first), send_mr_->lkey};
  send_head_ = (send_head_ + size) % send_buffer_.size();
  send_free_ -= size;
  return size > first ? 2 : 1;
}

ssize_t Stream::send(const void* from, size_t size, int flags, const sockaddr* to_address) {
  if (to_address != nullptr) return rdmacm::fail(EISCONN);
  Lock lock(mutex_);
  const bool may_wait = blocking_ && (flags & MSG_DONTWAIT) == 0;
  const auto* bytes = static_cast<const std::byte*>(from);
  size_t left = size;
  if (state_ == State::kFresh || state_ == State::kListening) return rdmacm::fail(ENOTCONN);
  while (left > 0) {
    const int code = wait(
        lock, may_wait, [&] { return state_ != State::kConnecting && (can_send() || !writable_); });
    if (code != 0) {
      if (left < size) break;
      return rdmacm::fail(code);
    }
    if (!writable_) {
      if (left < size) break;
      const int failure = take_error();
      return rdmacm::fail(failure != 0 ? failure : ECONNRESET);
    }
    Buffer to = target(target_);
    const auto count =
        static_cast<uint32_t>(std::min({left, size_t{kMostBytes}, size_t{to.length}, send_free_}));
    ibv_sge sges[2] = {{reinterpret_cast<uintptr_t>(bytes), count, 0}, {}};
    const bool inlined = count <= options_.inline_bytes;
    const int pieces = inlined ? 1 : stage(bytes, count, sges);
    // Before it is sent: the peer may offer another buffer here at once.
    const uint64_t address = to.address;
    to.address += count;
    to.length -= count;
    set_target(target_, to);
    if (to.length == 0) target_ = (target_ + 1) % kTableEntries;
    ++sent_;
    if (!post(sges, pieces, wire::rsocket_message(RsocketOp::data, count), address, to.key,
              inlined ? 0 : count, inlined)) {
      break;
    }
    bytes += count;
    left -= count;
  }
  return static_cast<ssize_t>(size - left);
}

ssize_t Stream::receive(void* to, size_t size, int flags, sockaddr* peer, socklen_t* length) {
  const ssize_t got = receive_bytes(to, size, flags);
  if (got > 0 && peer != nullptr && length != nullptr) (void)name(true, peer, length);
  return got;
}

ssize_t Stream::receive_bytes(void* to, size_t size, int flags) {
  Lock lock(mutex_);
  const bool may_wait = blocking_ && (flags & MSG_DONTWAIT) == 0;
  if (state_ == State::kFresh || state_ == State::kListening) return rdmacm::fail(ENOTCONN);
  auto* bytes = static_cast<std::byte*>(to);
  size_t got = 0;
  while (got < size) {
    const int code = wait(lock, may_wait, [&] {
      return state_ != State::kConnecting && (!arrived_.empty() || !readable_);
    });
    if (code != 0) {
      if (got > 0) break;
      return rdmacm::fail(code);
    }
    if (arrived_.empty()) break;  // the end
    if ((flags & MSG_PEEK) != 0) {
      size_t at = receive_head_;
      size_t skip = taken_;
      for (const uint32_t length : arrived_) {
        for (size_t left = std::min(length - skip, size - got); left > 0;) {
          const size_t piece = std::min(left, receive_buffer_.size() - at);
          std::memcpy(bytes + got, receive_buffer_.data() + at, piece);
          at = (at + piece) % receive_buffer_.size();
          got += piece;
          left -= piece;
        }
        skip = 0;
      }
      break;
    }
    while (got < size && !arrived_.empty()) {
      const size_t count = std::min(
          {size - got, size_t{arrived_.front() - taken_}, receive_buffer_.size() - receive_head_});
      std::memcpy(bytes + got, receive_buffer_.data() + receive_head_, count);
      receive_head_ = (receive_head_ + count) % receive_buffer_.size();
      got += count;
      free_bytes_ += count;
      taken_ += static_cast<uint32_t>(count);
      if (taken_ == arrived_.front()) {
        arrived_.pop_front();
        taken_ = 0;
        ++received_;
      }
    }
    if (state_ == State::kConnected) grant();
    if ((flags & MSG_WAITALL) == 0) break;
  }
  if (got == 0 && size > 0 && state_ == State::kFailed) {
    if (const int failure = take_error(); failure != 0) return rdmacm::fail(failure);
  }
  return static_cast<ssize_t>(got);
}

int Stream::shut_down(int how) {
  Lock lock(mutex_);
  if (how == SHUT_RD) {
    readable_ = false;
    return 0;
  }
  if (state_ == State::kConnected) {
    const bool whole = how == SHUT_RDWR || !readable_;
    if (how == SHUT_RDWR) readable_ = false;
    if (wait(lock, true, [&] { return can_control() || ended(); }) == 0 && !ended()) {
      writable_ = false;
      post_control(whole ? RsocketControl::disconnect : RsocketControl::shutdown);
    }
    (void)wait(lock, true, [&] { return all_sent() || ended(); });
    if (whole && !ended()) state_ = State::kDisconnected;
  }
  return 0;
}

void Stream::close() {
  (void)shut_down(SHUT_RDWR);
  const Lock lock(mutex_);
  state_ = State::kDisconnected;
  readable_ = writable_ = false;
  looked_.notify_all();
}

int Stream::name(bool of_peer, sockaddr* address, socklen_t* size) {
  const Lock lock(mutex_);
  if (address == nullptr || size == nullptr) return rdmacm::fail(EFAULT);
  const sockaddr* from = of_peer ? rdma_get_peer_addr(id_) : rdma_get_local_addr(id_);
  if (of_peer && (state_ == State::kFresh || state_ == State::kListening)) {
    return rdmacm::fail(ENOTCONN);
  }
  if (from->sa_family != AF_INET && from->sa_family != AF_INET6) return rdmacm::fail(EINVAL);
  const size_t whole = sockaddr_size(from);
  std::memcpy(address, from, std::min<size_t>(*size, whole));
  *size = static_cast<socklen_t>(whole);
  return 0;
}

// --- Mappings ---

int64_t Stream::map(void* buffer, size_t size, int protection, int64_t offset) {
  constexpr int kWrite = 2;  // PROT_WRITE
  Lock lock(mutex_);
  if (state_ != State::kConnected || buffer == nullptr || size == 0) return rdmacm::fail(EINVAL);
  const int access = (protection & kWrite) != 0 ? IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE
                                                : IBV_ACCESS_LOCAL_WRITE;
  uint32_t index = 0;
  while (index < mapped_.size() && mapped_[index].mr != nullptr) ++index;
  if (index >= peer_mappings_) return rdmacm::fail(ENOBUFS);
  const int code = wait(lock, blocking_, [&] { return can_send() || !writable_; });
  if (code != 0) return rdmacm::fail(code);
  if (!writable_) return rdmacm::fail(ECONNRESET);
  ibv_mr* mr = ibv_reg_mr(id_->pd, buffer, size, access);
  if (mr == nullptr) return -1;
  if (offset == -1) offset = static_cast<int64_t>(reinterpret_cast<uintptr_t>(buffer));
  if (index == mapped_.size()) mapped_.emplace_back();
  mapped_[index] = {mr, index};
  const Mapping entry{
      swap_if(peer_swaps_, static_cast<uint64_t>(offset)),
      {swap_if(peer_swaps_, static_cast<uint64_t>(reinterpret_cast<uintptr_t>(buffer))),
       swap_if(peer_swaps_, mr->rkey), swap_if(peer_swaps_, static_cast<uint32_t>(size))}};
  const ibv_sge sge{reinterpret_cast<uintptr_t>(&entry), sizeof entry, 0};
  ++sent_;
  if (!post(&sge, 1, wire::rsocket_message(RsocketOp::mapping, index),
            peer_table_.address + peer_table_.length * sizeof(Buffer) + index * sizeof(Mapping),
            peer_table_.key, 0, true)) {
    return rdmacm::fail(EIO);
  }
  return offset;
}

int Stream::unmap(void* buffer, size_t size) {
  const Lock lock(mutex_);
  for (Mapped& mapped : mapped_) {
    if (mapped.mr == nullptr || mapped.mr->addr != buffer || mapped.mr->length != size) continue;
    ibv_dereg_mr(mapped.mr);
    mapped.mr = nullptr;
    return 0;
  }
  return rdmacm::fail(EINVAL);
}

size_t Stream::write_at(const void* from, size_t size, int64_t offset, int flags) {
  Lock lock(mutex_);
  const bool may_wait = blocking_ && (flags & MSG_DONTWAIT) == 0;
  const auto* bytes = static_cast<const std::byte*>(from);
  const auto refuse = [](int code) { return static_cast<size_t>(rdmacm::fail(code)); };
  size_t left = size;
  auto at = static_cast<uint64_t>(offset);
  while (left > 0) {
    const int code = wait(lock, may_wait, [&] { return can_send() || !writable_; });
    if (code != 0 || !writable_) {
      if (left < size) break;
      return refuse(code != 0 ? code : ECONNRESET);
    }
    Mapping found{};
    bool known = false;
    for (size_t place = kTableEntries * sizeof(Buffer);
         !known && place + sizeof found <= table_.size(); place += sizeof found) {
      std::memcpy(&found, table_.data() + place, sizeof found);
      known = at >= found.offset && at - found.offset < found.buffer.length;
    }
    if (!known) {
      if (left < size) break;
      return refuse(EINVAL);
    }
    const uint64_t inside = at - found.offset;
    const auto count = static_cast<uint32_t>(
        std::min<uint64_t>({left, kMostBytes, found.buffer.length - inside, send_free_}));
    ibv_sge sges[2] = {{reinterpret_cast<uintptr_t>(bytes), count, 0}, {}};
    const bool inlined = count <= options_.inline_bytes;
    const int pieces = inlined ? 1 : stage(bytes, count, sges);
    if (!post(sges, pieces, 0, found.buffer.address + inside, found.buffer.key, inlined ? 0 : count,
              inlined, false)) {
      break;
    }
    bytes += count;
    left -= count;
    at += count;
  }
  // The caller may well watch its memory next and call nobody: others are to drive the device.
  ibv_req_notify_cq(id_->recv_cq, 0);
  return size - left;
}

}  // namespace farverbs::rdmacm
