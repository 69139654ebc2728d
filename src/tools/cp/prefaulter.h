// Prefaulter: a thread that gives a mapping its pages ahead of the data, so that the packet loop
// does not stop at every 4 KiB for a page fault.
#pragma once

#include <sys/mman.h>

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>

#include "tools/cp/mapping.h"

namespace farverbs::tools::copy {

class Prefaulter {
 public:
  Prefaulter() = default;
  Prefaulter(const Prefaulter&) = delete;
  Prefaulter& operator=(const Prefaulter&) = delete;
  ~Prefaulter() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    wake_.notify_one();
    if (thread_.joinable()) thread_.join();
  }

  // `memory` keeps `mapping` alive.
  void populate(std::shared_ptr<void> memory, const Mapping& mapping, uint64_t offset,
                uint64_t length) {
    if (length == 0) return;
    {
      const std::lock_guard lock(mutex_);
      jobs_.push_back({std::move(memory), &mapping, offset, length});
      if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
    }
    wake_.notify_one();
  }

 private:
  struct Job {
    std::shared_ptr<void> memory;
    const Mapping* mapping;
    uint64_t offset;
    uint64_t length;
  };
  void run() {
    std::unique_lock lock(mutex_);
    while (true) {
      wake_.wait(lock, [this] { return stopping_ || !jobs_.empty(); });
      if (stopping_) return;
      Job job = std::move(jobs_.front());
      jobs_.pop_front();
      lock.unlock();
      // Kernels before 5.14 lack it; then the faults happen when the data comes.
      job.mapping->advise(job.offset, job.length, MADV_POPULATE_WRITE);
      job.memory.reset();
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Job> jobs_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace farverbs::tools::copy
