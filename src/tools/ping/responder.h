// The answering side of `farverbs ping`, for servers to embed: it sends each message back as it
// came.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "farverbs/base/result.h"
#include "farverbs/verbs/rendezvous.h"
#include "farverbs/verbs/verbs.h"
#include "tools/common/json_fields.h"
#include "tools/ping/echo_end.h"

namespace farverbs::tools::ping {

// Serves the session that `hello`, the first message of `connection`, asks for: a JSON object whose
// field "farverbs" is kSessionKind. `device` is the one at the connection's local address. Blocks
// until the client closes the connection, or until `stopping`, asked every 100 ms, says so. An
// error has been told to the client.
Result<void> respond(verbs::Device& device, verbs::Rendezvous& connection, const Json& hello,
                     const std::function<bool()>& stopping = {});

// The `hello` that the first message of a connection is, if it asks for a ping session.
std::optional<Json> ping_hello(const std::string& first_message);

}  // namespace farverbs::tools::ping
