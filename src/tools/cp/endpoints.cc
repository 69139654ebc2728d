#include "tools/cp/endpoints.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <cstdlib>
#include <memory>

#include "tools/cp/location.h"
#include "tools/cp/tree.h"

namespace farverbs::tools::copy {
namespace {

using OpenDirectory = std::function<Result<Fd>(const std::string&)>;

std::string shown(const std::string& path) { return path.empty() ? "/" : printable(path); }

// Where an open file is, by name; "" if the kernel does not tell.
std::string real_path(int fd) {
  char path[kMaxPathBytes + 1];
  const ssize_t length = ::readlink(fmt::format("/proc/self/fd/{}", fd).c_str(), path, sizeof path);
  if (length <= 0 || static_cast<size_t>(length) > kMaxPathBytes || path[0] != '/') return "";
  return std::string(path, static_cast<size_t>(length));
}

std::string own_name_of_directory(int fd) {
  const std::string name = split_path(real_path(fd)).name;
  return name.empty() ? "root" : name;
}

Error needs_recursive(const std::string& path) {
  return {EISDIR, fmt::format("'{}' is a directory: add -r to copy it", shown(path))};
}

// What an open handle (O_PATH) is. nullopt: neither file nor directory.
Result<bool> is_directory(int fd, const std::string& path, bool recursive) {
  struct stat status;
  if (::fstat(fd, &status) != 0) return Error::from_errno(fmt::format("'{}'", shown(path)));
  if (S_ISDIR(status.st_mode)) {
    if (!recursive) return needs_recursive(path);
    return true;
  }
  if (S_ISREG(status.st_mode) || S_ISLNK(status.st_mode)) return false;
  return invalid(fmt::format("'{}' is neither a file nor a directory", shown(path)));
}

SplitPath split_any(const std::string& path) {
  SplitPath split = split_path(path);
  if (split.parent.empty() && !path.empty() && path[0] == '/') split.parent = "/";
  return split;
}

bool has_marker_of(int directory, const std::string& source_name) {
  const Fd marker(
      ::openat(directory, kCopyingMarker, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!marker.valid()) return false;
  char content[256];
  const ssize_t length = ::read(marker.get(), content, sizeof content);
  return length >= 0 && source_name == std::string_view(content, static_cast<size_t>(length));
}

Result<Target> resolve_target(const OpenDirectory& open_directory, const TargetRequest& request) {
  const SplitPath split = split_any(request.path);
  Result<Fd> opened = open_directory(request.path);
  const bool has_own_name = !split.name.empty() && split.name != "." && split.name != "..";
  if (opened.ok()) {
    if (!request.source_is_directory || !has_own_name ||
        !has_marker_of(opened->get(), request.source_name)) {
      return Target{std::move(opened).value(), request.source_name};
    }
  } else if (opened.error().code == EACCES || opened.error().code == EPERM) {
    return std::move(opened).error();
  } else if (request.wants_directory || !has_own_name) {
    return Error{opened.error().code,
                 fmt::format("the directory '{}' does not exist", shown(request.path))};
  }
  Result<Fd> parent = open_directory(split.parent);
  if (!parent.ok() && parent.error().code == ENOENT) {
    return Error{ENOENT, fmt::format("the directory '{}' does not exist: create it first",
                                     shown(split.parent))};
  }
  if (!parent.ok()) return std::move(parent).error();
  return Target{std::move(parent).value(), split.name};
}

}  // namespace

Result<SourceRoot> resolve_local_source(const std::string& path, bool recursive) {
  const int follow = recursive ? O_NOFOLLOW : 0;
  Fd handle(::open(path.c_str(), O_PATH | O_CLOEXEC | follow));
  if (!handle.valid()) return Error::from_errno(fmt::format("'{}'", shown(path)));
  SourceRoot root;
  FV_ASSIGN(root.directory, is_directory(handle.get(), path, recursive));
  if (root.directory) {
    root.own_name = own_name_of_directory(handle.get());
    root.base = std::move(handle);
    return root;
  }
  root.own_name = split_any(path).name;
  std::string place = path;
  if (!recursive) {
    // The file that a link leads to is copied under the link's name.
    const std::unique_ptr<char, void (*)(void*)> resolved(::realpath(path.c_str(), nullptr),
                                                          std::free);
    if (resolved) place = resolved.get();
  }
  const SplitPath split = split_any(place);
  FV_ASSIGN(root.base, open_local_directory(split.parent.empty() ? "." : split.parent));
  root.entry = split.name;
  return root;
}

Result<SourceRoot> resolve_served_source(int root_fd, const std::string& path, bool recursive) {
  FV_ASSIGN(Fd handle,
            open_beneath(root_fd, path, O_PATH | (recursive ? O_NOFOLLOW : 0), 0, Links::kBeneath));
  SourceRoot root;
  FV_ASSIGN(root.directory, is_directory(handle.get(), path, recursive));
  if (root.directory) {
    root.own_name = own_name_of_directory(handle.get());
    root.base = std::move(handle);
    return root;
  }
  root.own_name = split_path(path).name;
  std::string place = path;
  if (!recursive) {
    const std::string top = real_path(root_fd);
    const std::string real = real_path(handle.get());
    const std::string prefix = top == "/" ? top : top + "/";
    if (!top.empty() && real.rfind(prefix, 0) == 0) place = real.substr(prefix.size());
  }
  const SplitPath split = split_path(place);
  FV_ASSIGN(root.base,
            open_beneath(root_fd, split.parent, O_PATH | O_DIRECTORY, 0, Links::kBeneath));
  root.entry = split.name;
  return root;
}

Result<Target> resolve_local_target(const TargetRequest& request) {
  return resolve_target(
      [](const std::string& path) { return open_local_directory(path.empty() ? "." : path); },
      request);
}

Result<Target> resolve_served_target(int root, const TargetRequest& request) {
  return resolve_target(
      [root](const std::string& path) {
        return open_beneath(root, path, O_PATH | O_DIRECTORY, 0, Links::kBeneath);
      },
      request);
}

}  // namespace farverbs::tools::copy
