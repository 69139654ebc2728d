// Control: the TCP connection over which the client of a yardstick tells the server what to do and
// gets its figures afterwards, one JSON object a line.
#pragma once

#include <functional>
#include <string>

#include "farverbs/base/ip_address.h"
#include "farverbs/base/result.h"
#include "farverbs/base/time.h"
#include "farverbs/io/file_descriptor.h"
#include "tools/common/json_fields.h"

namespace farverbs::tools::yardstick {

class Control {
 public:
  // Accepts one connection; on_listen is told the port (which the kernel chose for port 0).
  static Result<Control> accept_one(const Endpoint& local,
                                    const std::function<void(uint16_t)>& on_listen);
  // Tries for three seconds, for the server may be starting.
  static Result<Control> connect(const Endpoint& server);

  Result<void> send(const Json& message);
  // An error after 30 seconds of silence.
  Result<Json> receive();
  // The other side has said something, or is gone.
  bool readable() const;

  const Endpoint& local() const { return local_; }
  const Endpoint& peer() const { return peer_; }

 private:
  explicit Control(io::FileDescriptor fd);
  io::FileDescriptor fd_;
  Endpoint local_;
  Endpoint peer_;
  std::string unread_;
};

// Tells a server's data loop when its client is done, at little cost.
class StopCheck {
 public:
  explicit StopCheck(const Control& control) : control_(control) {}
  // In a loop that spins: looks at the connection once in a while.
  bool while_spinning() { return (++calls_ & 0xFFF) == 0 && control_.readable(); }
  bool now() const { return control_.readable(); }

 private:
  const Control& control_;
  unsigned calls_ = 0;
};

}  // namespace farverbs::tools::yardstick
