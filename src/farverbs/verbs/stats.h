// What a device is doing, for people and monitoring: a snapshot of its queue pairs and paths as
// JSON, and a unix socket that hands one to whoever of the same user connects (`farverbs top`). Off
// unless DeviceOptions::stats or the environment's FARVERBS_STATS asks for it.
#pragma once

#include <memory>
#include <string>
#include <thread>

#include "farverbs/base/result.h"
#include "farverbs/io/file_descriptor.h"
#include "farverbs/io/waker.h"

namespace farverbs::verbs {

// Where this user's processes put their sockets, named PID-NUMBER.sock: $FARVERBS_STATS if that is
// a path, /run/farverbs/stats for root, $XDG_RUNTIME_DIR/farverbs/stats, or
// /tmp/farverbs-UID/stats. Not made.
std::string stats_folder();
// FARVERBS_STATS is set, and not to 0.
bool stats_wanted_by_environment();

namespace detail {

struct DeviceState;

// Copies under the loops' locks, writes text outside.
std::string stats_snapshot(DeviceState& device);

// Listens until it dies. A connection gets one snapshot, then it is closed; nothing is read.
class StatsServer {
 public:
  // `device` outlives it.
  static Result<std::unique_ptr<StatsServer>> start(DeviceState& device, const std::string& folder);
  ~StatsServer();
  StatsServer(const StatsServer&) = delete;
  StatsServer& operator=(const StatsServer&) = delete;

  const std::string& path() const { return path_; }

 private:
  StatsServer(DeviceState& device, std::string path, io::FileDescriptor listener, io::Waker waker)
      : device_(device),
        path_(std::move(path)),
        listener_(std::move(listener)),
        waker_(std::move(waker)) {}
  void run();

  DeviceState& device_;
  const std::string path_;
  io::FileDescriptor listener_;
  io::Waker waker_;  // the end is near
  std::thread thread_;
};

}  // namespace detail
}  // namespace farverbs::verbs
