// The names under which the processes of one host that share a UDP (address, port) find each other:
// abstract unix sockets (man unix(7)), which belong to a network namespace and vanish with the
// process. Binding a slot's name is how a slot is claimed; a slot is the top byte of the QPNs of
// its process. QP1 messages that name a service go to the process that has bound the service's
// name.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <bitset>
#include <cstdint>
#include <string>

#include "farverbs/base/ip_address.h"
#include "farverbs/base/result.h"

namespace farverbs::io {

inline constexpr size_t kSlots = 256;

// "farverbs/127.0.0.1:4791/slot/3" and "farverbs/127.0.0.1:4791/service/00000000010612ab", without
// the leading zero byte of an abstract name.
std::string slot_prefix(const Endpoint& endpoint);  // a slot's name without its number
std::string service_name(const Endpoint& endpoint, uint64_t service_id);

// The connection manager's agent of a process, which is named in the top bits of its communication
// identifiers: "farverbs/cm/291". Agent 0 is nobody's.
inline constexpr unsigned kAgentBits = 12;
std::string agent_name(uint16_t agent);
constexpr uint16_t agent_of(uint32_t communication_id) {
  return static_cast<uint16_t>(communication_id >> (32 - kAgentBits));
}

struct AbstractAddress {
  sockaddr_un address{};
  socklen_t size = 0;
  explicit AbstractAddress(const std::string& name);
  // This name followed by the number, in decimal; allocates nothing.
  AbstractAddress with_number(uint8_t number) const;
  const sockaddr* generic() const { return reinterpret_cast<const sockaddr*>(&address); }
};

// The slots that some process has claimed now. Takes some hundred microseconds.
std::bitset<kSlots> live_slots(const Endpoint& endpoint);

}  // namespace farverbs::io
