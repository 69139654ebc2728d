// Datagrams: an rsocket of type SOCK_DGRAM (rsocket(7)). Its number is that of a UDP socket, over
// which two ends tell each other their QPs with the first data; from then on datagrams travel
// between UD QPs, of which this end has one for each local address that it speaks from. What is
// longer than the path takes goes by UDP. Datagrams are looked at when the application calls.
#pragma once

#include <rdma/rdma_cma.h>

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "farverbs/abi/rdmacm/rsocket_base.h"
#include "farverbs/base/ip_address.h"
#include "farverbs/io/file_descriptor.h"

namespace farverbs::rdmacm {

class Datagrams final : public Rsocket {
 public:
  // nullptr with errno set.
  static std::shared_ptr<Datagrams> create(int family);
  ~Datagrams() override;
  Datagrams(const Datagrams&) = delete;
  Datagrams& operator=(const Datagrams&) = delete;

  int number() const override { return udp_.get(); }
  int bind(const sockaddr* address) override;
  int connect(const sockaddr* address) override;
  ssize_t send(const void* from, size_t size, int flags, const sockaddr* to) override;
  ssize_t receive(void* to, size_t size, int flags, sockaddr* peer, socklen_t* length) override;
  int shut_down(int) override { return 0; }
  void close() override;
  int name(bool of_peer, sockaddr* address, socklen_t* size) override;
  short ready(short events, bool arm) override;
  void add_waits(std::vector<pollfd>& waits) override;

 private:
  // A QP at one local address.
  struct Outlet {
    ~Outlet();
    Endpoint local;
    rdma_cm_id* id = nullptr;
    ibv_mr* mr = nullptr;
    std::vector<std::byte> memory;  // receives, then sends, of kStride bytes each
    std::vector<uint32_t> free_sends;
    size_t longest = 0;  // message with its header
  };
  struct Peer {
    Outlet* outlet = nullptr;
    ibv_ah* handle = nullptr;
    uint32_t qpn = 0;
  };
  struct Message {
    Endpoint from;
    std::vector<std::byte> bytes;
  };

  explicit Datagrams(io::FileDescriptor udp, rdma_event_channel* channel)
      : udp_(std::move(udp)), channel_(channel) {}
  // The peer's entry, with this end's QP for it; nullptr with errno set.
  Peer* peer_of(const Endpoint& remote);
  Outlet* outlet_at(const IpAddress& local);
  void learn(Peer& peer, const Endpoint& remote, uint32_t qpn);
  ssize_t send_by_udp(const Peer& peer, const Endpoint& remote, const void* from, size_t size,
                      bool control);
  void post_receive(Outlet& outlet, uint32_t slot);
  // Takes what has come either way.
  void progress();
  void take_udp();
  void take_completions(Outlet& outlet);
  void keep(const Endpoint& from, std::span<const std::byte> bytes);

  io::FileDescriptor udp_;
  rdma_event_channel* channel_;
  std::map<IpAddress, std::unique_ptr<Outlet>> outlets_;
  std::map<Endpoint, Peer> peers_;
  std::optional<Endpoint> connected_;
  std::deque<Message> arrived_;
};

}  // namespace farverbs::rdmacm
