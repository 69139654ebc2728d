// The server's side of one measurement, from the client's first message to the report.
#pragma once

#include <memory>
#include <string>

#include "farverbs/base/result.h"
#include "farverbs/verbs/verbs.h"
#include "tools/perf/link.h"
#include "tools/perf/options.h"

namespace farverbs::tools::perf {

// Of the conversation between client and server.
inline constexpr uint64_t kProtocolVersion = 2;

struct SessionLimits {
  uint64_t max_memory = UINT64_C(8) << 30;  // bytes that a client may make the server allocate
};

// Serves the measurement that `hello`, the client's first message, asks for. Blocks until it is
// over or the client is gone. `client` is the address of the connection's other end. Returns a line
// that says what was done.
Result<std::string> serve_measurement(std::shared_ptr<verbs::Device> device, Link& link,
                                      const Options& options, const Json& hello,
                                      const IpAddress& client);

// What `hello` asks for, within the limits.
Result<Options> read_hello(const Json& hello, const SessionLimits& limits);

}  // namespace farverbs::tools::perf
