// Waker: ends another thread's wait (man eventfd(2)). Any thread may call wake(); the waiting
// thread polls fd() beside its ports and calls drain() when it is readable.
#pragma once

#include "farverbs/base/result.h"
#include "farverbs/io/file_descriptor.h"

namespace farverbs::io {

class Waker {
 public:
  static Result<Waker> create();
  int fd() const { return fd_.get(); }
  void wake() const;
  // True if somebody had called wake() since the last drain().
  bool drain() const;

 private:
  explicit Waker(FileDescriptor fd) : fd_(std::move(fd)) {}
  FileDescriptor fd_;
};

}  // namespace farverbs::io
