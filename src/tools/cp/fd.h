// Fd: a file descriptor that closes itself; the one that the sockets use.
#pragma once

#include "farverbs/io/file_descriptor.h"

namespace farverbs::tools::copy {

using Fd = io::FileDescriptor;

}  // namespace farverbs::tools::copy
