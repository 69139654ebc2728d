#include "farverbs/abi/rdmacm/library.h"

#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "farverbs/base/quiet_signals.h"
#include "farverbs/io/os_clock.h"

namespace farverbs::rdmacm {
namespace {

// In the epoll descriptor's data; listeners count from 1.
constexpr uint64_t kAgentSocket = ~uint64_t{0};
constexpr uint64_t kWaker = ~uint64_t{0} - 1;
// Of one socket in a row, so that deadlines and other sockets have their turn.
constexpr int kMostMessages = 64;

Library* the_library = nullptr;
std::mutex library_mutex;

int tell_count(int fd, bool more) {
  uint64_t one = 1;
  const ssize_t n = more ? ::write(fd, &one, sizeof one) : ::read(fd, &one, sizeof one);
  return n == sizeof one ? 0 : -1;
}

}  // namespace

Library& Library::get() {
  const std::lock_guard lock(library_mutex);
  if (the_library == nullptr) {
    // Never deleted: threads may be in it until the process is gone.
    the_library = new Library;
    static const bool once = [] {
      pthread_atfork(before_fork, in_parent, in_child);
      return true;
    }();
    (void)once;
  }
  return *the_library;
}

void Library::before_fork() {
  library_mutex.lock();
  if (the_library != nullptr) the_library->mutex.lock();
}
void Library::in_parent() {
  if (the_library != nullptr) the_library->mutex.unlock();
  library_mutex.unlock();
}
void Library::in_child() {
  if (Library* old = the_library; old != nullptr) {
    // The names must be the parent's alone, or they would outlive it with nobody to answer.
    old->socket_.reset();
    for (const auto& [number, id] : old->listeners_) id->sockets.clear();
    old->epoll_ = io::FileDescriptor();
    old->mutex.unlock();
    the_library = nullptr;  // the rest stays where the child's copies of pointers look for it
  }
  library_mutex.unlock();
}

void Library::at_exit() {
  Library& library = get();
  const std::lock_guard lock(library.mutex);
  if (!library.agent_) return;
  library.agent_->shut_down(io::os_now());
  while (auto out = library.agent_->poll_transmit()) library.nics.send(*out);
  library.nics.finish();
}

Result<proto::CmAgent*> Library::agent() {
  if (!agent_) FV_TRY(start());
  return &*agent_;
}

Result<void> Library::start() {
  // Devices first: what they register to be done at the exit is then done after our farewell.
  nics.open_all();
  constexpr uint64_t kAgents = 1u << io::kAgentBits;
  const uint64_t first = entropy_.next();
  for (uint64_t i = 0; i < kAgents && !socket_; ++i) {
    const auto number = static_cast<uint16_t>((first + i) % kAgents);
    if (number == 0) continue;
    auto socket = io::ManagementSocket::bind(io::agent_name(number));
    if (!socket.ok()) {
      if (socket.error().code != EADDRINUSE) return std::move(socket).error();
      continue;
    }
    socket_.emplace(std::move(*socket));
    proto::CmConfig config;
    config.agent = number;
    agent_.emplace(config, entropy_);
  }
  if (!socket_) return Error{EUSERS, "4095 processes manage connections already"};
  FV_ASSIGN(io::Waker waker, io::Waker::create());
  waker_.emplace(std::move(waker));
  epoll_ = io::FileDescriptor(::epoll_create1(EPOLL_CLOEXEC));
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = kAgentSocket;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, socket_->fd(), &event) != 0) {
    return Error::from_errno("cannot wait for the agent's socket");
  }
  event.data.u64 = kWaker;
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, waker_->fd(), &event);
  {
    const QuietSignals quiet;
    std::thread([this] { run(); }).detach();
  }
  std::atexit(at_exit);
  return {};
}

void Library::run() {
  epoll_event ready[16];
  std::unique_lock lock(mutex);
  runner_ = std::this_thread::get_id();
  for (;;) {
    const Time now = io::os_now();
    const Time next = agent_->next_timer();
    sleeps_until_ = next;
    int timeout = -1;
    if (!next.is_never()) {
      const int64_t ms = (std::max((next - now).ns(), int64_t{0}) + 999'999) / 1'000'000;
      timeout = static_cast<int>(std::min<int64_t>(ms, 60'000));
    }
    lock.unlock();
    const int count = ::epoll_wait(epoll_.get(), ready, 16, timeout);
    lock.lock();
    for (int i = 0; i < count; ++i) {
      const uint64_t what = ready[i].data.u64;
      if (what == kWaker) {
        waker_->drain();
      } else if (what == kAgentSocket) {
        receive(*socket_, 0);
      } else if (const auto found = listeners_.find(what); found != listeners_.end()) {
        for (const io::ManagementSocket& socket : found->second->sockets) receive(socket, what);
      }
    }
    if (agent_->next_timer() <= io::os_now()) agent_->on_timer(io::os_now());
    flush();
  }
}

void Library::receive(const io::ManagementSocket& socket, uint64_t listener) {
  io::ManagementDatagram datagram;
  wire::Mad mad;
  const Time now = io::os_now();
  for (int i = 0; i < kMostMessages && socket.receive(datagram, mad); ++i) {
    proto::CmPath path;
    path.local = datagram.destination.address;
    path.remote = datagram.source.address;
    path.traffic_class = datagram.traffic_class;
    if (listener != 0) {
      agent_->on_request(now, listener, path, mad);
    } else {
      agent_->on_message(now, path, mad);
    }
  }
}

void Library::flush() {
  if (!agent_) return;
  while (auto event = agent_->poll_event()) tell(*event);
  while (auto out = agent_->poll_transmit()) nics.send(*out);
  if (agent_->next_timer() < sleeps_until_ && std::this_thread::get_id() != runner_) {
    sleeps_until_ = agent_->next_timer();
    waker_->wake();
  }
}

// --- Objects ---

Channel* Library::new_channel() {
  const int fd = ::eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
  if (fd < 0) return nullptr;
  auto* channel = new Channel;
  channel->fd = fd;
  channels_.insert(channel);
  return channel;
}

void Library::delete_channel(Channel* channel) {
  for (Event* event : channel->events) delete event;
  channels_.erase(channel);
  constexpr size_t kRemembered = 16;
  deleted_channels_.push_back(channel);
  if (deleted_channels_.size() > kRemembered) deleted_channels_.pop_front();
  ::close(channel->fd);
  delete channel;
}

bool Library::was_deleted(const rdma_event_channel* channel) const {
  return std::find(deleted_channels_.begin(), deleted_channels_.end(), channel) !=
         deleted_channels_.end();
}

Id* Library::new_id(Channel* channel, void* context, rdma_port_space ps, ibv_qp_type qp_type) {
  auto* id = new Id;
  id->channel = channel;
  id->context = context;
  id->ps = ps;
  id->qp_type = qp_type;
  ids_.insert(id);
  return id;
}

void Library::delete_id(std::unique_lock<UncancelledMutex>& lock, Id* id) {
  unwatch(*id);
  end_connection(*id);
  // Requests that the application has not seen are nobody's.
  std::vector<Id*> unseen;
  Channel* channel = of(id->channel);
  std::erase_if(channel->events, [&](Event* event) {
    if (event->counted != id && event->child != id) return false;
    if (event->child != nullptr && event->child != id) unseen.push_back(event->child);
    tell_count(channel->fd, false);
    delete event;
    return true;
  });
  for (Id* child : unseen) {
    end_connection(*child);
    ids_.erase(child);
    delete child;
  }
  flush();
  ids_.erase(id);
  acknowledged_.wait(lock, [&] { return id->events_acknowledged == id->events_given; });
  if (id->synchronous) delete_channel(channel);
  delete id;
}

Event* Library::push(Id& id, rdma_cm_event_type type, int status) {
  auto* event = new Event;
  event->id = &id;
  event->event = type;
  event->status = status;
  event->counted = &id;
  Channel* channel = of(id.channel);
  channel->events.push_back(event);
  tell_count(channel->fd, true);
  return event;
}

Event* Library::take(Channel& channel) {
  if (channel.events.empty()) return nullptr;
  Event* event = channel.events.front();
  channel.events.pop_front();
  tell_count(channel.fd, false);
  ++event->counted->events_given;
  given_.insert(event);
  return event;
}

void Library::acknowledge(Event* event) {
  given_.erase(event);
  ++event->counted->events_acknowledged;
  delete event;
  acknowledged_.notify_all();
}

void Library::move_events(Id& id, Channel& to) {
  Channel* from = of(id.channel);
  std::erase_if(from->events, [&](Event* event) {
    if (event->counted != &id) return false;
    if (event->child != nullptr) event->child->channel = &to;
    tell_count(from->fd, false);
    to.events.push_back(event);
    tell_count(to.fd, true);
    return true;
  });
  id.channel = &to;
}

Result<void> Library::watch(Id& id) {
  FV_TRY(agent());
  const uint64_t number = next_listener_++;
  listeners_[number] = &id;
  listener_numbers_[&id] = number;
  for (const io::ManagementSocket& socket : id.sockets) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u64 = number;
    if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, socket.fd(), &event) != 0) {
      return Error::from_errno("cannot wait for requests");
    }
  }
  return {};
}

void Library::unwatch(Id& id) {
  const auto found = listener_numbers_.find(&id);
  if (found == listener_numbers_.end()) return;
  agent_->stop_listening(io::os_now(), found->second);
  listeners_.erase(found->second);
  listener_numbers_.erase(found);
  id.sockets.clear();  // which ends the waiting, too
}

void Library::listen(Id& id, size_t backlog) { agent_->listen(listener_numbers_.at(&id), backlog); }

void Library::bind_connection(Id& id, uint32_t connection) {
  id.connection = connection;
  by_connection_[connection] = &id;
}

void Library::end_connection(Id& id) {
  if (id.connection == 0) return;
  agent_->destroy(io::os_now(), id.connection);
  by_connection_.erase(id.connection);
  id.connection = 0;
}

// --- What the agent tells ---

namespace {

void give_data(Event& event, const proto::CmPrivateData& data, bool datagram) {
  event.data = data;
  const void* bytes = event.data.bytes.data();
  if (datagram) {
    event.param.ud.private_data = bytes;
    event.param.ud.private_data_len = data.size;
  } else {
    event.param.conn.private_data = bytes;
    event.param.conn.private_data_len = data.size;
  }
}

void give_end(Event& event, const proto::CmEnd& peer) {
  rdma_conn_param& conn = event.param.conn;
  // What the peer may start is what this end must be ready for, and the other way round.
  conn.responder_resources = peer.initiator_depth;
  conn.initiator_depth = peer.responder_resources;
  conn.flow_control = peer.flow_control;
  conn.retry_count = peer.retry_count;
  conn.rnr_retry_count = peer.rnr_retry_count;
  conn.srq = peer.srq;
  conn.qp_num = peer.qpn.value();
}

}  // namespace

void Library::on_request(const proto::CmEvent& event) {
  const auto found = listeners_.find(event.listener);
  const auto place = nics.find(event.path.local);
  if (found == listeners_.end() || !place.ok()) {
    agent_->destroy(io::os_now(), event.id);
    return;
  }
  Id& listener = *found->second;
  Id* child = new_id(of(listener.channel), listener.context, listener.ps, listener.qp_type);
  child->passive = true;
  child->state = IdState::kRequested;
  child->path = event.path;
  child->peer = event.peer;
  child->initiator_depth = event.peer.responder_resources;
  child->responder_resources = event.peer.initiator_depth;
  child->has_ack_timeout = listener.has_ack_timeout;
  child->ack_timeout = listener.ack_timeout;
  child->has_tos = listener.has_tos;
  child->tos = listener.tos;
  set_local(*child, {event.path.local, listener.local.port});
  set_remote(*child, {event.path.remote, event.remote_port});
  set_place(*child, *place);
  fill_path_record(*child);
  bind_connection(*child, event.id);
  Event* told = push(listener, RDMA_CM_EVENT_CONNECT_REQUEST);
  told->id = child;
  told->child = child;
  told->listen_id = &listener;
  if (!event.datagram) give_end(*told, event.peer);
  give_data(*told, event.private_data, event.datagram);
}

void Library::tell(const proto::CmEvent& event) {
  if (event.type == proto::CmEventType::kRequest) return on_request(event);
  const auto found = by_connection_.find(event.id);
  if (found == by_connection_.end()) return;
  Id& id = *found->second;
  switch (event.type) {
    case proto::CmEventType::kRequest:
      return;
    case proto::CmEventType::kReply: {
      id.peer = event.peer;
      if (event.datagram) {
        Event* told = push(id, RDMA_CM_EVENT_ESTABLISHED);
        rdma_ud_param& ud = told->param.ud;
        ud.qp_num = event.peer.qpn.value();
        ud.qkey = event.peer.qkey;
        const Gid gid = event.path.remote.to_gid();
        std::memcpy(ud.ah_attr.grh.dgid.raw, gid.data(), gid.size());
        ud.ah_attr.grh.sgid_index = id.gid_index;
        ud.ah_attr.grh.hop_limit = 64;
        ud.ah_attr.grh.traffic_class = id.path.traffic_class;
        ud.ah_attr.is_global = 1;
        ud.ah_attr.port_num = 1;
        id.state = IdState::kConnected;
        give_data(*told, event.private_data, true);
        return;
      }
      id.initiator_depth = event.peer.responder_resources;
      id.responder_resources = event.peer.initiator_depth;
      Event* told = push(id, RDMA_CM_EVENT_CONNECT_RESPONSE);
      told->completes_connect = true;
      give_end(*told, event.peer);
      give_data(*told, event.private_data, false);
      return;
    }
    case proto::CmEventType::kEstablished:
      id.state = IdState::kConnected;
      push(id, RDMA_CM_EVENT_ESTABLISHED);
      return;
    case proto::CmEventType::kRejected:
      id.state = IdState::kDisconnected;
      give_data(*push(id, event.datagram ? RDMA_CM_EVENT_UNREACHABLE : RDMA_CM_EVENT_REJECTED,
                      event.reason),
                event.private_data, event.datagram);
      return;
    case proto::CmEventType::kUnreachable:
      id.state = IdState::kDisconnected;
      push(id, RDMA_CM_EVENT_UNREACHABLE, -ETIMEDOUT);
      return;
    case proto::CmEventType::kDisconnected:
      id.state = IdState::kDisconnected;
      push(id, RDMA_CM_EVENT_DISCONNECTED, event.timed_out ? -ETIMEDOUT : 0);
      return;
    case proto::CmEventType::kTimewaitExit:
      push(id, RDMA_CM_EVENT_TIMEWAIT_EXIT);
      return;
  }
}

}  // namespace farverbs::rdmacm
