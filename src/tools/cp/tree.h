// File names of a peer on this file system. A path is opened beneath a directory and cannot leave
// it: by openat2(2) with RESOLVE_BENEATH, or, where the kernel lacks that, component by component
// with O_NOFOLLOW. Symbolic links are either followed as long as they stay beneath
// (Links::kBeneath), or not at all (Links::kNone), which is how everything a peer names inside a
// copied tree is opened.
#pragma once

#include <sys/stat.h>

#include <string>

#include "farverbs/base/result.h"
#include "tools/cp/fd.h"

namespace farverbs::tools::copy {

enum class Links { kNone, kBeneath };

// A path as peers send it: relative, no empty, "." or ".." component, components up to 255 bytes,
// 4,096 bytes in all. "" is the directory itself.
Result<void> check_peer_path(const std::string& path);
// One component.
Result<void> check_peer_name(const std::string& name);

// ELOOP, EXDEV and EAGAIN become EACCES with "leaves ..." in words.
Result<Fd> open_beneath(int directory, const std::string& path, int flags, mode_t mode,
                        Links links);
// The same with openat2(2) not used; for tests.
Result<Fd> open_beneath_by_component(int directory, const std::string& path, int flags,
                                     mode_t mode);

// Any directory of ours, by a path that the user typed.
Result<Fd> open_local_directory(const std::string& path);

// "a/b/c" -> {"a/b", "c"}.
struct SplitPath {
  std::string parent;
  std::string name;
};
SplitPath split_path(const std::string& path);

int64_t mtime_ns(const struct stat& status);
timespec to_timespec(int64_t ns);

// The name that data has until it is complete, and that of the notes which let it be resumed; names
// that would be too long are abbreviated with a checksum.
std::string partial_name(const std::string& name);
std::string state_name(const std::string& name);
// Left in a directory that a copy created and has not finished.
inline constexpr const char* kCopyingMarker = ".farverbs-copying";
// One of the three: they are never copied themselves.
bool is_transfer_leftover(const std::string& name);

}  // namespace farverbs::tools::copy
