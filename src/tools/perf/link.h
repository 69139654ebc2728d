// Link: the control connection between the two processes of a measurement, in JSON messages. Its
// errors say in words what became of the other side.
#pragma once

#include <optional>
#include <string>

#include "farverbs/base/result.h"
#include "farverbs/verbs/rendezvous.h"
#include "tools/common/json_fields.h"

namespace farverbs::tools::perf {

class Link {
 public:
  // peer: how messages call the other side, such as "the server at 10.0.0.2 port 7471".
  Link(verbs::Rendezvous& connection, std::string peer)
      : connection_(connection), peer_(std::move(peer)) {}

  const std::string& peer() const { return peer_; }

  Result<void> send(const Json& message);
  // {"type": type}.
  Result<void> say(const char* type) { return send({{"type", type}}); }
  // EPIPE: the other side is gone; EREMOTEIO: it sent {"error": ...}.
  Result<Json> receive(Duration timeout);
  // What has arrived, without waiting.
  Result<std::optional<Json>> poll();

  // The reason behind `error`: what the other side said about it or that it is gone, if it tells
  // soon, otherwise `error`. A dead process is seen as lost packets first.
  Error explain(Error error);
  // Tells the other side, if it still listens.
  void report(const Error& error);

 private:
  verbs::Rendezvous& connection_;
  std::string peer_;
};

}  // namespace farverbs::tools::perf
