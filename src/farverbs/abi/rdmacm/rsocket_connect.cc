// How a stream comes to be: binding, listening, its queues and buffers, connecting and accepting.
#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "farverbs/abi/rdmacm/library.h"
#include "farverbs/abi/rdmacm/rsocket_stream.h"

namespace farverbs::rdmacm {

using wire::RsocketConnect;

namespace {

uint8_t scaled(uint32_t mappings) {
  return static_cast<uint8_t>(mappings <= 128 ? mappings : 128 | (mappings >> 8));
}
uint32_t unscaled(uint8_t value) { return value <= 128 ? value : uint32_t{value & 0x7Fu} << 8; }

}  // namespace

int Stream::bind(const sockaddr* address) {
  const Lock lock(mutex_);
  int on = 1;
  if (options_.reuse_address) {
    rdma_set_option(id_, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &on, sizeof on);
  }
  if (options_.v6_only) {
    rdma_set_option(id_, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &on, sizeof on);
  }
  return rdma_bind_addr(id_, const_cast<sockaddr*>(address));
}

int Stream::listen(int backlog) {
  const Lock lock(mutex_);
  if (state_ == State::kListening) return 0;
  if (state_ != State::kFresh) return rdmacm::fail(EINVAL);
  if (rdma_listen(id_, backlog) != 0) return -1;
  state_ = State::kListening;
  return 0;
}

bool Stream::create_queues() {
  ibv_comp_channel* channel = ibv_create_comp_channel(id_->verbs);
  if (channel == nullptr) return false;
  ::fcntl(channel->fd, F_SETFL, O_NONBLOCK);
  const int size = options_.send_requests + options_.receive_requests;
  ibv_cq* cq = ibv_create_cq(id_->verbs, size, this, channel, 0);
  if (cq == nullptr) {
    ibv_destroy_comp_channel(channel);
    return false;
  }
  id_->send_cq_channel = id_->recv_cq_channel = channel;
  id_->send_cq = id_->recv_cq = cq;
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = cq;
  init.qp_type = IBV_QPT_RC;
  init.sq_sig_all = 1;
  init.cap = {options_.send_requests, options_.receive_requests, 2, 1,
              std::max<uint32_t>(options_.inline_bytes, sizeof(Mapping))};
  if (rdma_create_qp(id_, nullptr, &init) != 0) return false;
  options_.inline_bytes = static_cast<uint16_t>(std::min(init.cap.max_inline_data, 0xFFFFu));

  send_buffer_.resize(options_.send_bytes);
  send_free_ = send_buffer_.size();
  receive_buffer_.resize(options_.receive_bytes / 2 * 2);
  table_.resize(kTableEntries * sizeof(Buffer) +
                unscaled(scaled(options_.mappings)) * sizeof(Mapping));
  const int write = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
  send_mr_ = ibv_reg_mr(id_->pd, send_buffer_.data(), send_buffer_.size(), IBV_ACCESS_LOCAL_WRITE);
  receive_mr_ = ibv_reg_mr(id_->pd, receive_buffer_.data(), receive_buffer_.size(), write);
  table_mr_ = ibv_reg_mr(id_->pd, table_.data(), table_.size(), write);
  if (send_mr_ == nullptr || receive_mr_ == nullptr || table_mr_ == nullptr) return false;
  // The first half is offered with the connection, the second as soon as it stands.
  offer_ = free_bytes_ = receive_buffer_.size() / 2;
  grant_at_ = options_.receive_requests / 2;
  for (unsigned i = 0; i < options_.receive_requests; ++i) post_receive();
  return true;
}

RsocketConnect Stream::own_end() const {
  RsocketConnect own;
  own.flags = RsocketConnect::kIomaps;
  own.credits = options_.receive_requests;
  own.iomap_size = scaled(options_.mappings);
  own.table_address = reinterpret_cast<uintptr_t>(table_.data());
  own.table_key = table_mr_->rkey;
  own.table_length = kTableEntries;
  own.buffer_address = reinterpret_cast<uintptr_t>(receive_buffer_.data());
  own.buffer_key = receive_mr_->rkey;
  own.buffer_length = static_cast<uint32_t>(receive_buffer_.size() / 2);
  return own;
}

bool Stream::take_peer(const void* data, size_t size) {
  if (data == nullptr || size < RsocketConnect::kSize) return false;
  const auto peer = wire::parse_header<RsocketConnect>(static_cast<const std::byte*>(data));
  if (peer.version != 1 || peer.table_length == 0) return false;
  peer_swaps_ = (peer.flags & RsocketConnect::kBigEndian) != 0;
  peer_table_ = {peer.table_address, peer.table_key, peer.table_length};
  peer_entry_ = peer.table_length > 1 ? 1 : 0;
  if ((peer.flags & RsocketConnect::kIomaps) != 0) peer_mappings_ = unscaled(peer.iomap_size);
  set_target(0, {peer.buffer_address, peer.buffer_key, peer.buffer_length});
  may_send_ = peer.credits;
  return true;
}

std::shared_ptr<Rsocket> Stream::accept() {
  Lock lock(mutex_);
  if (state_ != State::kListening) {
    errno = EINVAL;
    return nullptr;
  }
  rdma_cm_event* event = nullptr;
  while (rdma_get_cm_event(channel_, &event) != 0) {
    if (errno != EAGAIN || !blocking_) return nullptr;
    pollfd wait{channel_->fd, POLLIN, 0};
    lock.unlock();
    const int result = ::poll(&wait, 1, -1);
    lock.lock();
    if (result < 0) return nullptr;
  }
  rdma_cm_id* id = event->id;
  int code = event->event == RDMA_CM_EVENT_CONNECT_REQUEST ? 0 : ECONNABORTED;
  rdma_event_channel* channel = nullptr;
  if (code == 0) {
    channel = rdma_create_event_channel();
    code = channel == nullptr || rdma_migrate_id(id, channel) != 0 ? errno : 0;
    if (code != 0) {
      rdma_destroy_id(id);
      if (channel != nullptr) rdma_destroy_event_channel(channel);
    }
  }
  if (code != 0) {
    rdma_ack_cm_event(event);
    errno = code;
    return nullptr;
  }
  ::fcntl(channel->fd, F_SETFL, O_NONBLOCK);
  std::shared_ptr<Stream> stream(new Stream(channel, id));
  stream->options_ = options_;
  rdma_conn_param param = event->param.conn;
  const bool good =
      stream->create_queues() &&
      stream->take_peer(event->param.conn.private_data, event->param.conn.private_data_len);
  std::byte own[RsocketConnect::kSize];
  if (good) {
    emit_header(stream->own_end(), own);
    param.private_data = own;
    param.private_data_len = sizeof own;
  }
  code = !good ? ENOTSUP : rdma_accept(id, &param) != 0 ? errno : 0;
  rdma_ack_cm_event(event);
  if (code != 0) {
    errno = code;
    return nullptr;
  }
  stream->state_ = State::kConnected;
  stream->readable_ = stream->writable_ = true;
  return stream;
}

int Stream::connect(const sockaddr* address) {
  Lock lock(mutex_);
  if (state_ == State::kConnecting) return rdmacm::fail(EALREADY);
  if (state_ == State::kConnected) return rdmacm::fail(EISCONN);
  if (state_ != State::kFresh) return rdmacm::fail(EINVAL);
  std::memcpy(&peer_address_, address, sockaddr_size(address));
  state_ = State::kConnecting;
  if (rdma_resolve_addr(id_, nullptr, reinterpret_cast<sockaddr*>(&peer_address_), 2000) != 0) {
    const int code = errno;
    fail(code);
    return rdmacm::fail(code);
  }
  on_events();
  if (!blocking_ && state_ == State::kConnecting) return rdmacm::fail(EINPROGRESS);
  const int code = wait(lock, true, [&] { return state_ != State::kConnecting; });
  if (code != 0) return rdmacm::fail(code);
  return state_ == State::kConnected ? 0 : rdmacm::fail(take_error());
}

void Stream::fail(int code) {
  state_ = State::kFailed;
  error_ = code;
  readable_ = writable_ = false;
}

int Stream::take_error() { return std::exchange(error_, 0); }

int Stream::start_connecting() {
  if (!create_queues()) return -1;
  std::byte own[RsocketConnect::kSize];
  emit_header(own_end(), own);
  rdma_conn_param param{};
  param.private_data = own;
  param.private_data_len = sizeof own;
  param.flow_control = 1;
  param.retry_count = param.rnr_retry_count = 7;
  return rdma_connect(id_, &param);
}

void Stream::on_events() {
  if (state_ == State::kListening || state_ == State::kFresh) return;
  rdma_cm_event* event = nullptr;
  while (rdma_get_cm_event(channel_, &event) == 0) {
    on_event(*event);
    rdma_ack_cm_event(event);
  }
}

void Stream::on_event(const rdma_cm_event& event) {
  switch (event.event) {
    case RDMA_CM_EVENT_ADDR_RESOLVED:
      if (rdma_resolve_route(id_, 2000) != 0) fail(errno);
      break;
    case RDMA_CM_EVENT_ROUTE_RESOLVED:
      if (start_connecting() != 0) fail(errno);
      break;
    case RDMA_CM_EVENT_ESTABLISHED:
      if (state_ != State::kConnecting) break;
      if (take_peer(event.param.conn.private_data, event.param.conn.private_data_len)) {
        state_ = State::kConnected;
        readable_ = writable_ = true;
      } else {
        fail(ENOTSUP);
      }
      break;
    case RDMA_CM_EVENT_ADDR_ERROR:
    case RDMA_CM_EVENT_ROUTE_ERROR:
    case RDMA_CM_EVENT_CONNECT_ERROR:
      fail(event.status < 0 ? -event.status : ECONNABORTED);
      break;
    case RDMA_CM_EVENT_REJECTED:
      fail(ECONNREFUSED);
      break;
    case RDMA_CM_EVENT_UNREACHABLE:
      fail(ETIMEDOUT);
      break;
    case RDMA_CM_EVENT_DISCONNECTED:
      // What has arrived can still be read.
      if (state_ == State::kConnected) progress();
      if (!ended()) state_ = State::kDisconnected;
      readable_ = writable_ = false;
      break;
    default:
      break;
  }
}

}  // namespace farverbs::rdmacm
