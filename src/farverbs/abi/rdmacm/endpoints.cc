// Endpoints in one call: rdma_getaddrinfo(3), rdma_create_ep(3), rdma_get_request(3).
#include <netdb.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include <rdma/rdma_verbs.h>

#include "farverbs/abi/rdmacm/library.h"

namespace farverbs::rdmacm {
namespace {

constexpr int kResolveMs = 2000;

template <typename T>
T* copy_of(const void* from, size_t size) {
  void* copy = std::malloc(size);
  if (copy != nullptr) std::memcpy(copy, from, size);
  return static_cast<T*>(copy);
}

rdma_port_space space_of(int port_space, int qp_type) {
  if (port_space != 0) return static_cast<rdma_port_space>(port_space);
  return qp_type == IBV_QPT_UD ? RDMA_PS_UDP : RDMA_PS_TCP;
}

}  // namespace
}  // namespace farverbs::rdmacm

using namespace farverbs;
using namespace farverbs::rdmacm;

extern "C" {

int rdma_getaddrinfo(const char* node, const char* service, const rdma_addrinfo* hints,
                     rdma_addrinfo** res) {
  if (res == nullptr || (node == nullptr && service == nullptr && hints == nullptr)) {
    return fail(EINVAL);
  }
  rdma_addrinfo wanted{};
  if (hints != nullptr) wanted = *hints;
  const bool passive = (wanted.ai_flags & RAI_PASSIVE) != 0;
  addrinfo names{};
  names.ai_flags = passive ? AI_PASSIVE : 0;
  if ((wanted.ai_flags & RAI_NUMERICHOST) != 0) names.ai_flags |= AI_NUMERICHOST;
  names.ai_family = wanted.ai_family;
  if (wanted.ai_port_space == RDMA_PS_UDP) names.ai_socktype = SOCK_DGRAM;
  if (names.ai_socktype == 0) names.ai_socktype = SOCK_STREAM;
  auto* info = static_cast<rdma_addrinfo*>(std::calloc(1, sizeof(rdma_addrinfo)));
  if (info == nullptr) return fail(ENOMEM);
  info->ai_flags = wanted.ai_flags;
  info->ai_qp_type = wanted.ai_qp_type;
  if (info->ai_qp_type == 0) {
    info->ai_qp_type = wanted.ai_port_space == RDMA_PS_UDP || wanted.ai_port_space == RDMA_PS_IPOIB
                           ? IBV_QPT_UD
                           : IBV_QPT_RC;
  }
  info->ai_port_space = space_of(wanted.ai_port_space, info->ai_qp_type);
  if (node != nullptr || service != nullptr) {
    addrinfo* found = nullptr;
    if (const int failed = ::getaddrinfo(node, service, &names, &found); failed != 0) {
      std::free(info);
      return failed;
    }
    info->ai_family = found->ai_family;
    auto* address = copy_of<sockaddr>(found->ai_addr, found->ai_addrlen);
    char* name = found->ai_canonname != nullptr ? ::strdup(found->ai_canonname) : nullptr;
    (passive ? info->ai_src_addr : info->ai_dst_addr) = address;
    (passive ? info->ai_src_len : info->ai_dst_len) = found->ai_addrlen;
    (passive ? info->ai_src_canonname : info->ai_dst_canonname) = name;
    ::freeaddrinfo(found);
    if (address == nullptr) {
      rdma_freeaddrinfo(info);
      return fail(ENOMEM);
    }
  } else {
    info->ai_family = wanted.ai_family;
  }
  if (info->ai_src_addr == nullptr && wanted.ai_src_len > 0 && wanted.ai_src_addr != nullptr) {
    info->ai_src_addr = copy_of<sockaddr>(wanted.ai_src_addr, wanted.ai_src_len);
    info->ai_src_len = wanted.ai_src_len;
  }
  if (info->ai_dst_addr == nullptr && wanted.ai_dst_len > 0 && wanted.ai_dst_addr != nullptr) {
    info->ai_dst_addr = copy_of<sockaddr>(wanted.ai_dst_addr, wanted.ai_dst_len);
    info->ai_dst_len = wanted.ai_dst_len;
  }
  if (info->ai_family == 0 && info->ai_src_addr != nullptr) {
    info->ai_family = info->ai_src_addr->sa_family;
  }
  *res = info;
  return 0;
}

void rdma_freeaddrinfo(rdma_addrinfo* res) {
  while (res != nullptr) {
    rdma_addrinfo* next = res->ai_next;
    std::free(res->ai_src_addr);
    std::free(res->ai_dst_addr);
    std::free(res->ai_src_canonname);
    std::free(res->ai_dst_canonname);
    std::free(res->ai_route);
    std::free(res->ai_connect);
    std::free(res);
    res = next;
  }
}

int rdma_create_ep(rdma_cm_id** id, rdma_addrinfo* res, ibv_pd* pd,
                   ibv_qp_init_attr* qp_init_attr) {
  if (id == nullptr || res == nullptr) return fail(EINVAL);
  rdma_cm_id* made = nullptr;
  if (create_id(nullptr, &made, nullptr, space_of(res->ai_port_space, res->ai_qp_type),
                static_cast<ibv_qp_type>(res->ai_qp_type)) != 0) {
    return -1;
  }
  int failed = 0;
  if ((res->ai_flags & RAI_PASSIVE) != 0) {
    failed = rdma_bind_addr(made, res->ai_src_addr);
    if (failed == 0 && qp_init_attr != nullptr) {
      of(made)->qp_attributes = std::make_unique<ibv_qp_init_attr>(*qp_init_attr);
      of(made)->qp_attributes->qp_type = made->qp_type;
      made->pd = pd;
    }
  } else {
    failed = rdma_resolve_addr(made, res->ai_src_addr, res->ai_dst_addr, kResolveMs);
    if (failed == 0) failed = rdma_resolve_route(made, kResolveMs);
    if (failed == 0 && qp_init_attr != nullptr) {
      qp_init_attr->qp_type = made->qp_type;
      failed = rdma_create_qp(made, pd, qp_init_attr);
    }
  }
  if (failed != 0) {
    const int code = errno;
    rdma_destroy_ep(made);
    return fail(code);
  }
  *id = made;
  return 0;
}

void rdma_destroy_ep(rdma_cm_id* id) {
  {
    Library& library = Library::get();
    const std::lock_guard lock(library.mutex);
    if (!library.alive(id)) return;
  }
  if (id->qp != nullptr) rdma_destroy_qp(id);
  if (id->srq != nullptr) rdma_destroy_srq(id);
  rdma_destroy_id(id);
}

int rdma_get_request(rdma_cm_id* listen, rdma_cm_id** id) {
  if (id == nullptr) return fail(EINVAL);
  {
    Library& library = Library::get();
    const std::lock_guard lock(library.mutex);
    if (!library.alive(listen) || !of(listen)->synchronous) return fail(EINVAL);
  }
  if (listen->event != nullptr) {
    rdma_ack_cm_event(listen->event);
    listen->event = nullptr;
  }
  rdma_cm_event* event = nullptr;
  if (rdma_get_cm_event(listen->channel, &event) != 0) return -1;
  int code = 0;
  if (event->status != 0) {
    code = event->status < 0 ? -event->status : event->status;
  } else if (event->event != RDMA_CM_EVENT_CONNECT_REQUEST) {
    code = EINVAL;
  } else if (of(listen)->qp_attributes != nullptr) {
    ibv_qp_init_attr attributes = *of(listen)->qp_attributes;
    if (attributes.srq == nullptr && listen->srq != nullptr) attributes.srq = listen->srq;
    if (rdma_create_qp(event->id, listen->pd, &attributes) != 0) code = errno;
  }
  if (code != 0) {
    if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST) rdma_destroy_id(event->id);
    rdma_ack_cm_event(event);
    return fail(code);
  }
  // Acknowledged when the next request is asked for, as long as its private data may be read.
  listen->event = event;
  event->id->event = nullptr;
  *id = event->id;
  return 0;
}

}  // extern "C"
