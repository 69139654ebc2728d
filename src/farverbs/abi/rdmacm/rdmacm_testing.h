// What tests of the drop-in librdmacm share. They link the shared libraries as any program would,
// and talk over the loopback within one process.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <rdma/rdma_cma.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <string_view>

namespace farverbs::rdmacm::testing {

inline constexpr int kPatienceMs = 60'000;

inline sockaddr_in loopback(uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}
inline sockaddr* generic(sockaddr_in& address) { return reinterpret_cast<sockaddr*>(&address); }

// The channel's next event, acknowledged by its end. TIMEWAIT_EXIT comes whenever it comes: it is
// passed over.
class Next {
 public:
  explicit Next(rdma_event_channel* channel) {
    do {
      if (event_ != nullptr) rdma_ack_cm_event(event_);
      event_ = nullptr;
      pollfd fd{channel->fd, POLLIN, 0};
      if (poll(&fd, 1, kPatienceMs) != 1) {
        ADD_FAILURE() << "no event came";
        return;
      }
      if (rdma_get_cm_event(channel, &event_) != 0) {
        ADD_FAILURE() << std::strerror(errno);
        return;
      }
    } while (event_->event == RDMA_CM_EVENT_TIMEWAIT_EXIT);
  }
  ~Next() {
    if (event_ != nullptr) rdma_ack_cm_event(event_);
  }
  Next(const Next&) = delete;
  Next& operator=(const Next&) = delete;
  rdma_cm_event* operator->() const { return event_; }
  std::string name() const { return event_ != nullptr ? rdma_event_str(event_->event) : "none"; }

 private:
  rdma_cm_event* event_ = nullptr;
};

inline std::string name_of_next(rdma_event_channel* channel) { return Next(channel).name(); }

inline ibv_qp_init_attr qp_attributes(ibv_qp_type type = IBV_QPT_RC) {
  ibv_qp_init_attr attributes{};
  attributes.cap = {8, 8, 1, 1, 64};
  attributes.qp_type = type;
  return attributes;
}

struct Channel {
  Channel() : channel(rdma_create_event_channel()) {}
  ~Channel() { rdma_destroy_event_channel(channel); }
  rdma_event_channel* channel;
};

// A listener of a port that the library chose, and an identifier that knows the way to it.
struct Ends {
  explicit Ends(rdma_port_space space = RDMA_PS_TCP) {
    EXPECT_EQ(rdma_create_id(server.channel, &listener, nullptr, space), 0);
    sockaddr_in any_port = loopback(0);
    EXPECT_EQ(rdma_bind_addr(listener, generic(any_port)), 0) << std::strerror(errno);
    EXPECT_EQ(rdma_listen(listener, 0), 0) << std::strerror(errno);
    active = resolved(space);
  }
  ~Ends() {
    for (rdma_cm_id* id : {active, passive, listener}) {
      if (id == nullptr) continue;
      if (id->qp != nullptr) rdma_destroy_qp(id);
      EXPECT_EQ(rdma_destroy_id(id), 0);
    }
  }
  Ends(const Ends&) = delete;
  Ends& operator=(const Ends&) = delete;

  rdma_cm_id* resolved(rdma_port_space space = RDMA_PS_TCP) {
    rdma_cm_id* id = nullptr;
    EXPECT_EQ(rdma_create_id(client.channel, &id, this, space), 0);
    sockaddr_in to = loopback(ntohs(rdma_get_src_port(listener)));
    EXPECT_EQ(rdma_resolve_addr(id, nullptr, generic(to), 1000), 0);
    EXPECT_EQ(name_of_next(client.channel), "RDMA_CM_EVENT_ADDR_RESOLVED");
    EXPECT_EQ(rdma_resolve_route(id, 1000), 0);
    EXPECT_EQ(name_of_next(client.channel), "RDMA_CM_EVENT_ROUTE_RESOLVED");
    return id;
  }
  static void add_qp(rdma_cm_id* id) {
    ibv_qp_init_attr attributes = qp_attributes(id->qp_type);
    EXPECT_EQ(rdma_create_qp(id, nullptr, &attributes), 0) << std::strerror(errno);
  }
  static rdma_conn_param parameters(std::string_view data = {}) {
    rdma_conn_param param{};
    param.private_data = data.data();
    param.private_data_len = static_cast<uint8_t>(data.size());
    param.responder_resources = param.initiator_depth = 1;
    param.retry_count = param.rnr_retry_count = 7;
    return param;
  }
  // Both ends with QPs of their own.
  void connect() {
    add_qp(active);
    rdma_conn_param param = parameters();
    EXPECT_EQ(rdma_connect(active, &param), 0);
    {
      Next request(server.channel);
      EXPECT_EQ(request.name(), "RDMA_CM_EVENT_CONNECT_REQUEST");
      passive = request->id;
    }
    add_qp(passive);
    EXPECT_EQ(rdma_accept(passive, &param), 0) << std::strerror(errno);
    EXPECT_EQ(name_of_next(client.channel), "RDMA_CM_EVENT_ESTABLISHED");
    EXPECT_EQ(name_of_next(server.channel), "RDMA_CM_EVENT_ESTABLISHED");
  }

  Channel server;
  Channel client;
  rdma_cm_id* listener = nullptr;
  rdma_cm_id* active = nullptr;
  rdma_cm_id* passive = nullptr;
};

}  // namespace farverbs::rdmacm::testing
