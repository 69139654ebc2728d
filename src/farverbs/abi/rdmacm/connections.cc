// Setting connections up and ending them: rdma_connect(3), rdma_accept(3), rdma_reject(3),
// rdma_establish(3), rdma_disconnect(3), rdma_notify(3), and the ECE calls.
#include <cerrno>
#include <cstring>

#include "farverbs/abi/rdmacm/library.h"
#include "farverbs/io/os_clock.h"

namespace farverbs::rdmacm {
namespace {

constexpr uint8_t kDefaultAckTimeout = 19;  // 2.1 s: what other implementations ask for
constexpr uint8_t kDefaultRetries = 7;
constexpr uint8_t kMostDepth = 128;  // of READs under way, if the caller leaves it to us

bool is_known(Library& library, const rdma_cm_id* id) {
  const std::lock_guard lock(library.mutex);
  return library.alive(id);
}

std::span<const std::byte> private_data_of(const rdma_conn_param* param) {
  if (param == nullptr || param->private_data == nullptr) return {};
  return {static_cast<const std::byte*>(param->private_data), param->private_data_len};
}

uint32_t random_psn() {
  static io::OsEntropy entropy;  // under the library's lock
  return static_cast<uint32_t>(entropy.next()) & Psn::kMask;
}

uint8_t depth_of(uint8_t asked, uint8_t otherwise) {
  static_assert(RDMA_MAX_RESP_RES == 0xFF && RDMA_MAX_INIT_DEPTH == 0xFF);
  return std::min(asked == 0xFF ? otherwise : asked, kMostDepth);
}

void describe_own_end(Id& id, const rdma_conn_param* param) {
  proto::CmEnd& own = id.own;
  own.guid = id.nic->guid;
  own.starting_psn = Psn(random_psn());
  own.qpn = Qpn(id.qp != nullptr ? id.qp->qp_num : param != nullptr ? param->qp_num : 0);
  own.srq = id.qp != nullptr ? id.qp->srq != nullptr : param != nullptr && param->srq != 0;
  own.retry_count = kDefaultRetries;
  own.rnr_retry_count = kDefaultRetries;
  if (param != nullptr) {
    own.flow_control = param->flow_control != 0;
    own.retry_count = std::min<uint8_t>(param->retry_count, 7);
    own.rnr_retry_count = std::min<uint8_t>(param->rnr_retry_count, 7);
  }
  if (id.qp_type == IBV_QPT_UC) own.transport = static_cast<uint8_t>(wire::CmTransport::uc);
  own.qkey = RDMA_UDP_QKEY;
  own.ack_timeout = id.has_ack_timeout ? id.ack_timeout : kDefaultAckTimeout;
}

// A REQ or SIDR_REQ; with the lock held.
int request(Library& library, Id& id, const rdma_conn_param* param) {
  const bool again = id.state == IdState::kDisconnected && !id.passive;
  if (id.state != IdState::kRouteResolved && !again) return fail(EINVAL);
  if (!id.is_datagram() && id.qp == nullptr && param == nullptr) return fail(EINVAL);
  const auto agent = library.agent();
  if (!agent.ok()) return fail(agent.error());
  library.end_connection(id);
  describe_own_end(id, param);
  proto::CmConnect connect;
  connect.path = id.path;
  connect.service_id = wire::ip_service_id(static_cast<uint16_t>(id.ps), id.remote.port);
  connect.source_port = id.local.port;
  connect.datagram = id.is_datagram();
  connect.private_data = private_data_of(param);
  id.own.path_mtu = id.path_record.mtu;
  id.initiator_depth =
      depth_of(param != nullptr ? param->initiator_depth : uint8_t{0xFF}, kMostDepth);
  id.responder_resources =
      depth_of(param != nullptr ? param->responder_resources : uint8_t{0xFF}, kMostDepth);
  id.own.initiator_depth = id.initiator_depth;
  id.own.responder_resources = id.responder_resources;
  connect.end = id.own;
  const auto connection = (*agent)->connect(io::os_now(), connect);
  if (!connection.ok()) return fail(connection.error());
  library.bind_connection(id, *connection);
  id.state = IdState::kConnecting;
  library.flush();
  return 0;
}

int accept_datagram(Library& library, Id& id, const rdma_conn_param* param) {
  describe_own_end(id, param);
  const auto agent = library.agent();
  if (!agent.ok()) return fail(agent.error());
  const auto answered = (*agent)->answer_datagram(
      io::os_now(), id.connection, wire::SidrStatus::valid, id.own, private_data_of(param));
  library.flush();
  if (!answered.ok()) return fail(answered.error());
  id.state = IdState::kConnected;
  return 0;
}

int establish(Library& library, Id& id) {
  const auto agent = library.agent();
  if (!agent.ok()) return fail(agent.error());
  const auto done = (*agent)->establish(io::os_now(), id.connection);
  library.flush();
  if (!done.ok()) return fail(done.error());
  id.state = IdState::kConnected;
  return 0;
}

int reject(rdma_cm_id* id, const void* private_data, uint8_t size, wire::CmReject reason) {
  if (private_data == nullptr && size != 0) return fail(EINVAL);
  Library& library = Library::get();
  const std::lock_guard lock(library.mutex);
  if (!library.alive(id) || of(id)->connection == 0) return fail(EINVAL);
  const auto agent = library.agent();
  if (!agent.ok()) return fail(agent.error());
  const auto done = (*agent)->reject(io::os_now(), of(id)->connection, reason,
                                     {static_cast<const std::byte*>(private_data), size});
  library.flush();
  return done.ok() ? 0 : fail(done.error());
}

}  // namespace
}  // namespace farverbs::rdmacm

using namespace farverbs;
using namespace farverbs::rdmacm;

extern "C" {

int rdma_connect(rdma_cm_id* id, rdma_conn_param* conn_param) {
  Library& library = Library::get();
  {
    const std::lock_guard lock(library.mutex);
    if (!library.alive(id)) return fail(EINVAL);
    if (const int failed = request(library, *of(id), conn_param); failed != 0) return failed;
  }
  return complete(of(id));
}

int rdma_accept(rdma_cm_id* id, rdma_conn_param* conn_param) {
  Library& library = Library::get();
  if (!is_known(library, id)) return fail(EINVAL);
  Id& passive = *of(id);
  {
    const std::lock_guard lock(library.mutex);
    if (passive.connection == 0) return fail(EINVAL);
    // An active end without a QP of the identifier's has got its response.
    if (!passive.passive) return establish(library, passive);
    if (passive.state != IdState::kRequested) return fail(EINVAL);
    if (passive.is_datagram()) return accept_datagram(library, passive, conn_param);
    if (passive.qp == nullptr && conn_param == nullptr) return fail(EINVAL);
    describe_own_end(passive, conn_param);
    if (conn_param != nullptr) {
      passive.initiator_depth = depth_of(conn_param->initiator_depth, passive.initiator_depth);
      passive.responder_resources =
          depth_of(conn_param->responder_resources, passive.responder_resources);
    }
    passive.initiator_depth = std::min(passive.initiator_depth, kMostDepth);
    passive.responder_resources = std::min(passive.responder_resources, kMostDepth);
    passive.own.initiator_depth = passive.initiator_depth;
    passive.own.responder_resources = passive.responder_resources;
    if (private_data_of(conn_param).size() > wire::CmRep::kPrivateBytes) return fail(EINVAL);
  }
  // Ready before the peer may know of it.
  if (passive.qp != nullptr && to_ready(passive) != 0) return -1;
  {
    const std::lock_guard lock(library.mutex);
    const auto agent = library.agent();
    if (!agent.ok()) return fail(agent.error());
    const auto accepted = (*agent)->accept(io::os_now(), passive.connection, passive.own,
                                           private_data_of(conn_param));
    if (accepted.ok()) passive.state = IdState::kAccepted;
    library.flush();
    if (!accepted.ok()) return fail(accepted.error());
  }
  return complete(&passive);
}

int rdma_establish(rdma_cm_id* id) {
  Library& library = Library::get();
  const std::lock_guard lock(library.mutex);
  if (!library.alive(id) || id->qp != nullptr || of(id)->passive) return fail(EINVAL);
  return establish(library, *of(id));
}

int rdma_reject(rdma_cm_id* id, const void* private_data, uint8_t private_data_len) {
  return reject(id, private_data, private_data_len, wire::CmReject::consumer_defined);
}

int rdma_reject_ece(rdma_cm_id* id, const void* private_data, uint8_t private_data_len) {
  constexpr auto kVendorOptionNotSupported = static_cast<wire::CmReject>(35);
  return reject(id, private_data, private_data_len, kVendorOptionNotSupported);
}

int rdma_disconnect(rdma_cm_id* id) {
  Library& library = Library::get();
  if (!is_known(library, id)) return fail(EINVAL);
  Id& ending = *of(id);
  {
    const std::lock_guard lock(library.mutex);
    if (ending.connection == 0) return fail(EINVAL);
    if (ending.is_datagram()) return fail(EINVAL);
  }
  if (ending.qp != nullptr) (void)to_error(ending);
  {
    const std::lock_guard lock(library.mutex);
    const auto agent = library.agent();
    if (!agent.ok()) return fail(agent.error());
    const auto done = (*agent)->disconnect(io::os_now(), ending.connection);
    library.flush();
    // What has ended already has been told of.
    if (!done.ok() && ending.state != IdState::kDisconnected) return fail(done.error());
  }
  return complete(&ending);
}

int rdma_notify(rdma_cm_id* id, ibv_event_type event) {
  Library& library = Library::get();
  const std::lock_guard lock(library.mutex);
  if (!library.alive(id)) return fail(EINVAL);
  if (event != IBV_EVENT_COMM_EST) return 0;
  const auto agent = library.agent();
  if (!agent.ok()) return fail(agent.error());
  const auto done = (*agent)->on_data(io::os_now(), of(id)->connection);
  library.flush();
  return done.ok() ? 0 : fail(done.error());
}

int rdma_set_local_ece(rdma_cm_id* id, ibv_ece* ece) {
  Library& library = Library::get();
  const std::lock_guard lock(library.mutex);
  if (!library.alive(id) || ece == nullptr || id->qp != nullptr) return fail(EINVAL);
  of(id)->local_ece = *ece;
  return 0;
}

int rdma_get_remote_ece(rdma_cm_id* id, ibv_ece* ece) {
  Library& library = Library::get();
  const std::lock_guard lock(library.mutex);
  if (!library.alive(id) || ece == nullptr || id->qp != nullptr) return fail(EINVAL);
  // Enhancements of a vendor's; ours are agreed on in band.
  *ece = {};
  return 0;
}

}  // extern "C"
