#include "tools/cp/partial.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/magic.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>

#include <cstdio>
#include <cstring>
#include <thread>

#include "tools/common/format.h"
#include "tools/cp/checksum.h"
#include "tools/cp/location.h"
#include "tools/cp/tree.h"

namespace farverbs::tools::copy {
namespace {

// On disk in host order: it never leaves this machine.
struct StateHeader {
  char magic[8];
  uint64_t fingerprint;
  uint64_t pieces;
  uint64_t reserved;
};
constexpr char kMagic[8] = {'F', 'V', 'S', 'T', 'A', 'T', 'E', '1'};

// A note counts only if both halves agree, so that a torn or empty one is none.
struct StateNote {
  uint64_t crc;
  uint64_t check;
};
constexpr uint64_t kNoteMask = 0x5EED'FA12'0CCE'11EDu;

constexpr auto kLockRetry = std::chrono::milliseconds(50);
constexpr int kLockAttempts = 60;

uint64_t state_bytes(uint64_t pieces) { return sizeof(StateHeader) + pieces * sizeof(StateNote); }

StateNote* notes_of(const Mapping& state) {
  return reinterpret_cast<StateNote*>(state.data() + sizeof(StateHeader));
}

// Whether the name still leads to the file that we opened, a regular file with that one name.
bool is_still_named(int directory, const std::string& name, int fd) {
  struct stat ours;
  struct stat named;
  return ::fstat(fd, &ours) == 0 && S_ISREG(ours.st_mode) && ours.st_nlink == 1 &&
         ::fstatat(directory, name.c_str(), &named, AT_SYMLINK_NOFOLLOW) == 0 &&
         ours.st_ino == named.st_ino && ours.st_dev == named.st_dev;
}

Error no_space(const std::string& name, int fd, uint64_t bytes, int code) {
  struct statvfs volume;
  if (code == ENOSPC && ::fstatvfs(fd, &volume) == 0) {
    return {code, fmt::format("no space left for '{}': it needs {}, {} are free", printable(name),
                              format_bytes(bytes),
                              format_bytes(uint64_t{volume.f_bavail} * volume.f_frsize))};
  }
  return Error::from_errno(
      fmt::format("reserving {} for '{}'", format_bytes(bytes), printable(name)), code);
}

// 0, or what fallocate(2) says.
int allocate(int fd, const Extent& extent) {
  while (::fallocate(fd, 0, static_cast<off_t>(extent.offset), static_cast<off_t>(extent.length)) !=
         0) {
    if (errno != EINTR) return errno;
  }
  return 0;
}

bool is_allocated(int fd, uint64_t bytes) {
  struct stat status;
  return ::fstat(fd, &status) == 0 && static_cast<uint64_t>(status.st_blocks) * 512 >= bytes;
}

}  // namespace

uint64_t SourceIdentity::fingerprint() const {
  std::string text = fmt::format("{} {} {}", size, mtime_ns, identity);
  for (const Extent& extent : extents) text += fmt::format(" {}+{}", extent.offset, extent.length);
  return crc64(text.data(), text.size());
}

Result<PartialFile> PartialFile::open(int directory, const std::string& name,
                                      const SourceIdentity& source, const PiecePlan& plan) {
  PartialFile file;
  file.directory_ = directory;
  file.name_ = name;
  file.pieces_ = plan.count();
  FV_TRY(file.open_data());
  struct statfs kind;
  file.reserves_late_ = ::fstatfs(file.fd(), &kind) == 0 && kind.f_type == TMPFS_MAGIC;
  // A file of one piece has nothing that could be resumed, and many files are small.
  bool resumed = false;
  if (plan.count() > 1) {
    FV_ASSIGN(resumed, file.adopt_state(plan.count(), source.fingerprint()));
  }
  if (!resumed) {
    if (file.found_data_ && ::ftruncate(file.fd(), 0) != 0) {
      return Error::from_errno(fmt::format("emptying the partial file of '{}'", printable(name)));
    }
    if (Result<void> reserved = file.reserve(plan, source); !reserved.ok()) {
      file.discard();
      return std::move(reserved).error();
    }
    if (plan.count() > 1) file.create_state(plan.count(), source.fingerprint());
  }
  return file;
}

Result<void> PartialFile::open_data() {
  const std::string partial = partial_name(name_);
  for (int attempt = 0; attempt < kLockAttempts; ++attempt) {
    found_data_ = false;
    data_ = Fd(::openat(directory_, partial.c_str(),
                        O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (!data_.valid() && errno == EEXIST) {
      found_data_ = true;
      data_ =
          Fd(::openat(directory_, partial.c_str(), O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
      if (!data_.valid() && errno == ENOENT) continue;  // finished meanwhile
      if (!data_.valid() && (errno == ELOOP || errno == EACCES || errno == ENXIO)) {
        // Not something that we left there; only the name matters to us.
        if (::unlinkat(directory_, partial.c_str(), 0) == 0) continue;
      }
    }
    if (!data_.valid()) {
      return Error::from_errno(fmt::format("creating '{}'", printable(partial)));
    }
    // The lock dies with its process. A transfer that was cut off needs a moment to notice that.
    if (::flock(data_.get(), LOCK_EX | LOCK_NB) != 0) {
      std::this_thread::sleep_for(kLockRetry);
      continue;
    }
    if (is_still_named(directory_, partial, data_.get())) return {};
    struct stat status;
    if (::fstat(data_.get(), &status) == 0 && (status.st_nlink > 1 || !S_ISREG(status.st_mode))) {
      ::unlinkat(directory_, partial.c_str(), 0);
    }
  }
  return Error{EBUSY, fmt::format("another transfer is writing '{}'", printable(name_))};
}

Result<void> PartialFile::reserve(const PiecePlan& plan, const SourceIdentity& source) {
  if (plan.size() == 0) return {};
  if (::ftruncate(fd(), static_cast<off_t>(plan.size())) != 0) {
    return no_space(name_, fd(), plan.size(), errno);
  }
  // In memory a reservation costs about as much as the transfer: it is made window by window then,
  // beside the transfer (see reserves_late), and here it is only seen whether there is room.
  for (const Extent& extent : source.extents) {
    if (reserves_late_) break;
    const int failed = allocate(fd(), extent);
    if (failed == 0) continue;
    if (failed == EOPNOTSUPP) break;
    return no_space(name_, fd(), plan.data_bytes(), failed);
  }
  // After a reservation this holds; without one it is what can be known now.
  struct statvfs volume;
  if ((reserves_late_ || !is_allocated(fd(), plan.data_bytes())) &&
      ::fstatvfs(fd(), &volume) == 0 &&
      uint64_t{volume.f_bavail} * volume.f_frsize < plan.data_bytes()) {
    return no_space(name_, fd(), plan.data_bytes(), ENOSPC);
  }
  return {};
}

Result<bool> PartialFile::adopt_state(uint64_t pieces, uint64_t fingerprint) {
  if (!found_data_) return false;
  Fd state(::openat(directory_, state_name(name_).c_str(), O_RDWR | O_NOFOLLOW | O_CLOEXEC));
  struct stat status;
  if (!state.valid() || ::fstat(state.get(), &status) != 0 || !S_ISREG(status.st_mode) ||
      static_cast<uint64_t>(status.st_size) != state_bytes(pieces)) {
    return false;
  }
  FV_ASSIGN(Mapping mapping, Mapping::map(state.get(), 0, state_bytes(pieces), true));
  StateHeader header;
  std::memcpy(&header, mapping.data(), sizeof header);
  if (std::memcmp(header.magic, kMagic, sizeof kMagic) != 0 || header.pieces != pieces ||
      header.fingerprint != fingerprint) {
    return false;
  }
  state_ = std::move(mapping);
  return true;
}

void PartialFile::create_state(uint64_t pieces, uint64_t fingerprint) {
  const std::string name = state_name(name_);
  ::unlinkat(directory_, name.c_str(), 0);
  Fd state(
      ::openat(directory_, name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  // Without notes the transfer works and cannot be resumed. They are reserved so that writing them
  // through the mapping cannot fail on a full disk.
  const uint64_t bytes = state_bytes(pieces);
  if (!state.valid() || ::posix_fallocate(state.get(), 0, static_cast<off_t>(bytes)) != 0) {
    ::unlinkat(directory_, name.c_str(), 0);
    return;
  }
  Result<Mapping> mapping = Mapping::map(state.get(), 0, bytes, true);
  if (!mapping.ok()) return;
  StateHeader header{};
  std::memcpy(header.magic, kMagic, sizeof kMagic);
  header.fingerprint = fingerprint;
  header.pieces = pieces;
  std::memcpy(mapping->data(), &header, sizeof header);
  state_ = std::move(mapping).value();
}

std::optional<uint64_t> PartialFile::noted_crc(uint64_t piece) const {
  if (state_.data() == nullptr || piece >= pieces_) return std::nullopt;
  const StateNote note = notes_of(state_)[piece];
  if ((note.crc ^ kNoteMask) != note.check) return std::nullopt;
  return note.crc;
}

void PartialFile::note(uint64_t piece, uint64_t crc) {
  if (state_.data() == nullptr || piece >= pieces_) return;
  notes_of(state_)[piece] = {crc, crc ^ kNoteMask};
}

Result<void> PartialFile::commit(uint32_t mode, int64_t mtime_ns, bool sync) {
  const auto failed = [&](const char* what) {
    return Error::from_errno(fmt::format("{} '{}'", what, printable(name_)));
  };
  const timespec times[2] = {{0, UTIME_OMIT}, to_timespec(mtime_ns)};
  if (::fchmod(fd(), mode) != 0) return failed("setting the mode of");
  if (::futimens(fd(), times) != 0) return failed("setting the time of");
  if (sync && ::fsync(fd()) != 0) return failed("writing to disk:");
  if (::renameat(directory_, partial_name(name_).c_str(), directory_, name_.c_str()) != 0) {
    return failed("giving the received file its name");
  }
  if (state_.data() != nullptr) ::unlinkat(directory_, state_name(name_).c_str(), 0);
  state_ = Mapping();
  data_.reset();
  if (sync) {
    // `directory_` may be an O_PATH descriptor, which fsync(2) refuses.
    const Fd directory(::openat(directory_, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!directory.valid() || ::fsync(directory.get()) != 0) {
      return failed("writing to disk the directory of");
    }
  }
  return {};
}

void PartialFile::discard() {
  ::unlinkat(directory_, partial_name(name_).c_str(), 0);
  ::unlinkat(directory_, state_name(name_).c_str(), 0);
  state_ = Mapping();
  data_.reset();
}

}  // namespace farverbs::tools::copy
