#include "farverbs/io/os_entropy.h"

#include <sys/random.h>

#include <cerrno>

#include "farverbs/base/check.h"

namespace farverbs::io {

uint64_t OsEntropy::next() {
  if (unused_ == 0) {
    // A request of up to 256 bytes is never cut short once the kernel's pool is initialized; before
    // that it blocks, which only an interrupting signal ends.
    ssize_t got;
    do {
      got = getrandom(words_.data(), sizeof words_, 0);  // lint: allow chance, this is the Entropy
    } while (got < 0 && errno == EINTR);
    FV_CHECK(got == static_cast<ssize_t>(sizeof words_));
    unused_ = words_.size();
  }
  const uint64_t word = words_[--unused_];
  words_[unused_] = 0;  // what was given out must not be found in memory later
  return word;
}

}  // namespace farverbs::io
