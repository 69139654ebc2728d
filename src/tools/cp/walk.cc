#include "tools/cp/walk.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>

#include "tools/cp/location.h"
#include "tools/cp/tree.h"

namespace farverbs::tools::copy {
namespace {

const char* kind_of(mode_t mode) {
  if (S_ISFIFO(mode)) return "a named pipe";
  if (S_ISSOCK(mode)) return "a socket";
  if (S_ISBLK(mode) || S_ISCHR(mode)) return "a device";
  return "of an unknown kind";
}

std::string join(const std::string& parent, const std::string& name) {
  if (parent.empty()) return name;
  return name.empty() ? parent : parent + "/" + name;
}

}  // namespace

std::string identity_of(const struct stat& status) {
  // The time of status changes cannot be set back by the owner, unlike mtime.
  return fmt::format("{:x}.{:x}.{:x}", status.st_ino, status.st_ctim.tv_sec,
                     status.st_ctim.tv_nsec);
}

std::vector<Extent> find_extents(int fd, uint64_t size) {
  std::vector<Extent> extents;
  off_t at = 0;
  const auto end = static_cast<off_t>(size);
  while (at < end) {
    const off_t data = ::lseek(fd, at, SEEK_DATA);
    if (data < 0 && errno == ENXIO) break;
    if (data < 0) return {{0, size}};  // no such thing on this file system
    if (data >= end) break;
    const off_t hole = std::min(::lseek(fd, data, SEEK_HOLE), end);
    if (hole <= data) break;
    extents.push_back({static_cast<uint64_t>(data), static_cast<uint64_t>(hole - data)});
    at = hole;
  }
  return limit_extents(std::move(extents), kMaxExtents);
}

Walk::Walk(int base, std::string name, bool recursive)
    : base_(base), name_(std::move(name)), recursive_(recursive) {}

std::string Walk::path_of(const std::string& relative) const { return join(name_, relative); }

std::optional<std::variant<Entry, Note>> Walk::next() {
  if (!started_) {
    started_ = true;
    return describe("");
  }
  while (!levels_.empty()) {
    Level& level = levels_.back();
    if (level.names.empty()) {
      levels_.pop_back();
      continue;
    }
    const std::string path = join(level.path, level.names.back());
    level.names.pop_back();
    if (auto found = describe(path)) return found;
  }
  return std::nullopt;
}

std::optional<std::variant<Entry, Note>> Walk::describe(const std::string& path) {
  const std::string full = path_of(path);
  if (full.size() > kMaxPathBytes) return Note{path, "the path is longer than 4096 bytes"};
  // A handle without access to the content, so that a device is not touched nor a pipe waited for.
  const SplitPath split = split_path(full);
  Result<Fd> parent = open_beneath(base_, split.parent, O_PATH | O_DIRECTORY, 0, Links::kBeneath);
  if (!parent.ok()) return Note{path, parent.error().message};
  struct stat status;
  if (::fstatat(parent->get(), split.name.c_str(), &status, AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH) !=
      0) {
    return Note{path, std::strerror(errno)};
  }
  Entry entry;
  entry.path = path;
  entry.mode = status.st_mode & 07777;
  entry.mtime_ns = mtime_ns(status);
  if (S_ISLNK(status.st_mode)) {
    char target[kMaxPathBytes + 1];
    const ssize_t length = ::readlinkat(parent->get(), split.name.c_str(), target, sizeof target);
    if (length < 0) return Note{path, std::strerror(errno)};
    if (static_cast<size_t>(length) > kMaxPathBytes) return Note{path, "the link is too long"};
    entry.kind = EntryKind::kLink;
    entry.target.assign(target, static_cast<size_t>(length));
    return entry;
  }
  if (S_ISDIR(status.st_mode)) {
    entry.kind = EntryKind::kDirectory;
    if (recursive_) {
      if (auto note = descend(path)) return *std::move(note);
    }
    return entry;
  }
  if (!S_ISREG(status.st_mode)) {
    return Note{path, fmt::format("skipped: it is {}", kind_of(status.st_mode))};
  }
  entry.size = static_cast<uint64_t>(status.st_size);
  if (entry.size > kMaxFileBytes) return Note{path, "the file is too large"};
  entry.identity = identity_of(status);
  if (static_cast<uint64_t>(status.st_blocks) * 512 < entry.size) {
    // Blocks are missing: holes, or a file system that compresses.
    const Fd file(::openat(parent->get(), split.name.c_str(),
                           O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
    if (file.valid()) {
      entry.extents = find_extents(file.get(), entry.size);
      entry.sparse = entry.extents != std::vector<Extent>{{0, entry.size}};
      if (!entry.sparse) entry.extents.clear();
    }
  }
  return entry;
}

std::optional<Note> Walk::descend(const std::string& path) {
  Result<Fd> fd = open_beneath(base_, path_of(path), O_RDONLY | O_DIRECTORY, 0, Links::kBeneath);
  if (!fd.ok()) return Note{path, fd.error().message};
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(::fdopendir(::dup(fd->get())), ::closedir);
  if (!directory) return Note{path, std::strerror(errno)};
  Level level{path, {}};
  while (const dirent* child = ::readdir(directory.get())) {
    const std::string name = child->d_name;
    if (name != "." && name != ".." && !is_transfer_leftover(name)) level.names.push_back(name);
  }
  std::sort(level.names.begin(), level.names.end(), std::greater<>());
  levels_.push_back(std::move(level));
  return std::nullopt;
}

bool Walk::unchanged(int fd, const Entry& entry) {
  struct stat status;
  return ::fstat(fd, &status) == 0 && static_cast<uint64_t>(status.st_size) == entry.size &&
         mtime_ns(status) == entry.mtime_ns &&
         entry.identity.rfind(fmt::format("{:x}.", status.st_ino), 0) == 0;
}

Result<Fd> Walk::open_file(const Entry& entry) const {
  const SplitPath split = split_path(path_of(entry.path));
  FV_ASSIGN(const Fd parent,
            open_beneath(base_, split.parent, O_PATH | O_DIRECTORY, 0, Links::kBeneath));
  FV_ASSIGN(Fd file,
            open_beneath(parent.get(), split.name, O_RDONLY | O_NONBLOCK, 0, Links::kNone));
  if (!unchanged(file.get(), entry)) {
    return Error{ESTALE, fmt::format("'{}' changed while being sent", printable(entry.path))};
  }
  return file;
}

}  // namespace farverbs::tools::copy
