// The objects behind libibverbs' pointers. Each begins with the public struct that programs know
// (infiniband/verbs.h, rdma-core 44) and goes on with what is ours. An object holds its context, so
// that closing a device takes nothing away from what is still alive; its `users` are what refuses
// to destroy it (EBUSY).
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "farverbs/abi/ibverbs/async_queue.h"
#include "farverbs/abi/ibverbs/handles.h"
#include "farverbs/verbs/verbs.h"

namespace farverbs::abi {

// What follows the public part. Other libraries (libmlx5, libefa) look behind a device or a QP for
// a provider's private part, and must find nothing there that they could take for theirs.
using ProviderPart = uint64_t[64];

// An address of the interface, or one that it had. Its place in the table does not change as long
// as the soft NIC lives, since programs keep indices.
struct GidEntry {
  IpAddress address;
  bool present = false;
  bool opened = false;  // the soft NIC answers there
};

// One for each interface that was ever listed; it lives as long as the process, since programs keep
// such pointers after they freed the list.
struct Device : ibv_device {
  ProviderPart provider_part{};
  std::string interface_name;
  int index = 0;
  std::mutex mutex;                       // guards what follows
  std::weak_ptr<verbs::Device> soft_nic;  // shared by all contexts of this process
  std::vector<GidEntry> gids;
  bool up = false;  // as programs were told last
};

struct Context;
using ContextRef = std::shared_ptr<Context>;

struct Context : verbs_context {
  Context() : verbs_context{} {}
  ~Context();
  ProviderPart provider_part{};
  ContextRef self;  // until the device is closed
  Device* owner = nullptr;
  std::shared_ptr<verbs::Device> soft_nic;
  AsyncQueue async;
};

struct Pd : ibv_pd {
  ContextRef owner;
  std::shared_ptr<verbs::ProtectionDomain> domain;  // a parent domain shares its parent's
  std::atomic<int> users{0};
  // Of a parent domain: what it is made of.
  Pd* parent = nullptr;
  std::atomic<int>* thread_users = nullptr;
};

struct Mr : ibv_mr {
  ContextRef owner;
  std::unique_ptr<verbs::MemoryRegion> region;
  unsigned access = 0;
  std::shared_ptr<std::atomic<int>> device_memory;  // users of what it lies in, if it does
};

struct Mw : ibv_mw {
  ContextRef owner;
  std::unique_ptr<verbs::MemoryWindow> window;
};

struct Ah : ibv_ah {
  ContextRef owner;
  model::AddressVector vector;
};

struct Channel : ibv_comp_channel {
  ContextRef owner;
  std::unique_ptr<verbs::CompletionChannel> channel;
  std::atomic<int> users{0};
};

struct Cq : ibv_cq_ex {
  ContextRef owner;
  Channel* reports_to = nullptr;
  std::unique_ptr<verbs::CompletionQueue> queue;
  std::atomic<uint32_t> empty_polls{0};  // in a row; threads that poll together may lose a count
  std::atomic<bool> bulk{false};  // what it waits for is long messages, as the last post says
  std::atomic<int> users{0};
  AsyncElement element{AsyncElement::Kind::kCq};
  // The extended interface: the completion that is being read.
  verbs::WorkCompletion read;
  bool single_threaded = false;
  std::mutex poll_mutex;
};

struct Srq : ibv_srq {
  ContextRef owner;
  std::unique_ptr<verbs::SharedReceiveQueue> queue;
  ibv_srq_attr attributes{};
  std::atomic<int> users{0};
  AsyncElement element{AsyncElement::Kind::kSrq};
};

// What ibv_wr_*() calls have gathered between ibv_wr_start() and ibv_wr_complete().
struct SendBatch;
struct SendBatchDeleter {
  void operator()(SendBatch* batch) const;
};

struct Qp : ibv_qp_ex {
  ProviderPart provider_part{};
  ContextRef owner;
  std::unique_ptr<verbs::QueuePair> pair;
  ibv_qp_init_attr init{};
  uint8_t timeout = 0;  // as the program set it
  AsyncElement element{AsyncElement::Kind::kQp};
  std::unique_ptr<SendBatch, SendBatchDeleter> batch;  // only if made for the extended interface
};

// From what a program handed in to what is behind it; it must be alive.
inline Context& of(ibv_context* context) {
  return *static_cast<Context*>(reinterpret_cast<verbs_context*>(reinterpret_cast<char*>(context) -
                                                                 offsetof(verbs_context, context)));
}
inline Device& of(ibv_device* device) { return *static_cast<Device*>(device); }
inline Pd& of(ibv_pd* pd) { return *static_cast<Pd*>(pd); }
inline Mr& of(ibv_mr* mr) { return *static_cast<Mr*>(mr); }
inline Mw& of(ibv_mw* mw) { return *static_cast<Mw*>(mw); }
inline Ah& of(ibv_ah* ah) { return *static_cast<Ah*>(ah); }
inline Channel& of(ibv_comp_channel* channel) { return *static_cast<Channel*>(channel); }
inline Cq& of(ibv_cq_ex* cq) { return *static_cast<Cq*>(cq); }
inline Cq& of(ibv_cq* cq) { return of(reinterpret_cast<ibv_cq_ex*>(cq)); }
inline Srq& of(ibv_srq* srq) { return *static_cast<Srq*>(srq); }
inline Qp& of(ibv_qp_ex* qp) { return *static_cast<Qp*>(qp); }
inline Qp& of(ibv_qp* qp) { return of(reinterpret_cast<ibv_qp_ex*>(qp)); }

inline ibv_cq* to_public(Cq& cq) { return reinterpret_cast<ibv_cq*>(static_cast<ibv_cq_ex*>(&cq)); }
inline ibv_qp* to_public(Qp& qp) { return &qp.qp_base; }

}  // namespace farverbs::abi
