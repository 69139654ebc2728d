// The numbers of `farverbs top` for a Prometheus server.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include <prometheus/collectable.h>
#include <prometheus/metric_family.h>

#include "farverbs/base/result.h"
#include "tools/top/sources.h"

namespace farverbs::tools::top {

std::vector<prometheus::MetricFamily> to_metrics(const std::vector<DeviceStats>& devices);

/// Looks at the processes anew for each scrape.
class Collector final : public prometheus::Collectable {
 public:
  Collector(std::string folder, pid_t pid) : folder_(std::move(folder)), pid_(pid) {}
  std::vector<prometheus::MetricFamily> Collect() const override {
    return to_metrics(read_all(folder_, pid_));
  }

 private:
  const std::string folder_;
  const pid_t pid_;
};

}  // namespace farverbs::tools::top
