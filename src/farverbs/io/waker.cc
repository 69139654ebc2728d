#include "farverbs/io/waker.h"

#include <sys/eventfd.h>

#include <cstdint>

namespace farverbs::io {

Result<Waker> Waker::create() {
  FileDescriptor fd(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!fd.valid()) return Error::from_errno("cannot create an eventfd");
  return Waker(std::move(fd));
}

void Waker::wake() const {
  const uint64_t one = 1;
  // The only failure is a counter at its maximum, and then the other thread is woken already.
  [[maybe_unused]] const ssize_t written = ::write(fd_.get(), &one, sizeof one);
}

bool Waker::drain() const {
  uint64_t count = 0;
  return ::read(fd_.get(), &count, sizeof count) == static_cast<ssize_t>(sizeof count);
}

}  // namespace farverbs::io
