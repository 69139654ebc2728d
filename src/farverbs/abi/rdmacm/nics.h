// Nics: the RDMA devices of this process as a connection manager needs them: which of them has a
// local address, and a GSI QP on each to send with. Only libibverbs' public calls are used.
#pragma once

#include <infiniband/verbs.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "farverbs/base/ip_address.h"
#include "farverbs/base/result.h"
#include "farverbs/base/time.h"
#include "farverbs/proto/cm_agent.h"

namespace farverbs::rdmacm {

struct Nic {
  ibv_context* context = nullptr;
  std::string name;
  uint64_t guid = 0;     // host order
  ibv_pd* pd = nullptr;  // for QPs whose owner gave none, and for the GSI QP
  ibv_cq* cq = nullptr;
  ibv_qp* gsi = nullptr;
  unsigned unpolled = 0;
  ibv_mtu mtu = IBV_MTU_1024;
  Time mtu_asked = Time::never();
  std::map<std::tuple<IpAddress, uint8_t, uint8_t, uint8_t>, ibv_ah*> handles;
};

class Nics {
 public:
  // Where a local address is; ENODEV if no device has it.
  struct Place {
    Nic* nic = nullptr;
    uint8_t gid_index = 0;
  };
  Result<Place> find(const IpAddress& local);
  // Opens what is there and not open yet.
  void open_all();
  const std::vector<std::unique_ptr<Nic>>& all() const { return nics_; }

  // The device takes what comes for its addresses from here on.
  static bool prepare(Nic& nic);
  // In the calling thread. What cannot be sent is lost, as on any network.
  void send(const proto::CmOutgoing& message);
  // Before the process ends: sends what is still queued, and passes on what has come to it for
  // others of this host. Waits a quarter of a second at most.
  void finish();

  // What the device's port can: enum ibv_mtu.
  static ibv_mtu active_mtu(Nic& nic);

 private:
  static void poll(Nic& nic);
  std::optional<Place> look(const IpAddress& local) const;

  std::vector<std::unique_ptr<Nic>> nics_;
  // A connection's messages come from few addresses: no question to the device for each.
  std::map<IpAddress, Place> known_;
};

}  // namespace farverbs::rdmacm
