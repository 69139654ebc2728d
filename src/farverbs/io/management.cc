#include "farverbs/io/management.h"

#include <algorithm>
#include <array>
#include <cerrno>

namespace farverbs::io {
namespace {

using wire::CmAttribute;
using wire::CmReject;
using wire::CmRejected;
using wire::Mad;

FileDescriptor unix_socket() {
  return FileDescriptor(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

Mad rejection(const wire::MadHeader& header, uint32_t to, CmRejected message, CmReject reason) {
  wire::CmRej rej;
  rej.remote_comm_id = to;
  rej.message = static_cast<uint8_t>(message);
  rej.reason = static_cast<uint16_t>(reason);
  return make_cm_mad(CmAttribute::rej, header.transaction, rej);
}

// What the sender should know when there is nobody for its message; nothing for what answers itself
// or is best forgotten.
std::optional<Mad> answer_for_nobody(const wire::MadHeader& header,
                                     std::span<const std::byte> mad) {
  switch (static_cast<CmAttribute>(header.attribute)) {
    case CmAttribute::req:
      return rejection(header, wire::cm_body<wire::CmReq>(mad).local_comm_id, CmRejected::req,
                       CmReject::invalid_service_id);
    case CmAttribute::rep:
      return rejection(header, wire::cm_body<wire::CmRep>(mad).local_comm_id, CmRejected::rep,
                       CmReject::invalid_communication_id);
    case CmAttribute::rtu:
      // One that asks for an answer: its sender wants to know whether the connection's other end
      // lives.
      if (header.attribute_modifier == 0) return std::nullopt;
      return rejection(header, wire::cm_body<wire::CmRtu>(mad).local_comm_id, CmRejected::other,
                       CmReject::invalid_communication_id);
    case CmAttribute::dreq: {
      const auto dreq = wire::cm_body<wire::CmDreq>(mad);
      return make_cm_mad(CmAttribute::drep, header.transaction,
                         wire::CmDrep{dreq.remote_comm_id, dreq.local_comm_id, {}});
    }
    case CmAttribute::sidr_req: {
      const auto request = wire::cm_body<wire::CmSidrReq>(mad);
      wire::CmSidrRep reply;
      reply.request_id = request.request_id;
      reply.status = static_cast<uint8_t>(wire::SidrStatus::invalid_service_id);
      reply.service_id = request.service_id;
      return make_cm_mad(CmAttribute::sidr_rep, header.transaction, reply);
    }
    default:
      return std::nullopt;
  }
}

}  // namespace

Result<ManagementSocket> ManagementSocket::bind(const std::string& name) {
  FileDescriptor fd = unix_socket();
  if (!fd.valid()) return Error::from_errno("cannot open a unix socket");
  const int on = 1;
  if (setsockopt(fd.get(), SOL_SOCKET, SO_PASSCRED, &on, sizeof on) != 0) {
    return Error::from_errno("cannot ask for senders' credentials on a unix socket");
  }
  const AbstractAddress address(name);
  if (::bind(fd.get(), address.generic(), address.size) != 0) {
    return Error::from_errno("cannot bind the unix socket @" + name);
  }
  return ManagementSocket(std::move(fd));
}

bool ManagementSocket::receive(ManagementDatagram& datagram, Mad& storage) const {
  // What is rejected must not hide what follows, but must not keep the caller here either.
  for (int attempt = 0; attempt < 8; ++attempt) {
    RxBurst burst;
    const Handover taken = receive_handover(fd_.get(), storage, burst);
    if (taken == Handover::kNothing) return false;
    if (taken == Handover::kTaken && burst.bytes.size() == storage.size()) {
      datagram = {burst.source, burst.destination, burst.traffic_class, storage};
      return true;
    }
  }
  return false;
}

bool is_bound(const std::string& name) {
  const FileDescriptor fd = unix_socket();
  const AbstractAddress address(name);
  return ::connect(fd.get(), address.generic(), address.size) == 0;
}

Result<std::unique_ptr<ManagementRouter>> ManagementRouter::create() {
  FileDescriptor fd = unix_socket();
  if (!fd.valid()) return Error::from_errno("cannot open a unix socket");
  return std::unique_ptr<ManagementRouter>(new ManagementRouter(std::move(fd)));
}

void ManagementRouter::route(Time now, const ManagementDatagram& datagram) {
  const std::optional<wire::MadHeader> header = wire::cm_header(datagram.mad);
  if (!header || hand_to_owner(now, *header, datagram) != Handed::kNobody) return;
  const auto kind = static_cast<CmAttribute>(header->attribute);
  if ((kind != CmAttribute::req && kind != CmAttribute::sidr_req) ||
      patient_.size() >= kMostPatient) {
    return answer(*header, datagram);
  }
  Patient& patient = patient_.emplace_back(
      Patient{now, datagram.source, datagram.destination, datagram.traffic_class, {}});
  std::copy(datagram.mad.begin(), datagram.mad.end(), patient.mad.begin());
  patient_again_ = std::min(patient_again_, now + kLookAgainAfter);
  next_retry_ = std::min(next_retry_, patient_again_);
}

void ManagementRouter::answer(const wire::MadHeader& header, const ManagementDatagram& datagram) {
  const std::optional<Mad> mad = answer_for_nobody(header, datagram.mad);
  if (mad) {
    answers_.push_back({datagram.destination, datagram.source, datagram.traffic_class, *mad});
  }
}

std::optional<ManagementRouter::Answer> ManagementRouter::poll_answer() {
  if (answers_.empty()) return std::nullopt;
  const Answer first = answers_.front();
  answers_.pop_front();
  return first;
}

ManagementRouter::Handed ManagementRouter::hand_to_owner(Time now, const wire::MadHeader& header,
                                                         const ManagementDatagram& datagram) {
  Handed handed = Handed::kNobody;
  const auto to_service = [&](uint64_t service_id) {
    handed = hand_over(now, service_name(datagram.destination, service_id), datagram);
    if (handed != Handed::kNobody) return;
    const IpAddress any = datagram.destination.address.is_v4() ? IpAddress() : IpAddress::v6({});
    handed = hand_over(now, service_name({any, datagram.destination.port}, service_id), datagram);
  };
  const auto to_agent = [&](uint32_t communication_id) {
    const uint16_t agent = agent_of(communication_id);
    if (agent != 0) handed = hand_over(now, agent_name(agent), datagram);
  };
  switch (static_cast<CmAttribute>(header.attribute)) {
    case CmAttribute::req:
      to_service(wire::cm_body<wire::CmReq>(datagram.mad).service_id);
      break;
    case CmAttribute::sidr_req:
      to_service(wire::cm_body<wire::CmSidrReq>(datagram.mad).service_id);
      break;
    case CmAttribute::sidr_rep:
      to_agent(wire::cm_body<wire::CmSidrRep>(datagram.mad).request_id);
      break;
    default:
      // All others begin with the sender's identifier and the receiver's, as RTU does.
      to_agent(wire::cm_body<wire::CmRtu>(datagram.mad).remote_comm_id);
  }
  return handed;
}

ManagementRouter::Handed ManagementRouter::hand_over(Time now, const std::string& name,
                                                     const ManagementDatagram& datagram) {
  Waiting message{AbstractAddress(name), now, {}};
  RxBurst burst;
  burst.segment_size = datagram.mad.size();
  burst.source = datagram.source;
  burst.destination = datagram.destination;
  burst.traffic_class = datagram.traffic_class;
  put_handover_header(message.bytes.data(), burst);
  std::copy(datagram.mad.begin(), datagram.mad.end(), message.bytes.begin() + kHandoverHeaderBytes);
  const Handed handed = send(message.name, message.bytes);
  if (handed == Handed::kFull && waiting_.size() < kMostWaiting) {
    waiting_.push_back(message);
    waiting_again_ = std::min(waiting_again_, now + kRetryAfter);
    next_retry_ = std::min(next_retry_, waiting_again_);
  }
  return handed;
}

ManagementRouter::Handed ManagementRouter::send(const AbstractAddress& name,
                                                std::span<const std::byte> bytes) const {
  if (::sendto(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL, name.generic(), name.size) >=
      0) {
    return Handed::kDone;
  }
  return errno == ECONNREFUSED || errno == ENOENT ? Handed::kNobody : Handed::kFull;
}

void ManagementRouter::retry(Time now) {
  if (now >= waiting_again_) retry_waiting(now);
  if (now >= patient_again_) retry_patient(now);
  next_retry_ = std::min(waiting_again_, patient_again_);
}

void ManagementRouter::retry_patient(Time now) {
  for (size_t n = patient_.size(); n > 0; --n) {
    const Patient first = patient_.front();
    patient_.pop_front();
    const auto header = wire::cm_header(first.mad);
    if (hand_to_owner(now, *header, first.datagram()) != Handed::kNobody) continue;
    if (now - first.since >= kPatience) {
      answer(*header, first.datagram());
    } else {
      patient_.push_back(first);
    }
  }
  patient_again_ = patient_.empty() ? Time::never() : now + kLookAgainAfter;
}

void ManagementRouter::retry_waiting(Time now) {
  for (size_t n = waiting_.size(); n > 0; --n) {
    const Waiting& first = waiting_.front();
    const bool full = send(first.name, first.bytes) == Handed::kFull;
    if (full && now - first.since < kGiveUpAfter) waiting_.push_back(first);
    waiting_.pop_front();
  }
  waiting_again_ = waiting_.empty() ? Time::never() : now + kRetryAfter;
}

}  // namespace farverbs::io
