// FarReceives: the receives that messages have taken off their queue by sequence number, in the
// queue's order, and that have not completed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "farverbs/model/qp.h"
#include "farverbs/proto/sge_walker.h"

namespace farverbs::proto {

struct FarReceive {
  static constexpr uint64_t kNobody = UINT64_MAX;
  model::ReceiveWqe wqe;
  SgeWalker walker;
  uint64_t owner = kNobody;  // number of the message it is for
};

class FarReceives {
 public:
  explicit FarReceives(model::Qp& qp) : qp_(qp) {}

  uint64_t done() const { return done_; }    // completed
  uint64_t taken() const { return taken_; }  // off the queue, the completed ones included
  // Receive number `sequence`, taking it and those before it off the queue; nullptr: there are not
  // that many yet. sequence >= done().
  FarReceive* reach(uint64_t sequence);
  FarReceive& front() { return *ring_[done_ & (ring_.size() - 1)]; }  // taken() > done()
  void pop_front() { ++done_; }
  // Completes all that are in hand or queued as flushed, in order. An SRQ keeps what is queued.
  void flush();
  void reset();
  // A quiet time: gives back what nothing is kept in.
  void trim() {
    if (done_ == taken_) ring_ = decltype(ring_)();
  }
  size_t memory_bytes() const;

 private:
  void grow();

  model::Qp& qp_;
  uint64_t done_ = 0;
  uint64_t taken_ = 0;
  std::vector<std::unique_ptr<FarReceive>> ring_;  // a power of two; storage is used again
};

}  // namespace farverbs::proto
