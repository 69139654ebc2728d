// Prefaulter: a thread that gives a mapping its pages ahead of the data, so that the packet loop
// does not stop at every 4 KiB for a page fault.
#pragma once

#include <fcntl.h>
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

  // `memory` keeps `mapping` and `file` alive. file: to be allocated first at `file_offset`, or -1.
  void populate(std::shared_ptr<void> memory, const Mapping& mapping, uint64_t offset,
                uint64_t length, int file, uint64_t file_offset) {
    if (length == 0) return;
    {
      const std::lock_guard lock(mutex_);
      jobs_.push_back({std::move(memory), &mapping, offset, length, file, file_offset});
      if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
    }
    wake_.notify_one();
  }

  // No page of `memory` is touched after this returns: a fault sets the file's time, also after
  // that was given its own.
  void forget(const std::shared_ptr<void>& memory) {
    std::unique_lock lock(mutex_);
    std::erase_if(jobs_, [&](const Job& job) {
      return job.mapping != nullptr && job.memory.get() == memory.get();
    });
    done_.wait(lock, [&] { return at_work_on_ != memory.get(); });
  }

  // Lets go of `memory` in the thread: unmapping a large window takes milliseconds.
  void drop(std::shared_ptr<void> memory) {
    {
      const std::lock_guard lock(mutex_);
      jobs_.push_back({std::move(memory), nullptr, 0, 0, -1, 0});
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
    int file;
    uint64_t file_offset;
  };
  void run() {
    std::unique_lock lock(mutex_);
    while (true) {
      wake_.wait(lock, [this] { return stopping_ || !jobs_.empty(); });
      if (stopping_) return;
      Job job = std::move(jobs_.front());
      jobs_.pop_front();
      at_work_on_ = job.mapping != nullptr ? job.memory.get() : nullptr;
      lock.unlock();
      // Failures show when the data comes: a full disk as a fault that the transport survives.
      if (job.mapping == nullptr) {
        job.memory.reset();
        lock.lock();
        continue;
      }
      if (job.file >= 0) {
        (void)::fallocate(job.file, FALLOC_FL_KEEP_SIZE, static_cast<off_t>(job.file_offset),
                          static_cast<off_t>(job.length));
      }
      // Kernels before 5.14 lack it; then the faults happen when the data comes.
      job.mapping->advise(job.offset, job.length, MADV_POPULATE_WRITE);
      job.memory.reset();
      lock.lock();
      at_work_on_ = nullptr;
      done_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable done_;
  const void* at_work_on_ = nullptr;  // memory whose pages the thread touches now
  std::deque<Job> jobs_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace farverbs::tools::copy
