// What is behind the pointers of librdmacm's callers: identifiers, event channels and events, each
// with the public part (rdma/rdma_cma.h) first. All members are guarded by Library::mutex but for
// the public ones, which are the application's, too.
#pragma once

#include <rdma/rdma_cma.h>

#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <vector>

#include "farverbs/base/ip_address.h"
#include "farverbs/io/management.h"
#include "farverbs/proto/cm_agent.h"

namespace farverbs::rdmacm {

struct Id;
struct Nic;
struct Event;

// The descriptor is a semaphore with one count for each event in the queue. Both change together
// under the lock, so that whoever holds it never blocks, whatever the descriptor's flags.
struct Channel : rdma_event_channel {
  std::deque<Event*> events;
};

struct Group {
  sockaddr_storage address{};
  ibv_gid gid{};
  bool attached = false;
  void* context = nullptr;
};

struct Event : rdma_cm_event {
  Event() : rdma_cm_event{} {}
  Id* counted = nullptr;           // whose destruction waits for this event's acknowledgement
  Id* child = nullptr;             // of a connection request: the new identifier
  bool completes_connect = false;  // a REP came: the QP and an RTU are still to be seen to
  std::shared_ptr<Group> group;    // of a join
  proto::CmPrivateData data;
};

enum class IdState : uint8_t {
  kIdle,
  kBound,
  kListening,
  kAddressResolved,
  kRouteResolved,
  kConnecting,
  kRequested,  // passive: not answered yet
  kAccepted,
  kConnected,
  kDisconnected,
};

struct Id : rdma_cm_id {
  Id() : rdma_cm_id{} {}
  IdState state = IdState::kIdle;
  bool synchronous = false;
  bool is_datagram() const { return qp_type == IBV_QPT_UD; }

  Endpoint local;
  Endpoint remote;
  bool bound_to_any = false;  // 0.0.0.0 or ::
  Nic* nic = nullptr;
  uint8_t gid_index = 0;
  std::vector<io::ManagementSocket> sockets;  // the names that it has bound

  // Of rdma_set_option().
  bool reuse_address = false;
  bool v6_only = false;
  bool has_tos = false;
  uint8_t tos = 0;
  bool has_ack_timeout = false;
  uint8_t ack_timeout = 0;

  uint32_t connection = 0;  // the agent's; 0: none
  bool passive = false;
  proto::CmPath path;
  proto::CmEnd own;
  proto::CmEnd peer;
  uint8_t initiator_depth = 0;      // READs that this end may have under way
  uint8_t responder_resources = 0;  // ... and may be asked for
  ibv_sa_path_rec path_record{};
  ibv_ece local_ece{};

  uint64_t events_given = 0;
  uint64_t events_acknowledged = 0;
  std::list<std::shared_ptr<Group>> groups;
  // rdma_create_ep(): what the QPs of its connections are like.
  std::unique_ptr<ibv_qp_init_attr> qp_attributes;
  bool own_send_cq = false;
  bool own_recv_cq = false;
};

inline Channel* of(rdma_event_channel* channel) { return static_cast<Channel*>(channel); }
inline Id* of(rdma_cm_id* id) { return static_cast<Id*>(id); }
inline Event* of(rdma_cm_event* event) { return static_cast<Event*>(event); }

}  // namespace farverbs::rdmacm
