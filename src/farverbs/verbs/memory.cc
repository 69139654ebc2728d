#include "farverbs/verbs/state.h"

namespace farverbs::verbs {
namespace detail {

RegionState::~RegionState() {
  (void)deregister();
  if (owns_memory) ::munmap(memory, length);
}

Result<void> RegionState::deregister() {
  if (entry == nullptr) return {};
  FV_TRY(pd->device->memory.deregister(entry));
  entry = nullptr;
  // A step that resolved the key before may still be copying.
  pd->device->quiesce();
  return {};
}

WindowState::~WindowState() {
  (void)pd->device->memory.free_window(entry);
  pd->device->quiesce();
}

}  // namespace detail

MemoryKey MemoryRegion::lkey() const { return state_->key; }
MemoryKey MemoryRegion::rkey() const { return state_->key; }
void* MemoryRegion::data() const { return state_->memory; }
uint64_t MemoryRegion::address() const { return state_->address; }
uint64_t MemoryRegion::length() const { return state_->length; }

std::span<std::byte> MemoryRegion::bytes() const {
  return {static_cast<std::byte*>(state_->memory), state_->length};
}

ScatterGatherElement MemoryRegion::sge(uint64_t offset, uint32_t length) const {
  return {state_->address + offset, length, state_->key};
}

Result<void> MemoryRegion::change_access(uint32_t access) {
  if (state_->entry == nullptr) return invalid("the region is deregistered");
  FV_TRY(state_->pd->device->memory.change_access(state_->entry, access));
  // A step that found the old rights may still be copying.
  state_->pd->device->quiesce();
  return {};
}

Result<void> MemoryRegion::deregister() { return state_->deregister(); }

MemoryKey MemoryWindow::rkey() const { return MemoryKey(state_->entry->key.load()); }
MemoryKey MemoryWindow::handle_key() const { return state_->entry->handle_key; }
model::MemoryEntry* MemoryWindow::entry() const { return state_->entry; }

Result<MemoryRegion> ProtectionDomain::register_memory(void* memory, uint64_t length,
                                                       uint32_t access) {
  return register_memory(memory, length, access, reinterpret_cast<uint64_t>(memory));
}

Result<MemoryRegion> ProtectionDomain::register_memory(void* memory, uint64_t length,
                                                       uint32_t access, uint64_t iova) {
  FV_ASSIGN(model::MemoryEntry * entry,
            state_->device->memory.register_region(state_->id, memory, length, iova, access));
  auto region = std::make_shared<detail::RegionState>();
  region->pd = state_;
  region->entry = entry;
  region->key = MemoryKey(entry->key.load());
  region->memory = memory;
  region->address = entry->address;
  region->length = length;
  return MemoryRegion(std::move(region));
}

Result<MemoryRegion> ProtectionDomain::allocate_memory(uint64_t length, uint32_t access) {
  if (length == 0) return invalid("length of memory to allocate must not be 0");
  void* memory =
      ::mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    return Error::from_errno("cannot allocate " + std::to_string(length) + " bytes");
  }
  ::madvise(memory, length, MADV_HUGEPAGE);
  auto region = register_memory(memory, length, access);
  if (!region.ok()) {
    ::munmap(memory, length);
    return std::move(region).error();
  }
  region->state_->owns_memory = true;
  return region;
}

Result<MemoryWindow> ProtectionDomain::allocate_window(bool type2, bool announced) {
  FV_ASSIGN(model::MemoryEntry * entry,
            state_->device->memory.allocate_window(
                state_->id, type2 ? model::MemoryKind::kWindow2 : model::MemoryKind::kWindow1,
                announced));
  auto window = std::make_shared<detail::WindowState>();
  window->pd = state_;
  window->entry = entry;
  return MemoryWindow(std::move(window));
}

Result<SharedReceiveQueue> ProtectionDomain::create_srq(uint32_t max_wr, uint32_t max_sge,
                                                        void* context,
                                                        model::AsyncEventSink* events) {
  const DeviceAttributes& limits = state_->device->attributes;
  if (max_wr == 0 || max_wr > limits.max_srq_wr) {
    return invalid("max_wr of a shared receive queue must be 1 to " +
                   std::to_string(limits.max_srq_wr) + ", got " + std::to_string(max_wr));
  }
  if (max_sge > limits.max_sge) {
    return invalid("max_sge must be at most " + std::to_string(limits.max_sge) + ", got " +
                   std::to_string(max_sge));
  }
  auto srq = std::make_shared<detail::SrqState>();
  srq->pd = state_;
  srq->queue = std::make_unique<model::ReceiveQueue>(max_wr, max_sge, true);
  srq->context = context;
  srq->events = events != nullptr ? events : &state_->device->events;
  return SharedReceiveQueue(std::move(srq));
}

Result<void> SharedReceiveQueue::post_receive(const ReceiveWorkRequest& request) {
  return state_->queue->post(request);
}

void SharedReceiveQueue::arm_limit(uint32_t limit) {
  state_->queue->arm_limit(limit, state_->events, state_->context);
}

uint32_t SharedReceiveQueue::limit() const { return state_->queue->limit(); }
uint32_t SharedReceiveQueue::count() const { return state_->queue->count(); }

}  // namespace farverbs::verbs
