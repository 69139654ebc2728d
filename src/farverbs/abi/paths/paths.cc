// A preload library that shows /dev/infiniband/fv_*, the character devices of devices that need
// none: some programs (UCX) use a device only if they could read and write its file. Calls of libc
// by libc itself do not come by here, so directory listings stay as they are.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdarg>
#include <cstring>

namespace {

// Both can be read and written, and are character devices.
constexpr char kStandIn[] = "/dev/null";
constexpr char kShown[] = "/dev/infiniband/fv_";

const char* real_path(const char* path) {
  const bool shown = path != nullptr && std::strncmp(path, kShown, sizeof kShown - 1) == 0;
  return shown ? kStandIn : path;
}

template <typename Function>
Function next(const char* name) {
  return reinterpret_cast<Function>(::dlsym(RTLD_NEXT, name));
}

bool has_mode(int flags) { return (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE; }

}  // namespace

#define NEXT(name) static auto* const original = next<decltype(&name)>(#name)
#define MODE(flags)                                \
  mode_t mode = 0;                                 \
  if (has_mode(flags)) {                           \
    va_list more;                                  \
    va_start(more, flags);                         \
    mode = static_cast<mode_t>(va_arg(more, int)); \
    va_end(more);                                  \
  }

extern "C" {

int open(const char* path, int flags, ...) {
  MODE(flags)
  NEXT(open);
  return original(real_path(path), flags, mode);
}

int open64(const char* path, int flags, ...) {
  MODE(flags)
  NEXT(open64);
  return original(real_path(path), flags, mode);
}

int openat(int directory, const char* path, int flags, ...) {
  MODE(flags)
  NEXT(openat);
  return original(directory, real_path(path), flags, mode);
}

int openat64(int directory, const char* path, int flags, ...) {
  MODE(flags)
  NEXT(openat64);
  return original(directory, real_path(path), flags, mode);
}

int access(const char* path, int type) noexcept {
  NEXT(access);
  return original(real_path(path), type);
}

int faccessat(int directory, const char* path, int type, int flags) noexcept {
  NEXT(faccessat);
  return original(directory, real_path(path), type, flags);
}

int stat(const char* path, struct stat* status) noexcept {
  static auto* const original = next<int (*)(const char*, struct stat*)>("stat");
  return original(real_path(path), status);
}

int stat64(const char* path, struct stat64* status) noexcept {
  static auto* const original = next<int (*)(const char*, struct stat64*)>("stat64");
  return original(real_path(path), status);
}

int lstat(const char* path, struct stat* status) noexcept {
  static auto* const original = next<int (*)(const char*, struct stat*)>("lstat");
  return original(real_path(path), status);
}

int fstatat(int directory, const char* path, struct stat* status, int flags) noexcept {
  NEXT(fstatat);
  return original(directory, real_path(path), status, flags);
}

// What programs built against a C library before 2.33 call instead of stat.
int __xstat(int version, const char* path, struct stat* status) {
  static auto* const original = next<int (*)(int, const char*, struct stat*)>("__xstat");
  return original(version, real_path(path), status);
}

}  // extern "C"
