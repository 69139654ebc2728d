#include "tools/top/exporter.h"

#include <csignal>
#include <cstdio>
#include <exception>
#include <memory>

#include <fmt/format.h>

#if FARVERBS_HAS_PROMETHEUS
#include <prometheus/exposer.h>

#include "tools/top/metrics.h"
#endif

namespace farverbs::tools::top {

Result<std::string> parse_endpoint(const std::string& text) {
  const size_t colon = text.rfind(':');
  const std::string port = colon == std::string::npos ? text : text.substr(colon + 1);
  std::string host = colon == std::string::npos ? "" : text.substr(0, colon);
  if (host.empty()) host = "127.0.0.1";
  if (port.empty() || port.size() > 5 ||
      port.find_first_not_of("0123456789") != std::string::npos || std::stoi(port) > 65'535) {
    return invalid("'" + text + "' is no endpoint: write 9464 or 127.0.0.1:9464");
  }
  return host + ":" + port;
}

#if FARVERBS_HAS_PROMETHEUS

Result<void> serve_metrics(const std::string& endpoint, const std::string& folder, pid_t pid) {
  FV_ASSIGN(const std::string where, parse_endpoint(endpoint));
  sigset_t ends;
  ::sigemptyset(&ends);
  ::sigaddset(&ends, SIGINT);
  ::sigaddset(&ends, SIGTERM);
  // Before the exposer starts its threads, which inherit it.
  ::pthread_sigmask(SIG_BLOCK, &ends, nullptr);
  try {
    prometheus::Exposer exposer(where, 1);
    const auto collector = std::make_shared<Collector>(folder, pid);
    exposer.RegisterCollectable(collector);
    const std::vector<int> ports = exposer.GetListeningPorts();
    const std::string host = where.substr(0, where.rfind(':'));
    fmt::print("serving http://{}:{}/metrics\n", host, ports.empty() ? 0 : ports.front());
    std::fflush(stdout);
    int signal = 0;
    ::sigwait(&ends, &signal);
  } catch (const std::exception& error) {
    return Error{EADDRINUSE, fmt::format("cannot serve at {}: {}", where, error.what())};
  }
  return {};
}

#else

Result<void> serve_metrics(const std::string& endpoint, const std::string&, pid_t) {
  FV_TRY(parse_endpoint(endpoint));
  return Error{ENOTSUP,
               "this build has no Prometheus endpoint: install prometheus-cpp-dev and build again"};
}

#endif

}  // namespace farverbs::tools::top
