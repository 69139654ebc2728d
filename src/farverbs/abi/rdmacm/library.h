// Library: what all calls of librdmacm share in a process: the connection manager's agent, the
// devices, and a thread that takes what arrives for this process and sees to deadlines. Everything
// is under one mutex, which nobody holds while it waits. Datagrams are sent by whichever thread
// causes them, before its call returns: a process may end right after.
#pragma once

#include <pthread.h>

#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_map>
#include <unordered_set>

#include "farverbs/abi/rdmacm/nics.h"
#include "farverbs/abi/rdmacm/objects.h"
#include "farverbs/io/file_descriptor.h"
#include "farverbs/io/os_entropy.h"
#include "farverbs/io/waker.h"

namespace farverbs::rdmacm {

// Programs cancel threads that wait for events (pthread_cancel(3)). None ends while it holds this.
class UncancelledMutex {
 public:
  void lock() {
    int before = 0;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    mutex_.lock();
    before_ = before;
  }
  void unlock() {
    const int before = before_;
    mutex_.unlock();
    pthread_setcancelstate(before, nullptr);
  }

 private:
  std::mutex mutex_;
  int before_ = PTHREAD_CANCEL_ENABLE;  // the holder's
};

class Library {
 public:
  // The process's own; a child of a fork gets a new one.
  static Library& get();

  UncancelledMutex mutex;

  // --- All below with the mutex held ---

  // The agent, started with its thread at the first call. EUSERS: no agent number is free.
  Result<proto::CmAgent*> agent();
  Nics nics;

  bool alive(const rdma_cm_id* id) const { return ids_.contains(of(const_cast<rdma_cm_id*>(id))); }
  bool alive(const rdma_event_channel* channel) const {
    return channels_.contains(of(const_cast<rdma_event_channel*>(channel)));
  }
  bool alive(const rdma_cm_event* event) const {
    return given_.contains(of(const_cast<rdma_cm_event*>(event)));
  }

  // nullptr with errno set.
  Channel* new_channel();
  void delete_channel(Channel* channel);
  // One of the last that were deleted.
  bool was_deleted(const rdma_event_channel* channel) const;
  Id* new_id(Channel* channel, void* context, rdma_port_space ps, ibv_qp_type qp_type);
  // Waits until its events are acknowledged.
  void delete_id(std::unique_lock<UncancelledMutex>& lock, Id* id);

  // Queues an event of the identifier.
  Event* push(Id& id, rdma_cm_event_type type, int status = 0);
  // The oldest event of the channel, which is now the application's; nullptr: none.
  Event* take(Channel& channel);
  void acknowledge(Event* event);
  void move_events(Id& id, Channel& to);

  // Datagrams for this listener come from its sockets from here on.
  Result<void> watch(Id& id);
  void unwatch(Id& id);
  // Its requests are taken; so many may wait for an answer.
  void listen(Id& id, size_t backlog);
  // Sends what the agent has to send and queues what it has to tell.
  void flush();
  void bind_connection(Id& id, uint32_t connection);
  void end_connection(Id& id);

 private:
  Library() = default;
  Result<void> start();
  void run();
  void receive(const io::ManagementSocket& socket, uint64_t listener);
  void tell(const proto::CmEvent& event);
  void on_request(const proto::CmEvent& event);
  static void before_fork();
  static void in_parent();
  static void in_child();
  static void at_exit();

  io::OsEntropy entropy_;
  std::optional<proto::CmAgent> agent_;
  std::optional<io::ManagementSocket> socket_;
  std::optional<io::Waker> waker_;
  io::FileDescriptor epoll_;
  std::thread::id runner_;
  Time sleeps_until_;  // of the thread
  std::condition_variable_any acknowledged_;

  std::unordered_set<Id*> ids_;
  std::unordered_set<Channel*> channels_;
  std::deque<const rdma_event_channel*> deleted_channels_;
  std::unordered_set<Event*> given_;
  std::unordered_map<uint32_t, Id*> by_connection_;
  // Sockets are known to the thread by number, because an identifier may be gone when it looks.
  std::unordered_map<uint64_t, Id*> listeners_;
  std::unordered_map<Id*, uint64_t> listener_numbers_;
  uint64_t next_listener_ = 1;
};

// errno and -1, as librdmacm's calls return.
int fail(int code);
inline int fail(const Error& error) { return fail(error.code); }

// The event that a synchronous identifier waits for is its `event` afterwards; 0 at once for
// others.
int complete(Id* id);
// rdma_create_id() with a QP type of the caller's.
int create_id(rdma_event_channel* channel, rdma_cm_id** id, void* context, rdma_port_space ps,
              ibv_qp_type qp_type);

sockaddr_storage to_sockaddr(const Endpoint& endpoint);
// Nothing for families that are not IPv4 or IPv6. An IPv4-mapped address is IPv4.
std::optional<Endpoint> to_endpoint(const sockaddr* address);
size_t sockaddr_size(const sockaddr* address);
inline uint64_t service_id_of(const Id& id) {
  return wire::ip_service_id(static_cast<uint16_t>(id.ps), id.local.port);
}
void set_local(Id& id, const Endpoint& local);
void set_remote(Id& id, const Endpoint& remote);
void set_place(Id& id, const Nics::Place& place);
void fill_path_record(Id& id);

// The identifier with the device that it is on, and that device's default domain, whether it has
// been told of it or not; nullptr: it is on none.
Id* with_device(rdma_cm_id* id);

// Of the QP that is the identifier's: what rdma_connect() and rdma_accept() do with it.
int to_ready(Id& id);     // INIT, RTR, RTS for what the connection's ends have agreed on
int to_error(Id& id);     // ERR
void release_qp(Id& id);  // and what was made for it

}  // namespace farverbs::rdmacm
