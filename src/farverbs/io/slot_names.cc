#include "farverbs/io/slot_names.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdio>

#include "farverbs/base/check.h"
#include "farverbs/io/file_descriptor.h"

namespace farverbs::io {

namespace {

constexpr size_t kMostDigits = 3;

}  // namespace

std::string slot_prefix(const Endpoint& endpoint) {
  return "farverbs/" + endpoint.to_string() + "/slot/";
}

std::string service_name(const Endpoint& endpoint, uint64_t service_id) {
  char id[17];
  std::snprintf(id, sizeof id, "%016llx", static_cast<unsigned long long>(service_id));
  return "farverbs/" + endpoint.to_string() + "/service/" + id;
}

std::string agent_name(uint16_t agent) { return "farverbs/cm/" + std::to_string(agent); }

AbstractAddress::AbstractAddress(const std::string& name) {
  FV_CHECK(name.size() + kMostDigits < sizeof address.sun_path);
  address.sun_family = AF_UNIX;
  std::copy(name.begin(), name.end(), address.sun_path + 1);
  size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
}

AbstractAddress AbstractAddress::with_number(uint8_t number) const {
  AbstractAddress result = *this;
  char* const start = reinterpret_cast<char*>(&result.address) + result.size;
  const auto [end, error] = std::to_chars(start, start + kMostDigits, number);
  FV_CHECK(error == std::errc());
  result.size += static_cast<socklen_t>(end - start);
  return result;
}

std::bitset<kSlots> live_slots(const Endpoint& endpoint) {
  std::bitset<kSlots> live;
  const FileDescriptor fd(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const AbstractAddress slots(slot_prefix(endpoint));
  for (size_t slot = 0; slot < kSlots; ++slot) {
    const AbstractAddress name = slots.with_number(static_cast<uint8_t>(slot));
    live[slot] = ::connect(fd.get(), name.generic(), name.size) == 0;
  }
  return live;
}

}  // namespace farverbs::io
