// An HTTP endpoint with the numbers of `farverbs top` for a Prometheus server.
#pragma once

#include <sys/types.h>

#include <string>

#include "farverbs/base/result.h"

namespace farverbs::tools::top {

/// Serves /metrics at `endpoint` ("9464", "127.0.0.1:9464"; without a host: loopback) until SIGINT
/// or SIGTERM, which it gives as success. ENOTSUP if this build has no prometheus-cpp.
Result<void> serve_metrics(const std::string& endpoint, const std::string& folder, pid_t pid);

/// "HOST:PORT" with loopback for a missing host. EINVAL.
Result<std::string> parse_endpoint(const std::string& text);

}  // namespace farverbs::tools::top
