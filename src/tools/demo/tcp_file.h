// The demo's yardstick: one file over one kernel TCP connection with a chosen congestion control,
// as lean as a program can be (sendfile out, large reads in, written under a temporary name and
// then renamed). Blocking; a process runs one end.
#pragma once

#include <cstdint>
#include <string>

#include "farverbs/base/ip_address.h"
#include "farverbs/base/result.h"
#include "farverbs/base/time.h"

namespace farverbs::tools::demo {

/// Waits until a TCP connection to `peer` is accepted. `fd` is the caller's. ETIMEDOUT after
/// `patience`.
Result<int> connect_patiently(const Endpoint& peer, Duration patience);

/// Listens on `local`, answers the first connection that asks with `path`'s contents, and waits
/// until the receiver is done. If the kernel does not offer `congestion`, the receiver is told so.
Result<void> send_file(const Endpoint& local, const std::string& path,
                       const std::string& congestion);

/// Receives what send_file sends into `path`. ENOPROTOOPT: the sender's kernel does not offer the
/// congestion control.
Result<void> receive_file(const Endpoint& peer, const std::string& path, Duration patience);

}  // namespace farverbs::tools::demo
