#include "tools/cp/tree.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/openat2.h>
#include <sys/syscall.h>

#include "tools/cp/checksum.h"
#include "tools/cp/location.h"
#include "tools/cp/messages.h"

namespace farverbs::tools::copy {
namespace {

constexpr std::string_view kPartialSuffix = ".farverbs-partial";
constexpr std::string_view kStateSuffix = ".farverbs-state";
constexpr size_t kMaxName = 255;

Error open_error(const std::string& path, int code) {
  const std::string shown = path.empty() ? "." : printable(path);
  if (code == EXDEV || code == EAGAIN) {
    return {EACCES, fmt::format("'{}' leaves the directory it must stay in", shown)};
  }
  if (code == ELOOP) {
    return {ELOOP, fmt::format("'{}' is, or passes through, a symbolic link", shown)};
  }
  return Error::from_errno(fmt::format("'{}'", shown), code);
}

std::string hidden_name(const std::string& name, std::string_view suffix) {
  if (1 + name.size() + suffix.size() <= kMaxName) return fmt::format(".{}{}", name, suffix);
  const std::string sum = fmt::format("~{:016x}", crc64(name.data(), name.size()));
  const size_t room = kMaxName - 1 - suffix.size() - sum.size();
  return fmt::format(".{}{}{}", name.substr(0, room), sum, suffix);
}

}  // namespace

Result<void> check_peer_name(const std::string& name) {
  if (name.empty() || name == "." || name == ".." || name.size() > kMaxName ||
      name.find('/') != std::string::npos || name.find('\0') != std::string::npos) {
    return Error{EPROTO, fmt::format("the peer sent a name that is none: '{}'", printable(name))};
  }
  return {};
}

Result<void> check_peer_path(const std::string& path) {
  if (path.size() > kMaxPathBytes) return Error{EPROTO, "the peer sent a path that is too long"};
  for (size_t at = 0; at < path.size();) {
    const size_t end = std::min(path.find('/', at), path.size());
    if (end + 1 == path.size() || !check_peer_name(path.substr(at, end - at)).ok()) {
      return Error{EPROTO, fmt::format("the peer sent a path that could leave the directory: '{}'",
                                       printable(path))};
    }
    at = end + 1;
  }
  return {};
}

Result<Fd> open_beneath_by_component(int directory, const std::string& path, int flags,
                                     mode_t mode) {
  Fd current(::openat(directory, ".", O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!current.valid()) return open_error(path, errno);
  size_t at = 0;
  while (true) {
    const size_t end = std::min(path.find('/', at), path.size());
    const std::string part = path.empty() ? "." : path.substr(at, end - at);
    if (part == "..") return open_error(path, EXDEV);
    if (end < path.size()) {
      Fd next(::openat(current.get(), part.c_str(), O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
      if (!next.valid()) {
        struct stat status;
        const int code = errno;
        const bool link =
            ::fstatat(current.get(), part.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0 &&
            S_ISLNK(status.st_mode);
        return open_error(path, link ? ELOOP : code);
      }
      current = std::move(next);
      at = end + 1;
      continue;
    }
    Fd opened(::openat(current.get(), part.c_str(), flags | O_NOFOLLOW | O_CLOEXEC, mode));
    if (!opened.valid()) return open_error(path, errno);
    return opened;
  }
}

Result<Fd> open_beneath(int directory, const std::string& path, int flags, mode_t mode,
                        Links links) {
  open_how how{};
  how.flags = static_cast<uint64_t>(flags | O_CLOEXEC);
  if (links == Links::kNone) how.flags |= O_NOFOLLOW;
  how.mode = (flags & O_CREAT) != 0 ? mode : 0;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS;
  if (links == Links::kNone) how.resolve |= RESOLVE_NO_SYMLINKS;
  const char* name = path.empty() ? "." : path.c_str();
  // EAGAIN: something was renamed meanwhile and the kernel could not be sure.
  for (int attempt = 0; attempt < 16; ++attempt) {
    const long fd = ::syscall(SYS_openat2, directory, name, &how, sizeof how);
    if (fd >= 0) return Fd(static_cast<int>(fd));
    if (errno == ENOSYS || errno == EPERM) {
      return open_beneath_by_component(directory, path, flags, mode);
    }
    if (errno != EAGAIN && errno != EINTR) break;
  }
  return open_error(path, errno);
}

Result<Fd> open_local_directory(const std::string& path) {
  Fd fd(::open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!fd.valid()) return Error::from_errno(fmt::format("'{}'", printable(path)));
  return fd;
}

SplitPath split_path(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return {"", path};
  return {path.substr(0, slash), path.substr(slash + 1)};
}

int64_t mtime_ns(const struct stat& status) {
  return static_cast<int64_t>(status.st_mtim.tv_sec) * 1'000'000'000 + status.st_mtim.tv_nsec;
}

timespec to_timespec(int64_t ns) {
  int64_t seconds = ns / 1'000'000'000;
  int64_t rest = ns % 1'000'000'000;
  if (rest < 0) {
    rest += 1'000'000'000;
    --seconds;
  }
  timespec time{};
  time.tv_sec = seconds;
  time.tv_nsec = rest;
  return time;
}

std::string partial_name(const std::string& name) { return hidden_name(name, kPartialSuffix); }
std::string state_name(const std::string& name) { return hidden_name(name, kStateSuffix); }

bool is_transfer_leftover(const std::string& name) {
  const auto ends_with = [&](std::string_view suffix) {
    return name.size() > suffix.size() + 1 && name[0] == '.' &&
           std::string_view(name).substr(name.size() - suffix.size()) == suffix;
  };
  return name == kCopyingMarker || ends_with(kPartialSuffix) || ends_with(kStateSuffix);
}

}  // namespace farverbs::tools::copy
